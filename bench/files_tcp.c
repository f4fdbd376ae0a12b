/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files on a store over plain TCP (tcp_store.h), with one connection per server. Each operation
 * is one request; with `steps` empty requests precede it, so that the number equals that of
 * bmi-iod's protocol.
 */
#include "bench/files.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/sockets.h"
#include "bench/tcp_store.h"

struct tcp_part {
    int fd;
    struct tcp_store_extent extent[2 * FILES_PIECES];
    struct iovec memory[2 * FILES_PIECES];
    unsigned count;
    uint64_t bytes;
};

struct tcp_files {
    struct files files;
    bool steps, writes;
    char name[TCP_STORE_NAME + 1]; /* of the striped file */
    const struct files_config *config;
    struct tcp_part *part;
};

static struct tcp_files *of(struct files *files)
{
    return (struct tcp_files *)files;
}

static bool failed(struct tcp_files *f, unsigned i, int error)
{
    snprintf(f->files.why, sizeof f->files.why, "%s: %s", f->config->server[i],
             strerror(-error));
    return false;
}

/* Sends a request with name and data in one call. */
static int ask(struct tcp_files *f, unsigned i, unsigned what, const char *name, uint64_t bytes,
               const void *data, size_t size)
{
    struct tcp_store_request request = {htole64(what), htole64(strlen(name)), htole64(bytes)};
    struct iovec iov[] = {{&request, sizeof request},
                          {(void *)(uintptr_t)name, strlen(name)},
                          {(void *)(uintptr_t)data, size}};

    return sockets_send_list(f->part[i].fd, iov, size ? 3 : 2);
}

static int answer(struct tcp_files *f, unsigned i, uint64_t *bytes)
{
    struct tcp_store_answer answer;
    int rc = sockets_receive(f->part[i].fd, &answer, sizeof answer);

    if (rc)
        return rc;
    *bytes = le64toh(answer.bytes);
    return -(int)le64toh(answer.error);
}

/* Sends empty requests and receives their replies, if `steps`. */
static int step(struct tcp_files *f, unsigned i, unsigned count)
{
    uint64_t bytes;
    int rc = 0;

    for (unsigned k = 0; !rc && f->steps && k < count; k++) {
        rc = ask(f, i, TCP_STORE_NOTHING, "-", 0, NULL, 0);
        if (!rc)
            rc = answer(f, i, &bytes);
    }
    return rc;
}

static int step_all(struct tcp_files *f, unsigned count)
{
    uint64_t bytes;
    int rc = 0;

    for (unsigned k = 0; f->steps && k < count; k++) {
        for (unsigned i = 0; !rc && i < f->files.servers; i++)
            rc = ask(f, i, TCP_STORE_NOTHING, "-", 0, NULL, 0);
        for (unsigned i = 0; !rc && i < f->files.servers; i++)
            rc = answer(f, i, &bytes);
    }
    return rc;
}

static bool make(struct files *files, const char *name, char *data, size_t size, uint64_t *id)
{
    struct tcp_files *f = of(files);
    unsigned i = files_home(files, name);
    uint64_t bytes;
    int rc = step(f, i, 1);

    *id = 0;
    if (!rc)
        rc = ask(f, i, TCP_STORE_PUT, name, size, data, size);
    if (!rc)
        rc = answer(f, i, &bytes);
    if (!rc)
        rc = step(f, i, 2);
    return !rc || failed(f, i, rc);
}

static bool look(struct files *files, const char *name, uint64_t *size)
{
    struct tcp_files *f = of(files);
    unsigned i = files_home(files, name);
    int rc = ask(f, i, TCP_STORE_SIZE, name, 0, NULL, 0);

    if (!rc)
        rc = answer(f, i, size);
    if (!rc)
        rc = step(f, i, 1);
    return !rc || failed(f, i, rc);
}

static bool read_whole(struct files *files, const char *name, char *data, size_t size)
{
    struct tcp_files *f = of(files);
    unsigned i = files_home(files, name);
    uint64_t bytes = 0;
    int rc = step(f, i, 1);

    if (!rc)
        rc = ask(f, i, TCP_STORE_GET, name, 0, NULL, 0);
    if (!rc)
        rc = answer(f, i, &bytes);
    if (!rc && bytes != size) {
        snprintf(files->why, sizeof files->why, "%s has %llu bytes, not %zu", name,
                 (unsigned long long)bytes, size);
        return false;
    }
    if (!rc)
        rc = sockets_receive(f->part[i].fd, data, size);
    if (!rc)
        rc = step(f, i, 1);
    return !rc || failed(f, i, rc);
}

