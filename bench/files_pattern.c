/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parts of a striped file, by requests of several ranges; see files_work.h. All clients read
 * one file. Each client writes its own file, at the same offsets, because an object of
 * bmi-iod belongs to one client until it is complete.
 */
#include "bench/files_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ranges of a client. */
struct pattern {
    uint64_t first, length, stride; /* in the file */
    uint64_t apart;                 /* distance of ranges in memory */
    uint64_t size;                  /* of the file */
};

/* Returns the ranges. Tiles, 2 x 2: a row is 1024 elements of 24 bytes, contiguous in memory.
 * Pieces: as in BT-IO, class A: interleaved by client, also with gaps in memory. Rows: half of
 * each row of 2048 integers of 4 bytes in memory. Regions: contiguous in memory and file. */
static struct pattern pattern_of(const struct work *w)
{
    const uint64_t row = 24576, piece = 2560, half = 4096;
    const uint64_t part = (uint64_t)FILES_BYTES * w->files->servers;

    if (w->mode == FILES_TILES)
        return (struct pattern){.first =
                                    w->client / 2 * w->count * 2 * row + w->client % 2 * row,
                                .length = row,
                                .stride = 2 * row,
                                .apart = row,
                                .size = (w->clients + 1) / 2 * w->count * 2 * row};
    if (w->mode == FILES_ROWS)
        return (struct pattern){
            .length = half, .stride = half, .apart = w->apart, .size = w->count * half};
    if (w->mode == FILES_REGIONS)
        return (struct pattern){.first = w->client * w->count * part,
                                .length = part,
                                .stride = part,
                                .apart = part,
                                .size = w->clients * w->count * part};
    return (struct pattern){.first = w->client * piece,
                            .length = piece,
                            .stride = w->clients * piece,
                            .apart = 2 * piece,
                            .size = w->clients * w->count * piece};
}

static uint64_t word(const struct work *w, uint64_t offset)
{
    return (w->seed + offset) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(const struct work *w, char *data, uint64_t offset, uint64_t length)
{
    for (uint64_t at = 0; at < length; at += 8) {
        uint64_t x = word(w, offset + at);
        memcpy(data + at, &x, 8);
    }
}

static bool has(const struct work *w, const char *data, uint64_t offset, uint64_t length)
{
    for (uint64_t at = 0; at < length; at += 8) {
        uint64_t x = word(w, offset + at);
        if (memcmp(data + at, &x, 8) != 0)
            return false;
    }
    return true;
}

/* Moves all ranges of this client, `batch` of them per request. */
static bool move_all(struct work *w, const struct pattern *p, const char *name, char *memory,
                     bool writes)
{
    struct files *f = w->files;
    struct files_piece piece[FILES_PIECES];
    bool good = f->ops->begin(f, name, p->size, writes);

    for (unsigned i = 0; good && i < w->count; i += w->batch) {
        unsigned n = w->count - i < w->batch ? w->count - i : w->batch;

        for (unsigned k = 0; k < n; k++)
            piece[k] = (struct files_piece){p->first + (i + k) * p->stride, p->length,
                                            memory + (i + k) * p->apart};
        good = f->ops->move(f, piece, n);
    }
    return good && f->ops->end(f);
}

/* Writes the file that all clients read. */
static bool make_whole(struct work *w, const struct pattern *p, const char *name)
{
    struct files *f = w->files;
    char *memory = malloc(FILES_BYTES);
    bool good = memory && f->ops->begin(f, name, p->size, true);
    uint64_t at, n;

    for (at = 0; good && at < p->size; at += n) {
        struct files_piece piece = {.offset = at, .memory = memory};

        n = p->size - at < FILES_BYTES ? p->size - at : FILES_BYTES;
        piece.length = n;
        fill(w, memory, at, n);
        good = f->ops->move(f, &piece, 1);
    }
    free(memory);
    return good && f->ops->end(f);
}

static bool check(struct work *w, const struct pattern *p, const char *memory)
{
    for (unsigned i = 0; i < w->count; i++) {
        if (has(w, memory + i * p->apart, p->first + i * p->stride, p->length))
            continue;
        snprintf(w->files->why, sizeof w->files->why, "range %u of client %u is wrong", i,
                 w->client);
        return false;
    }
    return true;
}

bool work_pattern(struct work *w)
{
    struct pattern p = pattern_of(w);
    const char *what = w->mode == FILES_TILES     ? "tiles"
                       : w->mode == FILES_ROWS    ? "rows"
                       : w->mode == FILES_REGIONS ? "regions"
                                                  : "pieces";
    char *memory = calloc(w->count, p.apart);
    char name[40];
    bool good = memory;

    if (w->writes)
        snprintf(name, sizeof name, "%s-%u", what, w->client);
    else
        snprintf(name, sizeof name, "%s", what);
    for (unsigned i = 0; good && i < w->count; i++)
        if (w->writes)
            fill(w, memory + i * p.apart, p.first + i * p.stride, p.length);
        else
            memset(memory + i * p.apart, 1, p.length); /* allocates the pages */
    if (good && !w->writes && w->client == 0)
        good = make_whole(w, &p, name);
    if (good && w->mode == FILES_ROWS && w->writes) /* the memory has been used before */
        good = move_all(w, &p, name, memory, true);
    if (good)
        w->begin(w->arg);
    good = good && move_all(w, &p, name, memory, w->writes);
    if (good)
        w->end(w->arg, 0, w->count * p.length);
    if (good && w->writes) {
        memset(memory, 0, w->count * p.apart);
        good = move_all(w, &p, name, memory, false);
    }
    good = good && check(w, &p, memory);
    free(memory);
    return good;
}
