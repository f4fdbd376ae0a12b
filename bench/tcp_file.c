/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files over plain TCP, the client; see tcp_file.h. */
#include "bench/tcp_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bench/sockets.h"
#include "bench/tcp_store.h"
#include "bench/transport.h"
#include "embedded/iod/target.h"

#define STRIP 65536

/* One server's share of a copy. */
struct share {
    bool put;
    int file;
    uint64_t size; /* of the whole file; result of a get: of this share */
    const char *name, *server;
    unsigned index, count; /* of the server */
    int error;
    pthread_t thread;
};

/* Returns the bytes of a file of `size` in the strips of server `index` of `count`. */
static uint64_t share_bytes(uint64_t size, unsigned index, unsigned count)
{
    uint64_t strips = size / STRIP, rest = size % STRIP;

    return strips / count * STRIP + (index < strips % count ? STRIP : 0) +
           (index == strips % count ? rest : 0);
}

static int move_strips(const struct share *share, int fd, uint64_t bytes)
{
    char *buffer = malloc(STRIP);
    uint64_t strip = share->index, n;
    int rc = buffer ? 0 : -ENOMEM;

    for (; !rc && bytes; bytes -= n, strip += share->count) {
        n = bytes < STRIP ? bytes : STRIP;
        if (share->put) {
            rc = tcp_store_read(share->file, buffer, n, (off_t)(strip * STRIP));
            if (!rc)
                rc = sockets_send(fd, buffer, n);
        } else {
            rc = sockets_receive(fd, buffer, n);
            if (!rc)
                rc = tcp_store_write(share->file, buffer, n, (off_t)(strip * STRIP));
        }
    }
    free(buffer);
    return rc;
}

static int copy_share(struct share *share, int fd)
{
    uint64_t bytes = share->put ? share_bytes(share->size, share->index, share->count) : 0;
    struct tcp_store_request request = {htole64(share->put ? TCP_STORE_PUT : TCP_STORE_GET),
                                        htole64(strlen(share->name)), htole64(bytes)};
    struct tcp_store_answer answer;
    int rc = sockets_send(fd, &request, sizeof request);

    if (!rc)
        rc = sockets_send(fd, share->name, strlen(share->name));
    if (!rc && share->put)
        rc = move_strips(share, fd, bytes);
    if (!rc)
        rc = sockets_receive(fd, &answer, sizeof answer);
    if (!rc)
        rc = -(int)le64toh(answer.error);
    if (!rc && !share->put) {
        share->size = le64toh(answer.bytes);
        rc = move_strips(share, fd, share->size);
    }
    return rc;
}

static void *share_thread(void *arg)
{
    struct share *share = arg;
    int fd, rc = sockets_connect(share->server, &fd);

    if (!rc) {
        rc = copy_share(share, fd);
        close(fd);
    }
    share->error = rc;
    return NULL;
}

/* Opens the source; returns a descriptor, or -1 with `why`. */
static int open_source(const char *path, struct stat *stat, char *why)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char byte;

    if (file < 0 || fstat(file, stat))
        snprintf(why, WHY_SIZE, "%s: %s", path, strerror(errno));
    else if (stat->st_size == 0 && pread(file, &byte, 1, 0) > 0) /* as in /proc */
        snprintf(why, WHY_SIZE, "%s: unknown size; copy the data to a regular file first",
                 path);
    else
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

/* Runs all shares; returns 0, or -1 with `why`. */
static int run_shares(struct share *share, unsigned count, char *why)
{
    unsigned i, started;

    for (started = 0; started < count; started++)
        if (pthread_create(&share[started].thread, NULL, share_thread, &share[started]))
            break;
    for (i = 0; i < started; i++)
        pthread_join(share[i].thread, NULL);
    if (started < count) {
        snprintf(why, WHY_SIZE, "cannot start a thread");
        return -1;
    }
    for (i = 0; i < count; i++) {
        if (share[i].error) {
            snprintf(why, WHY_SIZE, "%s: %s", share[i].server, strerror(-share[i].error));
            return -1;
        }
    }
    return 0;
}

int tcp_copy(bool put, const char *path, const char *name, char *const *servers, unsigned count,
             char *why)
{
    struct share share[MAX_SERVERS];
    struct target target = {.fd = -1};
    struct stat stat = {.st_size = 0};
    unsigned i;
    int rc, file = -1;

    if (put)
        file = open_source(path, &stat, why);
    else if (target_find(&target, path, name, why, WHY_SIZE) &&
             target_open(&target, why, WHY_SIZE))
        file = target.fd;
    if (file < 0)
        return -1;
    for (i = 0; i < count; i++)
        share[i] = (struct share){.put = put,
                                  .file = file,
                                  .size = (uint64_t)stat.st_size,
                                  .name = name,
                                  .server = servers[i],
                                  .index = i,
                                  .count = count};
    rc = run_shares(share, count, why);
    if (!rc && !put && !target_finish(&target, 0644, false, why, WHY_SIZE))
        rc = -1;
    if (put)
        close(file);
    target_close(&target);
    return rc;
}
