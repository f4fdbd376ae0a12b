/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* device.h - the device, its memory, and what wakes a sleeper. */
#ifndef BMI_IB_DEVICE_H
#define BMI_IB_DEVICE_H

#include "bmi_ib/ib.h"

#define ib_log(f, level, ...) (f)->config.log((f)->config.log_arg, (level), __VA_ARGS__)
#define ib_count(f, id, n)    ((f)->config.stats->value[RME_C_##id] += (n))

static inline int64_t ib_option(const struct rme_fabric *f, const char *name)
{
    return rme_option(f->config.options, name);
}

/* errno as a negative number, never 0: some providers fail without setting it. */
int ib_errno(void);
/* A verbs return value (positive or negative errno, or -1 with errno) as a negative errno. */
int ib_error(int ret);
/* Milliseconds of a clock that only goes forward. */
uint64_t ib_now_ms(void);

extern const struct rme_option_row ib_options[]; /* options.c */
/* The i-th of the parts of an option that + divides; false: there are not so many, or it is too
 * long. */
bool ib_part(const char *text, unsigned i, char *out, size_t size);

/* ---- device.c ---- */
int ib_device_list(struct rme_fabric *f);
/* Finds the device of this name, "" any: `preferred` if it will do. */
int ib_device_choose(struct rme_fabric *f, const char *wanted, struct ibv_context *preferred);
int ib_device_open(struct rme_fabric *f);
void ib_device_close(struct rme_fabric *f);
/* Looks anew whether a port can be used. */
void ib_device_look(struct rme_fabric *f);

/* ---- measure.c ---- */
/* As fabric.h says; of the first rail where there are more. */
bool ib_measure(struct rme_fabric *f, struct rme_piece_costs *out);

/* ---- memory.c ---- */
/* After the windows: finds out whether user memory may come on demand, as the option `odp`
 * wants it. */
int ib_demand_open(struct rme_fabric *f);
int ib_reg(struct rme_fabric *f, void *base, size_t length, unsigned access, struct rme_mr *mr);
void ib_dereg(struct rme_fabric *f, struct rme_mr *mr);
int ib_memory_get(struct rme_fabric *f, size_t length, struct ib_memory *m);
void ib_memory_put(struct ib_memory *m);

/* The registration behind a key that a peer's key is made from. */
static inline struct ibv_mr *ib_rkey_mr(const struct rme_fabric *f, uint64_t key)
{
    void *p = (void *)(uintptr_t)key;
    return f->railed ? ((struct ib_keys *)p)->mr[f->number] : p;
}

/* The device's key for a local segment.  0, which is none's: registered when it was dead. */
static inline uint64_t ib_lkey(const struct rme_fabric *f, uint64_t key)
{
    if (!f->railed)
        return key;
    const struct ibv_mr *m = ib_rkey_mr(f, key);
    return m ? m->lkey : 0;
}

/* Quirks, one predicate each. */
bool ib_quirk_srq_unsafe(const struct rme_fabric *f);
bool ib_quirk_no_last_wqe(const struct rme_fabric *f);
bool ib_quirk_bad_windows(const struct rme_fabric *f);

/* ---- wake.c ---- */
int ib_wake_open(struct rme_fabric *f);
void ib_wake_close(struct rme_fabric *f);
int ib_nonblocking(int fd);
void ib_wake(struct rme_fabric *f);

#endif
