/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a server may hold for its clients: all jobs together within a limit, and each at most
 * half of it, so that no single client has all.  Any thread may call.
 */
#ifndef BENCH_BUDGET_H
#define BENCH_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BUDGET_DEFAULT ((uint64_t)1 << 30) /* bytes */

struct budget {
    uint64_t limit; /* bytes */
    _Atomic uint64_t used;
};

/* False: it would be too much, and nothing was taken. */
bool budget_take(struct budget *budget, uint64_t bytes);
void budget_give(struct budget *budget, uint64_t bytes);

#endif
