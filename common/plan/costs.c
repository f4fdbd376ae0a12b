/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the costs that need no peer: copies and registrations.  The fabric may know the cost
 * of a message.  The best of a few runs counts.  A warm copy reads memory that was copied just
 * before.  A cold copy reads memory that is not in the processor's caches: the memory is
 * flushed where a program can do that, otherwise the first pass over memory that was written
 * once counts.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric.h"
#include "base/timer.h"
#include "base/trial.h"
#include "memory/mreg.h"
#include "plan/plan.h"
#include "plan/split.h"

#define BUDGET_NS  18e6 /* time limit of all runs, except the first of each measurement */
#define COPY_BYTES ((size_t)1 << 20)
#define WARM_BYTES ((size_t)64 << 10)
#define LINE       64u
#define PIECES     512u /* of the list for warm copies */
#define FOUND      32u  /* of the list for look-ups */
#define REG_PAGES  256u
#define RUNS       8

/* Returns the best of a few runs, in nanoseconds; 0: failed. */
static double best_of(rme_trial_run *run, void *arg, double budget)
{
    struct rme_trial trial = {1, 0, 1, RUNS, rme_now_ns() + (uint64_t)budget};
    uint64_t best;

    return rme_trial(&trial, run, arg, &best) ? (double)best : 0;
}

/* Removes memory from the processor's caches, where possible. */
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

struct copying {
    char *from;
    char *to;
    size_t bytes;
    bool cold;
};

static uint64_t copy(void *arg, uint32_t thing)
{
    const struct copying *c = arg;
    uint64_t start;

    (void)thing;
    if (c->cold)
        flush(c->from, c->bytes);
    start = rme_now_ns();
    memcpy(c->to, c->from, c->bytes);
    __asm__ volatile("" : : "r"(c->to) : "memory"); /* the compiler must not remove the copy */
    return rme_now_ns() - start + 1;
}

/* Copies the same bytes as the pieces of a list. */
static uint64_t gather(void *arg, uint32_t thing)
{
    const struct copying *c = arg;
    struct rme_seg list[PIECES];
    uint64_t start;

    (void)thing;
    for (size_t i = 0; i < PIECES; i++)
        list[i] = (struct rme_seg){c->from + i * (c->bytes / PIECES), c->bytes / PIECES};
    start = rme_now_ns();
    rme_seg_gather(list, PIECES, 0, c->to, c->bytes);
    return rme_now_ns() - start + 1;
}

struct registering {
    const struct rme_fabric_ops *ops;
    struct rme_fabric *fabric;
    void *base;
    size_t length;
};

static uint64_t reg_and_dereg(void *arg, uint32_t thing)
{
    const struct registering *r = arg;
    uint32_t demand = r->ops->caps(r->fabric)->on_demand ? RME_ACCESS_DEMAND : 0;
    uint64_t start = rme_now_ns();
    struct rme_mr mr;

    (void)thing;
    if (r->ops->reg(r->fabric, r->base, r->length,
                    RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE | demand, &mr) != 0)
        return 0;
    r->ops->dereg(r->fabric, &mr);
    return rme_now_ns() - start + 1;
}

/* Takes the device's own measurement.  `sge` and `post` keep their presets where the device
 * measures less. */
static void measure_pieces(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                           struct rme_costs *out)
{
    struct rme_rdma_seg_costs pieces;

    if (ops->measure == NULL || !ops->measure(fabric, &pieces))
        return;
    if (pieces.segment_ns > out->sge)
        out->sge = pieces.segment_ns;
    if (pieces.request_ns > out->post)
        out->post = pieces.request_ns;
    out->read = pieces.read_ns;
}

static void measure_copies(char *memory, struct rme_costs *out)
{
    struct copying c = {memory, memory + COPY_BYTES, COPY_BYTES, true};
    double cold = best_of(copy, &c, BUDGET_NS / 3), warm, list;

    c.bytes = WARM_BYTES;
    c.cold = false;
    warm = best_of(copy, &c, BUDGET_NS / 6);
    list = best_of(gather, &c, BUDGET_NS / 12);
    out->copy_warm = warm / WARM_BYTES;
    out->copy_piece = list > warm ? (list - warm) / PIECES : 0;
    out->copy_cold = cold / COPY_BYTES;
    if (out->copy_cold < out->copy_warm)
        out->copy_cold = out->copy_warm;
}

static void measure_regs(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                         void *memory, struct rme_costs *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct registering r = {ops, fabric, memory, page};
    double one = best_of(reg_and_dereg, &r, BUDGET_NS / 12), many;

    r.length = REG_PAGES * page;
    many = best_of(reg_and_dereg, &r, BUDGET_NS / 3);
    if (one == 0 || many == 0)
        return;
    out->reg_page = many > one ? (many - one) / (REG_PAGES - 1) : 0;
    out->reg_call = one > out->reg_page ? one - out->reg_page : one;
}

void rme_costs_measure(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                       bool measure, struct rme_costs *out)
{
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
    measure_copies(memory, out);
    measure_regs(ops, fabric, memory, out);
    munmap(memory, 2 * COPY_BYTES);
}

struct finding {
    struct rme_mreg *mreg;
    struct rme_mseg *seg;
    uint32_t pieces;
};

/* Looks memory up in the registration cache; 0 if it is not cached. */
static uint64_t find(void *arg, uint32_t thing)
{
    const struct finding *f = arg;
    uint64_t start = rme_now_ns();
    struct rme_mreg_hold *hold;

    (void)thing;
    if (rme_mreg_try(f->mreg, f->seg, f->pieces, RME_ACCESS_LOCAL, &hold) != 0)
        return 0;
    (void)rme_mreg_release(f->mreg, hold);
    return rme_now_ns() - start + 1;
}

void rme_costs_measure_find(struct rme_mreg *mreg, struct rme_costs *out)
{
    struct rme_mseg seg = {.length = WARM_BYTES}, list[FOUND];
    struct finding one = {mreg, &seg, 1}, pieces = {mreg, list, FOUND};
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
        found = best_of(find, &one, BUDGET_NS / 12);
        if (found > 0)
            out->find = found;
        for (uint32_t i = 0; i < FOUND; i++)
            list[i] = (struct rme_mseg){.base = (char *)seg.base + i * (WARM_BYTES / FOUND),
                                        .length = WARM_BYTES / FOUND / 2};
        all = best_of(find, &pieces, BUDGET_NS / 12);
        if (found > 0 && all > found)
            out->find_piece = (all - found) / (FOUND - 1);
    }
    munmap(seg.base, WARM_BYTES);
    /* a look-up of unmapped memory makes the cache drop the registration */
    if (rme_mreg_try(mreg, &seg, 1, RME_ACCESS_LOCAL, &hold) == 0)
        (void)rme_mreg_release(mreg, hold);
    rme_mreg_dereg_flush(mreg);
}
