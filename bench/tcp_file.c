/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files over plain TCP. A connection carries any number of requests, each answered before the
 * next; numbers are 64-bit, little-endian:
 *
 *   client                                                            server
 *   1, length of the name, bytes; name; the bytes of the whole file ->
 *                                       <-  0 or an errno, when all is stored
 *   2, length of the name, 0; name      ->
 *                                       <-  0 or an errno, bytes; the data
 */
#include "bench/tcp.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bench/sockets.h"
#include "bench/transport.h"
#include "embedded/iod/target.h"

#define STRIP 65536
#define CHUNK (1 << 20) /* of the store */

enum { PUT = 1, GET };

struct request {
    uint64_t what, name_length, bytes;
};

struct answer {
    uint64_t error, bytes;
};

/* Moves `bytes` between file and socket, in strips of the file that begin `step` bytes
 * apart. */
static int move_strips(int file, int fd, bool to_socket, uint64_t bytes, uint64_t at,
                       uint64_t strip, uint64_t step)
{
    char *buffer = malloc(strip);
    int rc = buffer != NULL ? 0 : -ENOMEM;

    for (uint64_t n; !rc && bytes; bytes -= n, at += step) {
        n = bytes < strip ? bytes : strip;
        if (!to_socket)
            rc = sockets_receive(fd, buffer, n);
        for (uint64_t done = 0; !rc && done < n;) {
            ssize_t moved = to_socket
                                ? pread(file, buffer + done, n - done, (off_t)(at + done))
                                : pwrite(file, buffer + done, n - done, (off_t)(at + done));
            if (moved > 0)
                done += (uint64_t)moved;
            else if (moved == 0 || errno != EINTR)
                rc = moved ? -errno : -EIO;
        }
        if (!rc && to_socket)
            rc = sockets_send(fd, buffer, n);
    }
    free(buffer);
    return rc;
}

/* ---- The store. Functions return 0, or an error that ends the connection. ---- */

static int answer(int fd, int error, uint64_t bytes)
{
    struct answer answer = {htole64((uint64_t)-error), htole64(bytes)};

    return sockets_send(fd, &answer, sizeof answer);
}

/* Stores a file; removes an incomplete one. */
static int serve_put(int fd, int folder, const char *name, uint64_t bytes)
{
    int file =
        openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    int rc = file < 0 ? -errno : move_strips(file, fd, false, bytes, 0, CHUNK, CHUNK);

    if (file >= 0 && close(file) && !rc)
        rc = -errno;
    if (rc && file >= 0)
        unlinkat(folder, name, 0);
    return answer(fd, rc, 0) ? -1 : rc;
}

static int serve_get(int fd, int folder, const char *name)
{
    int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat stat;
    int failed = file < 0 || fstat(file, &stat) ? -errno : 0;
    uint64_t bytes = failed ? 0 : (uint64_t)stat.st_size;
    int rc = answer(fd, failed, bytes); /* further requests are possible */

    if (!rc)
        rc = move_strips(file, fd, true, bytes, 0, CHUNK, CHUNK);
    if (file >= 0)
        close(file);
    return rc;
}

static int serve_one(int fd, int folder)
{
    struct request request;
    char name[256];
    uint64_t length;

    if (sockets_wait(fd) || sockets_receive(fd, &request, sizeof request))
        return -1;
    length = le64toh(request.name_length);
    if (!length || length >= sizeof name || sockets_receive(fd, name, length))
        return -1;
    name[length] = 0;
    if (strlen(name) != length || strchr(name, '/') != NULL || !strcmp(name, ".") ||
        !strcmp(name, "..")) {
        answer(fd, -EINVAL, 0);
        return -1;
    }
    if (le64toh(request.what) == PUT)
        return serve_put(fd, folder, name, le64toh(request.bytes));
    return le64toh(request.what) == GET ? serve_get(fd, folder, name) : -1;
}

static void serve(int fd, void *arg)
{
    while (!serve_one(fd, *(int *)arg))
        ;
}

int tcp_store(const char *address, const char *folder, char *why)
{
    static int store; /* used by threads that outlive the listener */

    store = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store < 0) {
        snprintf(why, WHY_SIZE, "%s: %s", folder, strerror(errno));
        return -1;
    }
    return sockets_serve(address, serve, &store, why);
}

/* ---- The client ---- */

/* One server's share of a copy. */
struct share {
    bool put, started;
    int file;
    uint64_t size; /* of the whole file, of a put */
    const char *name, *server;
    unsigned index, count; /* of the server */
    int error;
    pthread_t thread;
};

/* Returns the bytes of a file in the strips of the share's server. */
static uint64_t share_bytes(const struct share *share)
{
    uint64_t strips = share->size / STRIP, rest = share->size % STRIP;

    return strips / share->count * STRIP + (share->index < strips % share->count ? STRIP : 0) +
           (share->index == strips % share->count ? rest : 0);
}

static int copy_share(const struct share *share, int fd)
{
    uint64_t bytes = share->put ? share_bytes(share) : 0, first = share->index * STRIP;
    uint64_t step = (uint64_t)share->count * STRIP;
    struct request request = {htole64(share->put ? PUT : GET), htole64(strlen(share->name)),
                              htole64(bytes)};
    struct answer answer;
    int rc = sockets_send(fd, &request, sizeof request);

    if (!rc)
        rc = sockets_send(fd, share->name, strlen(share->name));
    if (!rc && share->put)
        rc = move_strips(share->file, fd, true, bytes, first, STRIP, step);
    if (!rc)
        rc = sockets_receive(fd, &answer, sizeof answer);
    if (!rc)
        rc = -(int)le64toh(answer.error);
    if (!rc && !share->put)
        rc = move_strips(share->file, fd, false, le64toh(answer.bytes), first, STRIP, step);
    return rc;
}

static void *share_thread(void *arg)
{
    struct share *share = arg;
    int fd;

    share->error = sockets_connect(share->server, &fd);
    if (!share->error) {
        share->error = copy_share(share, fd);
        close(fd);
    }
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

/* Runs all shares. */
static int run_shares(struct share *share, unsigned count, char *why)
{
    for (unsigned i = 0; i < count; i++) {
        share[i].error = -EAGAIN; /* no thread */
        share[i].started = !pthread_create(&share[i].thread, NULL, share_thread, &share[i]);
    }
    for (unsigned i = 0; i < count; i++)
        if (share[i].started)
            pthread_join(share[i].thread, NULL);
    for (unsigned i = 0; i < count; i++) {
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
    int rc, file = -1;

    if (put)
        file = open_source(path, &stat, why);
    else if (target_find(&target, path, name, why, WHY_SIZE) &&
             target_open(&target, why, WHY_SIZE))
        file = target.fd;
    if (file < 0)
        return -1;
    for (unsigned i = 0; i < count; i++)
        share[i] = (struct share){.put = put,
                                  .file = file,
                                  .size = (uint64_t)stat.st_size,
                                  .name = name,
                                  .server = servers[i],
                                  .index = i,
                                  .count = count};
    rc = run_shares(share, count, why);
    if (!rc && !put && !target_finish(&target, 0644, why, WHY_SIZE))
        rc = -1;
    if (put)
        close(file);
    target_close(&target);
    return rc;
}