static bool remove_file(struct files *files, const char *name, uint64_t id)
{
    struct tcp_files *f = of(files);
    unsigned i = files_home(files, name);
    uint64_t bytes;
    int rc = ask(f, i, TCP_STORE_REMOVE, name, 0, NULL, 0);

    (void)id;
    if (!rc)
        rc = answer(f, i, &bytes);
    return !rc || failed(f, i, rc);
}

static bool begin(struct files *files, const char *name, uint64_t size, bool writes)
{
    struct tcp_files *f = of(files);
    uint64_t bytes;
    int rc = 0;

    (void)size;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->writes = writes;
    for (unsigned i = 0; !rc && i < files->servers; i++) /* a written file is a new one */
        rc = ask(f, i, writes ? TCP_STORE_PUT : TCP_STORE_SIZE, name, 0, NULL, 0);
    for (unsigned i = 0; !rc && i < files->servers; i++)
        rc = answer(f, i, &bytes);
    return !rc || failed(f, 0, rc);
}

static int ask_list(struct tcp_files *f, unsigned i)
{
    struct tcp_part *p = &f->part[i];
    int rc = ask(f, i, f->writes ? TCP_STORE_PUT_LIST : TCP_STORE_GET_LIST, f->name, p->count,
                 p->extent, p->count * sizeof p->extent[0]);

    return !rc && f->writes ? sockets_send_list(p->fd, p->memory, p->count) : rc;
}

static int answer_list(struct tcp_files *f, unsigned i)
{
    struct tcp_part *p = &f->part[i];
    uint64_t bytes = 0;
    int rc = answer(f, i, &bytes);

    if (!rc && bytes != p->bytes)
        return -EIO;
    return !rc && !f->writes ? sockets_receive_list(p->fd, p->memory, p->count) : rc;
}

static bool move(struct files *files, const struct files_piece *piece, unsigned count)
{
    struct tcp_files *f = of(files);
    int rc;

    for (unsigned i = 0; i < files->servers; i++)
        f->part[i].bytes = f->part[i].count = 0;
    for (unsigned k = 0; k < count; k++) {
        struct files_piece rest = piece[k];

        while (rest.length) {
            unsigned i;
            struct files_piece cut = files_cut(files, &rest, &i);
            struct tcp_part *p = &f->part[i];

            p->extent[p->count] =
                (struct tcp_store_extent){htole64(cut.offset), htole64(cut.length)};
            p->memory[p->count++] = (struct iovec){cut.memory, cut.length};
            p->bytes += cut.length;
        }
    }
    for (unsigned i = 0; i < files->servers; i++)
        if (f->part[i].count && (rc = ask_list(f, i)))
            return failed(f, i, rc);
    for (unsigned i = 0; i < files->servers; i++)
        if (f->part[i].count && (rc = answer_list(f, i)))
            return failed(f, i, rc);
    return true;
}

static bool end(struct files *files)
{
    struct tcp_files *f = of(files);
    int rc = step_all(f, f->writes ? 2 : 1);

    return !rc || failed(f, 0, rc);
}

static void close_files(struct files *files)
{
    struct tcp_files *f = of(files);

    for (unsigned i = 0; f->part && i < files->servers; i++)
        if (f->part[i].fd >= 0)
            close(f->part[i].fd);
    free(f->part);
    free(f);
}

static const struct files_ops ops = {.make = make,
                                     .look = look,
                                     .read = read_whole,
                                     .remove = remove_file,
                                     .begin = begin,
                                     .move = move,
                                     .end = end,
                                     .close = close_files};

struct files *files_open_tcp(const struct files_config *config, char *why, size_t size)
{
    struct tcp_files *f = calloc(1, sizeof *f);
    struct tcp_part *part = calloc(config->servers, sizeof *part);
    int rc = 0;

    if (!f || !part) {
        snprintf(why, size, "out of memory");
        free(f);
        free(part);
        return NULL;
    }
    f->files = (struct files){.ops = &ops, .servers = config->servers};
    f->config = config;
    f->part = part;
    f->steps = config->steps;
    for (unsigned i = 0; i < config->servers; i++)
        part[i].fd = -1;
    for (unsigned i = 0; !rc && i < config->servers; i++) {
        rc = sockets_connect(config->server[i], &part[i].fd);
        if (rc)
            snprintf(why, size, "%s: %s", config->server[i], strerror(-rc));
    }
    if (!rc)
        return &f->files;
    close_files(&f->files);
    return NULL;
}
