/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "memory/demand.h"

/* Not in the headers of systems before Linux 6.11. */
struct query {
    uint64_t size, flags, addr; /* in; the flags are rights that the mapping must have */
    uint64_t start, end, vma_flags, page_size, offset, inode;
    uint32_t major, minor;
    uint32_t name_size, build_id_size; /* 0: not requested */
    uint64_t name, build_id;
};
#define QUERY          _IOWR('f', 17, struct query)
#define QUERY_READABLE 1u
#define QUERY_WRITABLE 2u

/* Returns 0 if the whole range is mapped and readable, and with `write` writable; -EFAULT: not
 * so; -EBADF: the descriptor is not one of /proc/self/maps. */
static int covers(int maps, uintptr_t start, uintptr_t end, bool write)
{
    while (start < end) {
        struct query query = {.size = sizeof(query),
                              .flags = QUERY_READABLE | (write ? QUERY_WRITABLE : 0),
                              .addr = start};

        if (ioctl(maps, QUERY, &query) != 0)
            return errno == ENOENT ? -EFAULT : -EBADF;
        if (query.end <= start)
            return -EBADF;
        start = (uintptr_t)query.end;
    }
    return 0;
}

static int open_maps(void)
{
    return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
}

int rme_demand_check(int demand, const struct rme_pin *pin, uintptr_t start, uintptr_t end,
                     unsigned access)
{
    bool opens = pin->caps->mws != 0 && (access & RME_ACCESS_REMOTE) != 0;
    bool writes = (access & RME_ACCESS_LOCAL_WRITE) != 0;
    int ret = covers(demand, start, end, writes || opens), maps = demand;

    if (ret == -EBADF) {
        maps = open_maps(); /* with the same number, the descriptor serves from now on */
        ret = covers(maps, start, end, writes || opens);
    }
    if (ret == -EFAULT && opens && !writes && covers(maps, start, end, false) == 0)
        ret = -EACCES;
    if (maps != demand && maps >= 0)
        close(maps);
    return ret == -EBADF ? -ENOMEM : ret;
}

int rme_demand_open(const struct rme_pin *pin)
{
    int demand = pin->caps->on_demand ? open_maps() : -1;

    if (!pin->caps->on_demand ||
        covers(demand, (uintptr_t)pin, (uintptr_t)(pin + 1), true) == 0)
        return demand;
    if (demand >= 0)
        close(demand);
    rme_log_put(
        pin->log, RME_LOG_WARN,
        "user memory is pinned: the device supports paging on demand, but the system lacks "
        "PROCMAP_QUERY of /proc/self/maps (Linux 6.11)");
    return -1;
}

void rme_demand_close(int demand)
{
    if (covers(demand, (uintptr_t)&demand, (uintptr_t)(&demand + 1), true) == 0)
        close(demand);
}
