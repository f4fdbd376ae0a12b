/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Limit of a server's memory for all jobs together. A job gets half of it at most, so that one
 * client cannot take all. Any thread may call. */
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

/* Takes bytes; false, and nothing is taken, above the limit. */
bool budget_take(struct budget *budget, uint64_t bytes);
void budget_give(struct budget *budget, uint64_t bytes);

#endif
