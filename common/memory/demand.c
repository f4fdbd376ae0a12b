/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * User memory with on-demand paging (caps.on_demand).
 *
 * The device asks the kernel for each page, and forgets the page when the mapping changes.  So
 * a registration always refers to the host's present memory, even if memory was unmapped,
 * moved, discarded or copied by a fork, and the cache needs no monitor.
 *
 * A registration that pins fails if the memory is unmapped or not writable.  With on-demand
 * paging the device finds out later, and the link ends.  Therefore the kernel is asked
 * (PROCMAP_QUERY, Linux 6.11; older kernels pin) when memory is registered, and at each use of
 * the registration.  A host that unmaps memory during an operation loses the link; a device
 * that pins would go on with the old pages.
 *
 * For windows the kernel maps all pages writable, also for reads.
 */
#include <errno.h>

#include "memory/maps.h"
#include "memory/mreg_int.h"

void mreg_demand_open(struct rme_mreg *mreg)
{
    mreg->maps = -1;
    if (!mreg->config.pin->on_demand)
        return;
    mreg->maps = rme_maps_open();
    if (mreg->maps >= 0 &&
        rme_maps_cover(mreg->maps, (uintptr_t)mreg, (uintptr_t)(mreg + 1), true))
        return;
    mreg_demand_close(mreg);
    rme_log_put(
        mreg->config.pin->log, RME_LOG_WARN,
        "user memory is pinned: the device supports paging on demand, but the system lacks "
        "PROCMAP_QUERY of /proc/self/maps (Linux 6.11)");
}

void mreg_demand_close(struct rme_mreg *mreg)
{
    if (mreg->maps >= 0)
        rme_maps_close(mreg->maps);
    mreg->maps = -1;
}

int mreg_demand_look(const struct rme_mreg *mreg, uintptr_t start, uintptr_t end,
                     unsigned access)
{
    bool opens = !mreg->config.pin->keys_open && (access & RME_ACCESS_REMOTE) != 0;
    bool writes = (access & RME_ACCESS_LOCAL_WRITE) != 0;

    if (rme_maps_cover(mreg->maps, start, end, writes || opens))
        return 0;
    return opens && !writes && rme_maps_cover(mreg->maps, start, end, false) ? -EACCES
                                                                             : -EFAULT;
}

int mreg_pin(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access, bool loud,
             struct rme_mr *mr)
{
    struct rme_pin *pin = mreg->config.pin;
    int ret = 0;

    if (mreg->maps >= 0) {
        ret = mreg_demand_look(mreg, start, end, access);
        access |= RME_ACCESS_DEMAND;
    }
    if (ret != 0)
        return ret;
    return loud ? rme_pin_reg(pin, (void *)start, end - start, access, mr)
                : rme_pin_try(pin, (void *)start, end - start, access, mr);
}
