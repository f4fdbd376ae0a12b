/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A store of files over plain TCP; see tcp_store.h. */
#include "bench/tcp_store.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bench/sockets.h"
#include "bench/transport.h"
#include "embedded/program/program.h"

/* State of a client. */
struct guest {
    int fd, folder;
    char name[TCP_STORE_NAME + 1];   /* of the request */
    char listed[TCP_STORE_NAME + 1]; /* name of the file open for lists, or "" */
    int file;
    struct tcp_store_extent extent[TCP_STORE_EXTENTS];
    char data[TCP_STORE_DATA];
};

int tcp_store_write(int fd, const char *data, size_t size, off_t offset)
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

int tcp_store_read(int fd, char *data, size_t size, off_t offset)
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

/* Sends the reply and its data. */
static int answer(struct guest *g, int error, uint64_t bytes, size_t data)
{
    struct tcp_store_answer head = {htole64((uint64_t)-error), htole64(bytes)};
    struct iovec iov[] = {{&head, sizeof head}, {g->data, data}};

    return sockets_send_list(g->fd, iov, data ? 2 : 1);
}

static size_t chunk(uint64_t left)
{
    return left < TCP_STORE_DATA ? (size_t)left : TCP_STORE_DATA;
}

/* The following functions return 0, or an error that ends the connection. */

/* Stores a file; removes an incomplete one. */
static int put(struct guest *g, uint64_t bytes)
{
    int file =
        openat(g->folder, g->name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    int rc = file < 0 ? -errno : 0;
    uint64_t at, n;

    for (at = 0; !rc && at < bytes; at += n) {
        n = chunk(bytes - at);
        rc = sockets_receive(g->fd, g->data, n);
        if (!rc)
            rc = tcp_store_write(file, g->data, n, (off_t)at);
    }
    if (file >= 0 && close(file) && !rc)
        rc = -errno;
    if (rc && file >= 0)
        unlinkat(g->folder, g->name, 0);
    return answer(g, rc, 0, 0) ? -1 : rc;
}

static int get(struct guest *g)
{
    int file = openat(g->folder, g->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat stat;
    int rc = file < 0 || fstat(file, &stat) ? -errno : 0;
    uint64_t at = 0, bytes = rc ? 0 : (uint64_t)stat.st_size;
    size_t n = chunk(bytes);

    if (!rc)
        rc = tcp_store_read(file, g->data, n, 0);
    if (rc) { /* further requests are possible */
        rc = answer(g, rc, 0, 0);
        bytes = 0;
    } else {
        rc = answer(g, 0, bytes, n);
    }
    for (at = n; !rc && at < bytes; at += n) {
        n = chunk(bytes - at);
        rc = tcp_store_read(file, g->data, n, (off_t)at);
        if (!rc)
            rc = sockets_send(g->fd, g->data, n);
    }
    if (file >= 0)
        close(file);
    return rc;
}

static int size(struct guest *g)
{
    struct stat stat;
    int rc = fstatat(g->folder, g->name, &stat, AT_SYMLINK_NOFOLLOW) ? -errno : 0;

    return answer(g, rc, rc ? 0 : (uint64_t)stat.st_size, 0);
}

static int remove_file(struct guest *g)
{
    return answer(g, unlinkat(g->folder, g->name, 0) ? -errno : 0, 0, 0);
}

/* Opens the file of a list, which stays open for the next one. */
static int open_listed(struct guest *g, bool writes)
{
    if (g->file >= 0 && strcmp(g->listed, g->name) == 0)
        return 0;
    if (g->file >= 0)
        close(g->file);
    g->file = openat(g->folder, g->name,
                     (writes ? O_CREAT : 0) | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0644);
    memcpy(g->listed, g->name, sizeof g->listed);
    return g->file < 0 ? -errno : 0;
}

static int list(struct guest *g, uint64_t count, bool writes)
{
    uint64_t total = 0, at = 0;
    int rc;

    if (count > TCP_STORE_EXTENTS ||
        sockets_receive(g->fd, g->extent, count * sizeof g->extent[0]))
        return -1;
    for (uint64_t i = 0; i < count; i++) {
        g->extent[i].offset = le64toh(g->extent[i].offset);
        g->extent[i].length = le64toh(g->extent[i].length);
        if (g->extent[i].length > TCP_STORE_DATA - total || g->extent[i].offset >> 62)
            return -1;
        total += g->extent[i].length;
    }
    if (writes && sockets_receive(g->fd, g->data, total))
        return -1;
    rc = open_listed(g, writes);
    for (uint64_t i = 0; !rc && i < count; i++) {
        const struct tcp_store_extent *e = &g->extent[i];

        rc = writes ? tcp_store_write(g->file, g->data + at, e->length, (off_t)e->offset)
                    : tcp_store_read(g->file, g->data + at, e->length, (off_t)e->offset);
        at += e->length;
    }
    return answer(g, rc, rc ? 0 : total, rc || writes ? 0 : total);
}

/* Serves the next request; an invalid name ends the connection. */
static int serve_one(struct guest *g)
{
    struct tcp_store_request request;
    uint64_t length;

    if (sockets_wait(g->fd) || sockets_receive(g->fd, &request, sizeof request))
        return -1;
    length = le64toh(request.name_length);
    if (!length || length > TCP_STORE_NAME || sockets_receive(g->fd, g->name, length))
        return -1;
    g->name[length] = 0;
    if (strlen(g->name) != length || strchr(g->name, '/') || !strcmp(g->name, ".") ||
        !strcmp(g->name, "..")) {
        answer(g, -EINVAL, 0, 0);
        return -1;
    }
    switch (le64toh(request.what)) {
    case TCP_STORE_PUT:
        return put(g, le64toh(request.bytes));
    case TCP_STORE_GET:
        return get(g);
    case TCP_STORE_SIZE:
        return size(g);
    case TCP_STORE_REMOVE:
        return remove_file(g);
    case TCP_STORE_NOTHING:
        return answer(g, 0, 0, 0);
    case TCP_STORE_PUT_LIST:
        return list(g, le64toh(request.bytes), true);
    case TCP_STORE_GET_LIST:
        return list(g, le64toh(request.bytes), false);
    }
    return -1;
}

static void serve(int fd, void *arg)
{
    struct guest *g = malloc(sizeof *g);

    if (!g)
        return;
    g->fd = fd;
    g->folder = *(int *)arg;
    g->file = -1;
    while (!serve_one(g))
        ;
    if (g->file >= 0)
        close(g->file);
    free(g);
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
    printf("listening on %s, port %d\n", address, sockets_port(listener));
    fflush(stdout);
    program_notify("READY=1\nSTATUS=listening on %s, port %d", address, sockets_port(listener));
    sockets_serve(listener, serve, &store);
    close(listener);
    close(store);
    return 0;
}
