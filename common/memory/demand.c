/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * User memory whose pages come on demand (caps.on_demand).
 *
 * The device asks the kernel for each page, and forgets it when the mapping changes.  So no
 * registration is ever of other memory than the host has at its addresses, whatever was
 * unmapped, moved, discarded or copied by a fork meanwhile, and the cache needs no monitor.
 *
 * What a registration that pins finds out on the way, that the memory is there and may be
 * written, nobody finds out here before the device does, and then the link ends.  So the kernel
 * is asked instead, when memory is registered and whenever its registration is used again.  Who
 * unmaps memory in the middle of an operation loses the link; a device that pins would go on
 * with pages that nobody sees.
 *
 * For windows the kernel maps all pages as writable, also where the window is for reading.
 *
 * The question is PROCMAP_QUERY (Linux 6.11).  On older kernels memory is pinned.
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
