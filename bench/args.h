/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Command line of bmi-perf. */
#ifndef BENCH_ARGS_H
#define BENCH_ARGS_H

#include <stdbool.h>
#include "bench/job.h"

#define MAX_SIZES 64

struct args {
    const char *mode; /* "": none */
    uint64_t sizes[MAX_SIZES];
    unsigned nsizes; /* 0: default of the mode */
    /* 0: default of the mode */
    uint64_t count, warm, window, buffers, extent, stride, split, reply;
    uint64_t pool, reuse, holes;
    bool alone, pack;
    uint64_t server_memory; /* bytes for all clients */
    bool warm_given;
    unsigned clients, rounds, seconds;
    enum job_direction direction;
    enum job_memory memory;
    bool direction_given, verify, both, unexpected, json, counters, session, options;
    const char *test;        /* mode compare: its test */
    const char *bmi_options; /* for BMI; NULL: none */
    const char *explain;     /* SIZE[xN]; NULL: none */
    const char *report;      /* mode doctor: a file for its lines; NULL: none */
    char **positional;       /* arguments after the mode */
    unsigned npositional;
};

/* Returns 0; 1 after printing help; -1 after one line on standard error. */
int args_parse(struct args *args, int argc, char **argv);

#endif
