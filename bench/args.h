/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line of bmi-perf. */
#ifndef BENCH_ARGS_H
#define BENCH_ARGS_H

#include <stdbool.h>
#include "bench/job.h"

#define MAX_SIZES 64

struct args {
    const char *mode; /* "" when there was none */
    uint64_t sizes[MAX_SIZES];
    unsigned nsizes;                                                     /* 0: the mode's own */
    uint64_t count, warm, window, buffers, extent, stride, split, reply; /* 0: the mode's own */
    uint64_t pool, reuse, holes;
    bool alone;
    uint64_t server_memory; /* bytes for all clients */
    bool warm_given;
    unsigned clients, rounds, seconds;
    enum job_direction direction;
    enum job_memory memory;
    bool direction_given, verify, both, unexpected, json, counters, session, options;
    const char *test;        /* of compare */
    const char *bmi_options; /* for BMI */
    const char *explain;     /* SIZE[xN] */
    char **positional;       /* what follows the mode */
    unsigned npositional;
};

/* 0; 1 when help was printed; -1 with a line on standard error. */
int args_parse(struct args *args, int argc, char **argv);

/* "64K", "1M", "300": bytes.  False when it is no such number. */
bool args_size(const char *text, uint64_t *value);

#endif
