/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Userfaultfd calls of the monitor.  doc/design/unmap-monitor.md explains the query by
 * UFFDIO_CONTINUE and its results, the second descriptor, and why every mapping is unwatched by
 * its range at the end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/maps.h"
#include "memory/uffd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define FEATURES                                                                               \
    (UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |    \
     UFFD_FEATURE_EVENT_REMOVE)

#ifndef UFFDIO_CONTINUE /* headers before Linux 5.13 */
#define _UFFDIO_CONTINUE 0x07
struct uffdio_continue {
    struct uffdio_range range;
    __u64 mode;
    __s64 mapped;
};
#define UFFDIO_CONTINUE _IOWR(UFFDIO, _UFFDIO_CONTINUE, struct uffdio_continue)
#endif

#ifndef PAGEMAP_SCAN /* headers before Linux 6.7 */
struct page_region {
    __u64 start, end, categories;
};
struct pm_scan_arg {
    __u64 size, flags, start, end, walk_end, vec, vec_len, max_pages;
    __u64 category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_HUGE (1 << 6)
#endif

/* ---- one range ---- */

int rme_uffd_watch(const struct rme_uffd *u, uintptr_t start, uintptr_t end)
{
    struct uffdio_register range = {.range = {.start = start, .len = end - start},
                                    .mode = UFFDIO_REGISTER_MODE_WP};

    if (ioctl(u->fd, UFFDIO_REGISTER, &range) != 0)
        return -errno;
    if ((range.ioctls & ((__u64)1 << _UFFDIO_ZEROPAGE)) != 0)
        return 0;
    rme_uffd_unwatch(u, start, end);
    return -EINVAL;
}

bool rme_uffd_unwatch(const struct rme_uffd *u, uintptr_t start, uintptr_t end)
{
    struct uffdio_range range = {.start = start, .len = end - start};

    return ioctl(u->fd, UFFDIO_UNREGISTER, &range) == 0;
}

/* Queries one of the descriptors; returns the kernel's errno. */
static int ask(int fd, uintptr_t start, uintptr_t end)
{
    struct uffdio_continue range = {.range = {.start = start, .len = end - start}};

    return ioctl(fd, UFFDIO_CONTINUE, &range) == 0 ? 0 : errno;
}

enum rme_still rme_uffd_still(const struct rme_uffd *u, uintptr_t start, uintptr_t end)
{
    switch (ask(u->asked, start, end)) {
    case EINVAL:
        return RME_STILL_YES;
    case EAGAIN:
        return RME_STILL_UNKNOWN;
    default:
        return RME_STILL_NO;
    }
}

bool rme_uffd_pending(const struct rme_uffd *u)
{
    return ask(u->fd, u->page, 2 * u->page) == EAGAIN; /* page 0 is never mapped */
}

/* Returns the number of huge mappings in one page; negative: the kernel does not tell. */
static int scan_huge(int map, uintptr_t address, size_t page)
{
    struct page_region found;
    struct pm_scan_arg scan = {.size = sizeof(scan),
                               .start = address,
                               .end = address + page,
                               .vec = (uintptr_t)&found,
                               .vec_len = 1,
                               .category_mask = PAGE_IS_HUGE,
                               .return_mask = PAGE_IS_HUGE};

    return ioctl(map, PAGEMAP_SCAN, &scan);
}

bool rme_uffd_splits_huge(const struct rme_uffd *u, uintptr_t address)
{
    return u->map >= 0 && address % RME_HUGE_PAGE != 0 &&
           scan_huge(u->map, address, u->page) > 0;
}

/* ---- all of them ---- */

static bool unwatch_one(void *arg, const struct rme_mapping *mapping)
{
    rme_uffd_unwatch(arg, mapping->start, mapping->end); /* refused for files */
    return true;
}

void rme_uffd_unwatch_all(const struct rme_uffd *u)
{
    struct rme_uffd copy = *u;

    rme_maps_walk(u->maps, unwatch_one, &copy);
}

/* ---- events ---- */

enum rme_uffd_event rme_uffd_next(const struct rme_uffd *u, struct rme_uffd_change *change)
{
    struct uffd_msg message;
    long got = syscall(SYS_read, u->fd, &message, sizeof(message));

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return RME_UFFD_NONE;
    if (got != (long)sizeof(message))
        return RME_UFFD_BROKEN;
    switch (message.event) {
    case UFFD_EVENT_UNMAP:
    case UFFD_EVENT_REMOVE:
        change->start = (uintptr_t)message.arg.remove.start;
        change->end = (uintptr_t)message.arg.remove.end;
        return RME_UFFD_GONE;
    case UFFD_EVENT_REMAP:
        change->start = (uintptr_t)message.arg.remap.from;
        change->end = change->start + (uintptr_t)message.arg.remap.len;
        change->to = (uintptr_t)message.arg.remap.to;
        return RME_UFFD_MOVED;
    default:
        return RME_UFFD_OTHER;
    }
}

void rme_uffd_abandon(const struct rme_uffd *u)
{
    (void)syscall(SYS_dup3, u->maps, u->fd, O_CLOEXEC);
}

/* ---- opening ---- */

static int open_one(unsigned long long features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (fd < 0)
        return -errno;
    if (ioctl(fd, UFFDIO_API, &api) != 0) {
        int error = errno;

        close(fd);
        return -error;
    }
    return fd;
}

/* Opens the page map of this process; -1: no page map that reports huge pages. */
static int open_page_map(size_t page)
{
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    if (map >= 0 && scan_huge(map, (uintptr_t)&map / page * page, page) < 0) {
        close(map);
        return -1;
    }
    return map;
}

/* Returns true if a descriptor distinguishes watched from other memory. */
static bool tells(const struct rme_uffd *u, int fd, uintptr_t watched, uintptr_t other)
{
    return ask(fd, watched, watched + u->page) == EINVAL &&
           ask(fd, other, other + u->page) == ENOENT &&
           ask(fd, watched, watched + 2 * u->page) == ENOENT;
}

/* Tests the query on two pages, the first of which is watched. */
static int try_out(struct rme_uffd *u)
{
    void *pages =
        mmap(NULL, 2 * u->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t first = (uintptr_t)pages;
    int ret;

    if (pages == MAP_FAILED)
        return -errno;
    ret = rme_uffd_watch(u, first, first + u->page);
    if (ret == 0) {
        if (u->asked >= 0 && !tells(u, u->asked, first, first + u->page)) {
            close(u->asked);
            u->asked = -1;
        }
        if (!tells(u, u->fd, first, first + u->page) || rme_uffd_pending(u))
            ret = -ENOSYS;
        rme_uffd_unwatch(u, first, first + u->page);
    }
    munmap(pages, 2 * u->page);
    return ret;
}

int rme_uffd_open(struct rme_uffd *u)
{
    int ret;

    u->page = (size_t)sysconf(_SC_PAGESIZE);
    ret = u->fd = open_one(FEATURES);
    if (ret < 0)
        return ret;
    u->maps = rme_maps_open();
    if (u->maps < 0) {
        ret = -errno;
        goto close_fd;
    }
    u->asked = open_one(0);
    ret = try_out(u);
    if (ret != 0)
        goto close_asked;
    if (u->asked < 0)
        u->asked = u->fd;
    u->map = open_page_map(u->page);
    return 0;

close_asked:
    if (u->asked >= 0)
        close(u->asked);
    close(u->maps);
close_fd:
    close(u->fd);
    return ret;
}

void rme_uffd_close(struct rme_uffd *u)
{
    if (u->map >= 0)
        close(u->map);
    if (u->asked != u->fd)
        close(u->asked);
    close(u->maps);
    close(u->fd);
}
