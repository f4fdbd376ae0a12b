/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes to a file of OrangeFS, a number of writes at once, and checks the result.
 *
 *     writes FILE SIZE COUNT AT_ONCE
 *
 * FILE exists. Write i puts SIZE bytes of its own pattern into slot i modulo AT_ONCE * 2 of the
 * file; concurrent writes never share a slot.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pvfs2.h"

#define MOST 64

static PVFS_credential credential;

static void failed(const char *what, int code)
{
    fprintf(stderr, "writes: %s: %d\n", what, code);
    exit(1);
}

static void fill(unsigned char *memory, size_t size, int i)
{
    uint64_t word = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (size_t at = 0; at < size; at++) {
        if (at % 8 == 0)
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memory[at] = (unsigned char)(word >> (at % 8 * 8));
    }
}

/* One transfer. The system interface keeps pointers to its fields. */
struct transfer {
    unsigned char *memory;
    PVFS_Request memory_request;
    PVFS_sysresp_io response;
    PVFS_sys_op_id id;
};

static void start(struct transfer *t, PVFS_object_ref file, PVFS_offset offset, size_t size,
                  enum PVFS_io_type type)
{
    int ret = PVFS_Request_contiguous((int32_t)size, PVFS_BYTE, &t->memory_request);
    if (ret < 0)
        failed("PVFS_Request_contiguous", ret);
    ret = PVFS_isys_io(file, PVFS_BYTE, offset, t->memory, t->memory_request, &credential,
                       &t->response, type, &t->id, NULL, NULL);
    if (ret < 0)
        failed("PVFS_isys_io", ret);
}

static void finish(struct transfer *t, size_t size)
{
    int error = 0, ret = PVFS_sys_wait(t->id, "io", &error);

    if (ret < 0 || error < 0)
        failed("PVFS_sys_wait", ret < 0 ? ret : error);
    if (t->response.total_completed != (PVFS_size)size)
        failed("a short transfer", (int)t->response.total_completed);
    PVFS_Request_free(&t->memory_request);
}

static PVFS_object_ref look_up(const char *name)
{
    PVFS_fs_id fs;
    char path[PVFS_NAME_MAX] = "";
    PVFS_sysresp_lookup found;

    int ret = PVFS_util_resolve(name, &fs, path, sizeof(path));
    if (ret < 0)
        failed("PVFS_util_resolve", ret);
    ret = PVFS_util_gen_credential_defaults(&credential);
    if (ret < 0)
        failed("PVFS_util_gen_credential_defaults", ret);
    ret = PVFS_sys_lookup(fs, path, &credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL);
    if (ret < 0)
        failed("PVFS_sys_lookup", ret);
    return found.ref;
}

/* Checks that each slot has its last write. */
static void verify(PVFS_object_ref file, size_t size, int count, int slots)
{
    struct transfer t = {.memory = malloc(size)};
    unsigned char *expected = malloc(size);

    if (t.memory == NULL || expected == NULL)
        failed("malloc", 0);
    for (int i = count > slots ? count - slots : 0; i < count; i++) {
        start(&t, file, (PVFS_offset)(i % slots) * (PVFS_offset)size, size, PVFS_IO_READ);
        finish(&t, size);
        fill(expected, size, i);
        if (memcmp(t.memory, expected, size) != 0)
            failed("wrong contents of write", i);
    }
    free(expected);
    free(t.memory);
}

int main(int argc, char **argv)
{
    struct transfer under_way[MOST] = {{0}};

    if (argc != 5)
        failed("usage: writes FILE SIZE COUNT AT_ONCE", 0);
    size_t size = strtoul(argv[2], NULL, 10);
    int count = atoi(argv[3]), at_once = atoi(argv[4]), slots = at_once * 2;
    if (size < 1 || size > (64u << 20) || count < 1 || at_once < 1 || at_once > MOST)
        failed("an argument is out of range", 0);
    int ret = PVFS_util_init_defaults();
    if (ret < 0)
        failed("PVFS_util_init_defaults", ret);
    PVFS_object_ref file = look_up(argv[1]);

    for (int i = 0; i < at_once; i++)
        if ((under_way[i].memory = malloc(size)) == NULL)
            failed("malloc", 0);
    for (int i = 0; i < count + at_once; i++) {
        struct transfer *t = &under_way[i % at_once];
        if (i >= at_once && i - at_once < count)
            finish(t, size);
        if (i < count) {
            fill(t->memory, size, i);
            start(t, file, (PVFS_offset)(i % slots) * (PVFS_offset)size, size, PVFS_IO_WRITE);
        }
    }
    verify(file, size, count, slots);
    for (int i = 0; i < at_once; i++)
        free(under_way[i].memory);
    PVFS_sys_finalize();
    return 0;
}
