/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files over plain TCP; see tcp_file.h. */
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
#include "bench/transport.h"

#define STRIP      65536
#define NAME_LIMIT 255
#define BUFFER     (1 << 20) /* of a server's reads and writes */

enum { PUT = 1, GET = 2 };

struct request {
    uint64_t what, name_length, bytes; /* little-endian on the wire */
};

struct answer {
    uint64_t error, bytes;
};

static int full_write(int fd, const char *data, size_t size, off_t offset)
{
    while (size) {
        ssize_t n = pwrite(fd, data, size, offset);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            data += n;
            offset += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

/* -EIO when the file ends early. */
static int full_read(int fd, char *data, size_t size, off_t offset)
{
    while (size) {
        ssize_t n = pread(fd, data, size, offset);
        if (n == 0)
            return -EIO;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            data += n;
            offset += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

/* ---- The server ---- */

static int send_answer(int fd, int error, uint64_t bytes)
{
    struct answer answer = {htole64((uint64_t)-error), htole64(bytes)};

    return sockets_send(fd, &answer, sizeof answer);
}

/* Takes `bytes` from the socket into a file; a file that is not complete is removed. */
static void store_put(int fd, int folder, const char *name, uint64_t bytes)
{
    char *buffer = malloc(BUFFER);
    int file =
        openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    int rc = file < 0 ? -errno : buffer ? 0 : -ENOMEM;
    uint64_t at, n;

    for (at = 0; !rc && at < bytes; at += n) {
        n = bytes - at < BUFFER ? bytes - at : BUFFER;
        rc = sockets_receive(fd, buffer, n);
        if (!rc)
            rc = full_write(file, buffer, n, (off_t)at);
    }
    if (file >= 0 && close(file) && !rc)
        rc = -errno;
    if (rc && file >= 0)
        unlinkat(folder, name, 0);
    free(buffer);
    send_answer(fd, rc, 0);
}

static void store_get(int fd, int folder, const char *name)
{
    char *buffer = malloc(BUFFER);
    int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat stat;
    int rc = file < 0 || fstat(file, &stat) ? -errno : buffer ? 0 : -ENOMEM;
    uint64_t at, n, bytes = rc ? 0 : (uint64_t)stat.st_size;

    rc = send_answer(fd, rc, bytes) ? -1 : rc;
    for (at = 0; !rc && at < bytes; at += n) {
        n = bytes - at < BUFFER ? bytes - at : BUFFER;
        rc = full_read(file, buffer, n, (off_t)at);
        if (!rc)
            rc = sockets_send(fd, buffer, n);
    }
    if (file >= 0)
        close(file);
    free(buffer);
}

static void store_serve(int fd, void *arg)
{
    int folder = *(int *)arg;
    struct request request;
    char name[NAME_LIMIT + 1];
    uint64_t length;

    if (sockets_receive(fd, &request, sizeof request))
        return;
    length = le64toh(request.name_length);
    if (!length || length > NAME_LIMIT || sockets_receive(fd, name, length))
        return;
    name[length] = 0;
    if (strlen(name) != length || strchr(name, '/') || !strcmp(name, ".") ||
        !strcmp(name, ".."))
        send_answer(fd, -EINVAL, 0);
    else if (le64toh(request.what) == PUT)
        store_put(fd, folder, name, le64toh(request.bytes));
    else if (le64toh(request.what) == GET)
        store_get(fd, folder, name);
}

int tcp_store(const char *address, const char *folder, char *why)
{
    int listener, rc, store = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (store < 0) {
        snprintf(why, WHY_SIZE, "%s: %s", folder, strerror(errno));
        return -1;
    }
    rc = sockets_listen(address, &listener);
    if (rc) {
        snprintf(why, WHY_SIZE, "%s: cannot listen: %s", address, strerror(-rc));
        close(store);
        return -1;
    }
    printf("listening on %s\n", address);
    fflush(stdout);
    sockets_serve(listener, store_serve, &store);
    close(listener);
    close(store);
    return 0;
}

/* ---- The client ---- */

/* One server's share of a copy. */
struct share {
    bool put;
    int file;
    uint64_t size; /* of the whole file; out of a get, of this share */
    const char *name, *server;
    unsigned index, count; /* of the server */
    int error;
    pthread_t thread;
};

/* Bytes of a file of `size` that lie in the strips of server `index` of `count`. */
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
            rc = full_read(share->file, buffer, n, (off_t)(strip * STRIP));
            if (!rc)
                rc = sockets_send(fd, buffer, n);
        } else {
            rc = sockets_receive(fd, buffer, n);
            if (!rc)
                rc = full_write(share->file, buffer, n, (off_t)(strip * STRIP));
        }
    }
    free(buffer);
    return rc;
}

static int copy_share(struct share *share, int fd)
{
    uint64_t bytes = share->put ? share_bytes(share->size, share->index, share->count) : 0;
    struct request request = {htole64(share->put ? PUT : GET), htole64(strlen(share->name)),
                              htole64(bytes)};
    struct answer answer;
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

/* Runs all shares; 0, or -1 with `why`. */
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
    struct stat stat;
    unsigned i;
    int rc, file = put ? open(path, O_RDONLY | O_CLOEXEC)
                       : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (file < 0 || fstat(file, &stat)) {
        snprintf(why, WHY_SIZE, "%s: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
        return -1;
    }
    for (i = 0; i < count; i++)
        share[i] = (struct share){.put = put,
                                  .file = file,
                                  .size = (uint64_t)stat.st_size,
                                  .name = name,
                                  .server = servers[i],
                                  .index = i,
                                  .count = count};
    rc = run_shares(share, count, why);
    if (close(file) && !rc) {
        snprintf(why, WHY_SIZE, "%s: %s", path, strerror(errno));
        rc = -1;
    }
    if (rc && !put)
        unlink(path);
    return rc;
}
