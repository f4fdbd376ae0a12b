/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Accounting of registered memory of one engine.  Zones and user memory register here.  Counts,
 * respects the device's limit, and logs the first refusal with the memlock limit and the
 * remedy. Needs no lock.
 */
#ifndef RME_PIN_H
#define RME_PIN_H

#include <errno.h>
#include <stdatomic.h>
#include "fabric.h"
#include "base/log.h"
#include "base/stats.h"

#define RME_ACCESS_REMOTE (RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE)

struct rme_pin {
    struct rme_fabric *fabric;
    const struct rme_fabric_ops *ops;
    const struct rme_caps *caps;
    struct rme_log *log;
    /* Set after the cache, the zone or the log has queued work for a thread without a lock.
     * Tested by rme_unlock. */
    atomic_bool chores;
    /* A thread is in the fabric's wait(), or on the way there and does the chores after this
     * was set.  Set by the engine for threads without its lock. */
    atomic_bool asleep;
    atomic_bool explained;
    atomic_uint_fast64_t live; /* current registrations */
    struct rme_stats stats;    /* counters of registrations and zones */
};

/* Initialises the accounting of an open fabric.  log may be NULL. */
void rme_pin_init(struct rme_pin *pin, const struct rme_fabric_ops *ops,
                  struct rme_fabric *fabric, struct rme_log *log);

/*
 * Register and deregister: without a lock of the engine, any thread.  If `loud`, a refusal by
 * the system or the device's limit is counted, explained once, and -ENOMEM; otherwise a failure
 * is expected.  Other errors are the fabric's (-EFAULT, -EINVAL: not mapped, not writable).
 */
int rme_pin_reg(struct rme_pin *pin, void *base, size_t length, unsigned access, bool loud,
                struct rme_mr *mr);
void rme_pin_dereg(struct rme_pin *pin, struct rme_mr *mr);

/* Returns true for an error of a registration that lacked memory or room at the device. */
static inline bool rme_pin_lacks(int error)
{
    return error == -ENOMEM || error == -EAGAIN || error == -ENOSPC || error == -EPERM;
}

/* Adds to a counter, modulo 2^64, or reads it.  The process's value is its sum with that of the
 * engine (rme_counter_get). */
static inline void rme_pin_count(struct rme_pin *pin, enum rme_counter_id id, uint64_t n)
{
    __atomic_fetch_add(&pin->stats.value[id], n, __ATOMIC_RELAXED);
}
static inline uint64_t rme_pin_counted(const struct rme_pin *pin, enum rme_counter_id id)
{
    return __atomic_load_n(&pin->stats.value[id], __ATOMIC_RELAXED);
}

/* Returns true if memory with these rights must be registered exactly, and for one operation
 * alone. */
static inline bool rme_pin_alone(const struct rme_pin *pin, unsigned access)
{
    return pin->caps->register_each && (access & RME_ACCESS_REMOTE) != 0;
}

/*
 * Returns how many bytes this process may reasonably lock: the soft RLIMIT_MEMLOCK, or half of
 * the machine's memory if that is unlimited or the process has CAP_IPC_LOCK.  Default limits
 * derive from it.
 */
uint64_t rme_pin_budget(void);

#endif
