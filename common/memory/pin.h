/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The account of registered memory of one engine.  Zones and user memory register through it.
 * It counts, respects the device's limit, and explains the first refusal in one line, with the
 * memlock limit and the remedy.  Needs no lock.
 */
#ifndef RME_PIN_H
#define RME_PIN_H

#include <stdatomic.h>
#include "fabric.h"
#include "base/log.h"

struct rme_stats;

#define RME_ACCESS_REMOTE (RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE)

struct rme_pin {
    struct rme_fabric *fabric;
    const struct rme_fabric_ops *ops;
    uint64_t max_regs; /* registrations the device admits */
    /* a registration's own key opens it to every peer: there are no windows */
    bool keys_open;
    bool each;      /* then what a peer is shown is registered for its operation alone */
    bool on_demand; /* user memory is not pinned (caps.on_demand) */
    struct rme_log *log;
    atomic_bool explained;
    atomic_uint_fast64_t live;         /* registrations now */
    atomic_uint_fast64_t bytes;        /* registered now, */
    atomic_uint_fast64_t demand_bytes; /* and of these, not pinned */
    atomic_uint_fast64_t registrations, deregistrations, refused;
    atomic_uint_fast64_t hits, misses, evictions; /* user memory (mreg.h) */
    atomic_uint_fast64_t zone_bytes, zone_allocs; /* zones (zone.h) */
};

/* The fabric is open.  log may be NULL. */
void rme_pin_init(struct rme_pin *pin, const struct rme_fabric_ops *ops,
                  struct rme_fabric *fabric, struct rme_log *log);

/*
 * Register, deregister: no lock of the engine held, any thread.  -ENOMEM: refused by the system
 * or the device's limit (counted, explained once); other errors as the fabric gave them
 * (-EFAULT, -EINVAL: not mapped, not writable).
 */
int rme_pin_reg(struct rme_pin *pin, void *base, size_t length, unsigned access,
                struct rme_mr *mr);
void rme_pin_dereg(struct rme_pin *pin, struct rme_mr *mr);

/* rme_pin_reg for an attempt that may well fail: a refusal is neither counted nor explained,
 * its error is the fabric's. */
int rme_pin_try(struct rme_pin *pin, void *base, size_t length, unsigned access,
                struct rme_mr *mr);

/* Copies the counts into the engine's counters (stats.h); the caller holds whatever guards
 * them. */
void rme_pin_fold(const struct rme_pin *pin, struct rme_stats *stats);

/* Shall memory with these rights be registered exactly, and for one operation alone? */
static inline bool rme_pin_alone(const struct rme_pin *pin, unsigned access)
{
    return pin->each && (access & RME_ACCESS_REMOTE) != 0;
}

/*
 * Bytes that this process may reasonably lock: the soft RLIMIT_MEMLOCK, or half the machine's
 * memory when that is unlimited or the process has CAP_IPC_LOCK.  Defaults of bounds derive
 * from it.
 */
uint64_t rme_pin_budget(void);

#endif
