/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * files.h - a client of file servers, over BMI (bmi-iod) or plain TCP (tcp_store.h), with one
 * session for all calls. Functions return false, or NULL, at the first failure, with the reason
 * in `why`.
 */
#ifndef BENCH_FILES_H
#define BENCH_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILES_STRIP  UINT64_C(65536) /* bytes of a strip of a file on several servers */
#define FILES_PIECES 256             /* pieces of one request */
#define FILES_BYTES  (512u << 10)    /* bytes of one request, on one server */

/* A range of a file and its memory. Pieces of a request are sorted by offset. */
struct files_piece {
    uint64_t offset, length;
    char *memory;
};

struct files;

struct files_ops {
    /* Small files, each on one server. `id` is the argument of remove(). */
    bool (*make)(struct files *files, const char *name, char *data, size_t size, uint64_t *id);
    bool (*look)(struct files *files, const char *name, uint64_t *size);
    bool (*read)(struct files *files, const char *name, char *data, size_t size);
    bool (*remove)(struct files *files, const char *name, uint64_t id);

    /* A file of `size` bytes, striped over all servers: written or read, between begin and end,
     * by requests with one data message for each server. */
    bool (*begin)(struct files *files, const char *name, uint64_t size, bool writes);
    bool (*move)(struct files *files, const struct files_piece *piece, unsigned count);
    bool (*end)(struct files *files);

    void (*close)(struct files *files);
};

struct files {
    const struct files_ops *ops;
    unsigned servers;
    char why[1024];
};

struct files_config {
    char *const *server;
    unsigned servers;
    const char *options; /* for BMI; may be NULL */
    bool steps;          /* TCP: as many requests and replies as bmi-iod's protocol */
};

struct files *files_open_iod(const struct files_config *config, char *why, size_t size);
struct files *files_open_tcp(const struct files_config *config, char *why, size_t size);

/* Returns the index of the server of a small file. */
unsigned files_home(const struct files *files, const char *name);

/* Returns the part of a piece in one strip, with its server and its offset there; advances the
 * piece. */
struct files_piece files_cut(const struct files *files, struct files_piece *piece,
                             unsigned *server);

#endif
