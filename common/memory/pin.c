/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory/memlock.h"
#include "memory/pin.h"

void rme_pin_init(struct rme_pin *pin, const struct rme_fabric_ops *ops,
                  struct rme_fabric *fabric, struct rme_log *log)
{
    memset(pin, 0, sizeof(*pin));
    pin->ops = ops;
    pin->fabric = fabric;
    pin->caps = ops->caps(fabric);
    pin->log = log;
    if (log != NULL)
        rme_log_tells(log, &pin->chores);
}

/* Logs the first refusal. */
static void explain(struct rme_pin *pin, size_t length)
{
    struct rlimit limit;
    char text[32] = "unlimited";

    if (atomic_exchange(&pin->explained, true))
        return;
    if (atomic_load(&pin->live) >= pin->caps->max_regs) {
        rme_log_put(pin->log, RME_LOG_WARN,
                    "memory cannot be registered: all %" PRIu64
                    " registrations of the device are in use; data is copied instead; lower "
                    "regcache_entries or the number of processes on this device",
                    pin->caps->max_regs);
        return;
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(text, sizeof(text), "%" PRIu64 " bytes", (uint64_t)limit.rlim_cur);
    rme_log_put(
        pin->log, RME_LOG_WARN,
        "%zu bytes cannot be registered: memlock limit %s, %" PRIu64
        " bytes registered already; data is copied instead, which is slower; raise the "
        "limit: ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, docker run "
        "--ulimit memlock=-1",
        length, text,
        (uint64_t)(rme_pin_counted(pin, RME_C_REGISTERED_BYTES) -
                   rme_pin_counted(pin, RME_C_DEMAND_BYTES)));
}

int rme_pin_reg(struct rme_pin *pin, void *base, size_t length, unsigned access, bool loud,
                struct rme_mr *mr)
{
    bool full = atomic_fetch_add(&pin->live, 1) >= pin->caps->max_regs;
    int ret = full ? -ENOMEM : pin->ops->reg(pin->fabric, base, length, access, mr);

    if (ret != 0) {
        atomic_fetch_sub(&pin->live, 1);
        if (!loud || !rme_pin_lacks(ret))
            return ret;
        rme_pin_count(pin, RME_C_REG_REFUSED, 1);
        explain(pin, length);
        return -ENOMEM;
    }
    mr->demand = (access & RME_ACCESS_DEMAND) != 0;
    rme_pin_count(pin, RME_C_REGISTERED_BYTES, length);
    if (mr->demand)
        rme_pin_count(pin, RME_C_DEMAND_BYTES, length);
    rme_pin_count(pin, RME_C_REGISTRATIONS, 1);
    return 0;
}

void rme_pin_dereg(struct rme_pin *pin, struct rme_mr *mr)
{
    size_t length = mr->length;

    if (mr->demand)
        rme_pin_count(pin, RME_C_DEMAND_BYTES, -(uint64_t)length);
    pin->ops->dereg(pin->fabric, mr);
    atomic_fetch_sub(&pin->live, 1);
    rme_pin_count(pin, RME_C_REGISTERED_BYTES, -(uint64_t)length);
    rme_pin_count(pin, RME_C_DEREGISTRATIONS, 1);
}

uint64_t rme_pin_budget(void)
{
    uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    struct rlimit limit;

    if (rme_may_lock_anything() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return half;
    return limit.rlim_cur < half ? limit.rlim_cur : half;
}
