/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The measuring modes of bmi-perf.  Each returns the exit status. */
#ifndef BENCH_MODES_H
#define BENCH_MODES_H

#include "bench/args.h"

/* lat, bw, rate, list, tcp-lat, tcp-bw, compare. */
int mode_measure(const struct args *args);

/* Measures the processor time of servers while clients are connected and idle. */
int mode_idle(const struct args *args);

#endif
