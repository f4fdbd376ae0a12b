/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * On-demand paging of user memory (caps.on_demand).  The device asks the kernel for each page,
 * and forgets the page when the mapping changes.  So a registration always refers to the host's
 * present memory, even if memory was unmapped, moved, discarded or copied by a fork, and its
 * cache needs no monitor.
 *
 * A registration that pins fails if the memory is unmapped or not writable; with on-demand
 * paging the device finds out later, and the link ends.  Therefore the kernel is asked
 * (PROCMAP_QUERY, Linux 6.11; older kernels pin) when memory is registered, and at each use of
 * the registration.  A host that unmaps memory during an operation loses the link; a device
 * that pins would go on with the old pages.
 */
#ifndef RME_DEMAND_H
#define RME_DEMAND_H

#include "memory/pin.h"

/* Opens a descriptor for rme_demand_check.  -1: memory is pinned, because the device does not
 * page, or the kernel lacks the query (logged). */
int rme_demand_open(const struct rme_pin *pin);
void rme_demand_close(int demand);

/*
 * Checks that a range is mapped with the rights that `access` needs, at this moment; one system
 * call for each mapping, no lock, no allocation, any thread.  -EFAULT: not so; -EACCES: mapped,
 * but not writable, which the kernel requires of memory for windows, also for reads.  If the
 * program has closed the descriptor, another is opened; -ENOMEM: none can be.
 */
int rme_demand_check(int demand, const struct rme_pin *pin, uintptr_t start, uintptr_t end,
                     unsigned access);

#endif
