/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Measures what can be measured without a peer: the copy rate and registration.  The best of a
 * few runs counts. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fabric.h"
#include "plan/plan.h"

#define BUDGET_NS  18e6 /* for everything; the promise in the header is 20 ms */
#define COPY_BYTES ((size_t)1 << 20)
#define REG_PAGES  256u
#define RUNS       8

static double now_ns(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

/* Best time to copy, in nanoseconds per byte; 0 when nothing could be measured. */
static double measure_copy(char *from, char *to, double end)
{
    double best = 0;

    for (int run = 0; run < RUNS && now_ns() < end; run++) {
        double start = now_ns(), took;

        memcpy(to, from, COPY_BYTES);
        __asm__ volatile("" : : "r"(to) : "memory"); /* the copy is not for nothing */
        took = now_ns() - start;
        if (best == 0 || took < best)
            best = took;
    }
    return best / (double)COPY_BYTES;
}

/* Best time of registration and deregistration of some bytes; 0: refused or out of time. */
static double measure_reg(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                          void *base, size_t length, double end)
{
    double best = 0;

    for (int run = 0; run < RUNS && now_ns() < end; run++) {
        double start = now_ns(), took;
        struct rme_mr mr;

        if (ops->reg(fabric, base, length, RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE,
                     &mr) != 0)
            return 0;
        ops->dereg(fabric, &mr);
        took = now_ns() - start;
        if (best == 0 || took < best)
            best = took;
    }
    return best;
}

void rme_costs_measure(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                       struct rme_costs *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    double end = now_ns() + BUDGET_NS, copy, one, many;
    char *memory;

    *out = rme_costs_preset;
    memory =
        mmap(NULL, 2 * COPY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    memset(memory, 1, 2 * COPY_BYTES);
    copy = measure_copy(memory, memory + COPY_BYTES, now_ns() + BUDGET_NS / 3);
    if (copy > 0)
        out->copy_byte = copy;
    one = measure_reg(ops, fabric, memory, page, now_ns() + BUDGET_NS / 3);
    many = measure_reg(ops, fabric, memory, REG_PAGES * page, end);
    if (one > 0 && many > 0) {
        out->reg_page = many > one ? (many - one) / (REG_PAGES - 1) : 0;
        out->reg_call = one > out->reg_page ? one - out->reg_page : one;
    }
    munmap(memory, 2 * COPY_BYTES);
}
