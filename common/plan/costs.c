/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures what can be measured without a peer: copies and registrations; what a message takes
 * the fabric may know.  The best of a few runs counts.  A warm copy is one of memory that was
 * copied a moment ago.  A cold one is of memory that the processor's caches do not hold: it is
 * flushed from them where a program can do that, else it is the first pass over memory that was
 * written once.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric.h"
#include "base/timer.h"
#include "memory/mreg.h"
#include "plan/plan.h"
#include "plan/split.h"

#define BUDGET_NS  18e6 /* for everything but the first run of each */
#define COPY_BYTES ((size_t)1 << 20)
#define WARM_BYTES ((size_t)64 << 10)
#define LINE       64u
#define PIECES     512u /* of a list that is copied warm */
#define FOUND      32u  /* pieces of a list that is looked for */
#define REG_PAGES  256u
#define RUNS       8

/* Nanoseconds, to be subtracted: a double has them exactly for months. */
static double now_ns(void)
{
    return (double)rme_now_ns();
}

/* Takes memory out of the processor's caches, if that can be done. */
static void flush(const char *memory, size_t bytes)
{
#ifdef __x86_64__
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_ia32_clflush(memory + at);
    __builtin_ia32_mfence();
#else
    (void)memory;
    (void)bytes;
#endif
}

/* Best time to copy so many bytes, in nanoseconds per byte; it is done at least once. */
static double measure_copy(char *from, char *to, size_t bytes, bool cold, double end)
{
    double best = 0;

    for (int run = 0; run == 0 || (run < RUNS && now_ns() < end); run++) {
        double start, took;

        if (cold)
            flush(from, bytes);
        start = now_ns();
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory"); /* the copy is not for nothing */
        took = now_ns() - start;
        if (best == 0 || took < best)
            best = took;
    }
    return best / (double)bytes;
}

/* Best time to copy the same bytes as pieces of a list; it is done at least once. */
static double measure_list(char *from, char *to, double end)
{
    struct rme_seg list[PIECES];
    double best = 0;

    for (size_t i = 0; i < PIECES; i++)
        list[i] = (struct rme_seg){from + i * (WARM_BYTES / PIECES), WARM_BYTES / PIECES};
    for (int run = 0; run == 0 || (run < RUNS && now_ns() < end); run++) {
        double start = now_ns(), took;

        rme_seg_gather(list, PIECES, 0, to, WARM_BYTES);
        took = now_ns() - start;
        if (best == 0 || took < best)
            best = took;
    }
    return best;
}

/* Best time of registration and deregistration of some bytes; 0: refused. */
static double measure_reg(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                          void *base, size_t length, double end)
{
    double best = 0;

    for (int run = 0; run == 0 || (run < RUNS && now_ns() < end); run++) {
        double start = now_ns(), took;
        struct rme_mr mr;

        if (ops->reg(fabric, base, length,
                     RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE |
                         (ops->caps(fabric)->on_demand ? RME_ACCESS_DEMAND : 0),
                     &mr) != 0)
            return 0;
        ops->dereg(fabric, &mr);
        took = now_ns() - start;
        if (best == 0 || took < best)
            best = took;
    }
    return best;
}

/* What an adapter does in no time that can be seen keeps its preset. */
static void measure_pieces(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                           struct rme_costs *out)
{
    struct rme_piece_costs pieces;

    if (ops->measure == NULL || !ops->measure(fabric, &pieces))
        return;
    if (pieces.segment_ns > out->sge)
        out->sge = pieces.segment_ns;
    if (pieces.request_ns > out->post)
        out->post = pieces.request_ns;
    out->read = pieces.read_ns;
}

void rme_costs_measure(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                       bool measure, struct rme_costs *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    double end = now_ns() + BUDGET_NS, cold, warm, list, one, many;
    char *memory;

    *out = rme_costs_preset;
    if (!measure)
        return;
    if (ops->caps(fabric)->message_ns != 0)
        out->message = ops->caps(fabric)->message_ns;
    measure_pieces(ops, fabric, out);
    memory =
        mmap(NULL, 2 * COPY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    memset(memory, 1, 2 * COPY_BYTES);
    cold =
        measure_copy(memory, memory + COPY_BYTES, COPY_BYTES, true, now_ns() + BUDGET_NS / 3);
    warm =
        measure_copy(memory, memory + COPY_BYTES, WARM_BYTES, false, now_ns() + BUDGET_NS / 6);
    if (warm > 0)
        out->copy_warm = warm;
    list = measure_list(memory, memory + COPY_BYTES, now_ns() + BUDGET_NS / 12);
    if (warm > 0 && list > 0)
        out->copy_piece = list > warm * WARM_BYTES ? (list - warm * WARM_BYTES) / PIECES : 0;
    if (cold > 0)
        out->copy_cold = cold > out->copy_warm ? cold : out->copy_warm;
    one = measure_reg(ops, fabric, memory, page, now_ns() + BUDGET_NS / 12);
    many = measure_reg(ops, fabric, memory, REG_PAGES * page, end);
    if (one > 0 && many > 0) {
        out->reg_page = many > one ? (many - one) / (REG_PAGES - 1) : 0;
        out->reg_call = one > out->reg_page ? one - out->reg_page : one;
    }
    munmap(memory, 2 * COPY_BYTES);
}

/* Best time to find it, or pieces of it; 0: it is not there. */
static double measure_find(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t pieces)
{
    double best = 0;

    for (int run = 0; run < RUNS; run++) {
        double start = now_ns(), took;
        struct rme_mreg_hold *hold;

        if (rme_mreg_try(mreg, seg, pieces, RME_ACCESS_LOCAL, &hold) != 0)
            return 0;
        (void)rme_mreg_release(mreg, hold);
        took = now_ns() - start;
        if (best == 0 || took < best)
            best = took;
    }
    return best;
}

void rme_costs_measure_find(struct rme_mreg *mreg, struct rme_costs *out)
{
    struct rme_mseg seg = {.length = WARM_BYTES}, list[FOUND];
    struct rme_mreg_hold *hold;
    double found, all;

    if (!rme_mreg_caches(mreg))
        return;
    seg.base =
        mmap(NULL, WARM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (seg.base == MAP_FAILED)
        return;
    if (rme_mreg_acquire(mreg, &seg, 1, RME_ACCESS_LOCAL, &hold) == 0) {
        (void)rme_mreg_release(mreg, hold);
        found = measure_find(mreg, &seg, 1);
        if (found > 0)
            out->find = found;
        for (uint32_t i = 0; i < FOUND; i++)
            list[i] = (struct rme_mseg){.base = (char *)seg.base + i * (WARM_BYTES / FOUND),
                                        .length = WARM_BYTES / FOUND / 2};
        all = measure_find(mreg, list, FOUND);
        if (found > 0 && all > found)
            out->find_piece = (all - found) / (FOUND - 1);
    }
    munmap(seg.base, WARM_BYTES);
    /* the cache looks, and gives it up */
    if (rme_mreg_try(mreg, &seg, 1, RME_ACCESS_LOCAL, &hold) == 0)
        (void)rme_mreg_release(mreg, hold);
    rme_mreg_reap(mreg);
}
