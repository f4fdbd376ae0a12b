/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * files_work.h - work of one client of bench/files. All data read is compared with the data
 * written, which is derived from the seed. Functions return false at the first failure, with a
 * line in files->why.
 */
#ifndef BENCH_FILES_WORK_H
#define BENCH_FILES_WORK_H

#include "bench/files.h"

enum files_mode {
    FILES_POSTMARK,
    FILES_FILEOP,
    FILES_TILES,
    FILES_PIECEWISE,
    FILES_ROWS,
    FILES_REGIONS,
    FILES_MODES
};

#define FILES_FIGURES 5

struct work {
    struct files *files;
    enum files_mode mode;
    unsigned client, clients;
    unsigned count;        /* files of the pool, rows of a tile, pieces of a client */
    unsigned transactions; /* postmark */
    unsigned batch;        /* rows or pieces of one request */
    uint64_t apart;        /* from row to row in memory */
    size_t size;           /* bytes of a small file */
    bool append;           /* postmark: writes append; else they rewrite the whole file */
    bool writes;           /* tiles, pieces, rows, regions */
    uint64_t seed;

    /* Called after the preparation, and after the timed part. */
    void (*begin)(void *arg);
    void (*end)(void *arg, unsigned figure, uint64_t done);
    void *arg;
};

/* Makes a pool of small files, runs the transactions, removes the pool. Figure 0:
 * transactions. */
bool work_postmark(struct work *work);

/* Makes files, opens, reads, rewrites and removes them. Figures 0 to 4: files. */
bool work_fileop(struct work *work);

/* Accesses parts of a file that is striped over the servers. Figure 0: bytes. */
bool work_pattern(struct work *work);

#endif
