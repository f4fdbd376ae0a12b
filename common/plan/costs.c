/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the costs that differ from one machine to the next: copies and registrations.  The
 * best of a few runs counts.  A warm copy reads memory that was copied just before.  A cold
 * copy reads memory that is not in the processor's caches: the memory is flushed where a
 * program can do that, otherwise the first pass over memory that was written once counts.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric.h"
#include "base/timer.h"
#include "plan/plan.h"

#define BUDGET_NS  4500000u /* time limit of the runs of one measurement, except the first */
#define COPY_BYTES ((size_t)1 << 20)
#define WARM_BYTES ((size_t)64 << 10)
#define LINE       64u
#define RUNS       8

struct probe {
    const struct rme_fabric_ops *ops;
    struct rme_fabric *fabric;
    char *memory;
};

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

static uint64_t copy(const struct probe *p, size_t bytes)
{
    char *to = p->memory + COPY_BYTES;
    uint64_t start;

    if (bytes > WARM_BYTES)
        flush(p->memory, bytes);
    start = rme_now_ns();
    memcpy(to, p->memory, bytes);
    __asm__ volatile("" : : "r"(to) : "memory"); /* the compiler must not remove the copy */
    return rme_now_ns() - start + 1;
}

static uint64_t reg_and_dereg(const struct probe *p, size_t bytes)
{
    uint32_t demand = p->ops->caps(p->fabric)->on_demand ? RME_ACCESS_DEMAND : 0;
    uint64_t start = rme_now_ns();
    struct rme_mr mr;

    if (p->ops->reg(p->fabric, p->memory, bytes,
                    RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE | demand, &mr) != 0)
        return 0;
    p->ops->dereg(p->fabric, &mr);
    return rme_now_ns() - start + 1;
}

/* Returns the best of a few runs, in nanoseconds; 0: failed. */
static double best_of(uint64_t (*run)(const struct probe *, size_t), const struct probe *p,
                      size_t bytes)
{
    uint64_t until = rme_now_ns() + BUDGET_NS, best = 0;

    for (int i = 0; i < RUNS && (i == 0 || rme_now_ns() < until); i++) {
        uint64_t took = run(p, bytes);

        if (took == 0)
            return 0;
        if (best == 0 || took < best)
            best = took;
    }
    return (double)best;
}

static void measure_copies(const struct probe *p, struct rme_costs *out)
{
    out->copy_cold = best_of(copy, p, COPY_BYTES) / COPY_BYTES;
    out->copy_warm = best_of(copy, p, WARM_BYTES) / WARM_BYTES;
    if (out->copy_cold < out->copy_warm)
        out->copy_cold = out->copy_warm;
}

static void measure_regs(const struct probe *p, struct rme_costs *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    double one = best_of(reg_and_dereg, p, page);
    double many = best_of(reg_and_dereg, p, COPY_BYTES);

    if (one == 0 || many == 0)
        return;
    out->reg_page = many > one ? (many - one) / (double)(COPY_BYTES / page - 1) : 0;
    out->reg_call = one > out->reg_page ? one - out->reg_page : one;
}

void rme_costs_measure(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                       bool measure, struct rme_costs *out)
{
    const struct rme_caps *caps = ops->caps(fabric);
    struct probe p = {ops, fabric, MAP_FAILED};

    *out = rme_costs_preset;
    if (caps->message_ns != 0)
        out->message = caps->message_ns;
    if (caps->request_ns != 0)
        out->request = caps->request_ns;
    out->read = caps->read_ns;
    if (measure)
        p.memory = mmap(NULL, 2 * COPY_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p.memory == MAP_FAILED)
        return;
    memset(p.memory, 1, 2 * COPY_BYTES);
    measure_copies(&p, out);
    measure_regs(&p, out);
    munmap(p.memory, 2 * COPY_BYTES);
}
