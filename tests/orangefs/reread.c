/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For defects.sh: reads a block of a file for each line of standard input, and prints whether
 * the block is that of a local copy. For the line "tiles" the first half of each of 64 strips
 * is read instead: of four servers each sends two buffers of a flow, which they fill exactly.
 *
 *     reread FILE COPY
 */
#include <pvfs2-util.h>
#include <pvfs2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { block = 262144, most = 16 * block, tiles = 64, tile = 32768, strip = 65536 };

struct file {
    PVFS_object_ref ref;
    PVFS_credential credential;
    char copy[most];
    long size;
};

static void stop(const char *what, int rc)
{
    PVFS_perror(what, rc);
    exit(1);
}

static void open_file(struct file *f, const char *name, const char *copy)
{
    PVFS_sysresp_lookup found;
    PVFS_fs_id fs;
    char path[PVFS_NAME_MAX];
    int rc = PVFS_util_init_defaults();
    if (rc < 0 || (rc = PVFS_util_resolve(name, &fs, path, sizeof(path))) < 0) {
        stop(name, rc);
    }
    PVFS_util_gen_credential_defaults(&f->credential);
    rc = PVFS_sys_lookup(fs, path, &f->credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL);
    if (rc < 0) {
        stop(name, rc);
    }
    f->ref = found.ref;
    FILE *local = fopen(copy, "r");
    f->size = local != NULL ? (long)fread(f->copy, 1, most, local) : 0;
    if (f->size <= block) {
        fprintf(stderr, "%s: less than two blocks\n", copy);
        exit(1);
    }
    fclose(local);
}

static void read_block(struct file *f, long at)
{
    static char buffer[block];
    PVFS_sysresp_io done = {.total_completed = -1};
    PVFS_Request request;
    long wanted = f->size - at < block ? f->size - at : block;
    memset(buffer, 0x5a, sizeof(buffer));
    PVFS_Request_contiguous(block, PVFS_BYTE, &request);
    int rc = PVFS_sys_read(f->ref, PVFS_BYTE, at, buffer, request, &f->credential, &done, NULL);
    PVFS_Request_free(&request);
    int equal =
        rc == 0 && done.total_completed == wanted && !memcmp(buffer, f->copy + at, wanted);
    printf("%s: at %ld status %d, %lld of %ld bytes\n", equal ? "equal" : "WRONG", at, rc,
           (long long)done.total_completed, wanted);
    fflush(stdout);
}

static void read_tiles(struct file *f)
{
    static char buffer[tiles * tile];
    PVFS_sysresp_io done = {.total_completed = -1};
    PVFS_Request memory, file;
    int right = 0;
    memset(buffer, 0x5a, sizeof(buffer));
    PVFS_Request_contiguous(tiles * tile, PVFS_BYTE, &memory);
    PVFS_Request_vector(tiles, tile, strip, PVFS_BYTE, &file);
    int rc = PVFS_sys_read(f->ref, file, 0, buffer, memory, &f->credential, &done, NULL);
    PVFS_Request_free(&memory);
    PVFS_Request_free(&file);
    for (int i = 0; i < tiles; i++) {
        right += !memcmp(buffer + i * tile, f->copy + i * strip, tile);
    }
    printf("%s: status %d, %d of %d tiles\n", rc == 0 && right == tiles ? "equal" : "WRONG", rc,
           right, tiles);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct file f;
    char line[16];
    if (argc != 3) {
        return 2;
    }
    open_file(&f, argv[1], argv[2]);
    for (long at = 0; fgets(line, sizeof(line), stdin);
         at = at + block < f.size ? at + block : 0) {
        if (strcmp(line, "tiles\n") == 0) {
            read_tiles(&f);
        } else {
            read_block(&f, at);
        }
    }
    return PVFS_sys_finalize() < 0;
}
