/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path.  Ranges are registered with a userfaultfd in write-protect mode without
 * protecting anything, so the only thing that ever comes out of the descriptor are events.  A
 * thread sleeps on it; on an event it takes the owner's lock, reads, calls `gone`, and releases
 * the lock.  The thread that unmaps returns from its system call after the read; whoever takes
 * the lock after that return sees the range gone.
 *
 * The gap.  For munmap and mremap the kernel frees the range first and queues the event then.
 * In between, another thread may map the same range and use it, while our owner still believes
 * in the old one.  The kernel marks the context as "mapping is changing" before it frees the
 * range and clears the mark after the event was read; while the mark is set,
 * UFFDIO_WRITEPROTECT fails with EAGAIN.  rme_monitor_settled() asks that of a page of our own
 * that nobody ever touched.  Better still, of no page at all, which the kernel refuses as
 * invalid without a lock or a look at page tables, but only after it has looked at the mark:
 * that is tried out at the start, with a thread that is held in munmap.
 *
 * Huge pages.  A watched range is a mapping of its own to the kernel, so a range that ends
 * inside a huge page would split it for good, and the host's memory would become slow.  Such a
 * range is watched up to the page's end, and the page stays watched when the range is given up:
 * all that costs is an event for nothing.  Kernels before 6.7 do not tell where huge pages are;
 * there they are split.
 *
 * Failure.  When the descriptor breaks (which it should not), the monitor is never settled
 * again.
 */
#define _GNU_SOURCE /* pthread_tryjoin_np */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "monitor.h"
#include "thread.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define FEATURES                                                                               \
    (UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |    \
     UFFD_FEATURE_EVENT_REMOVE)

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

#define HUGE_PAGE ((uintptr_t)2 << 20) /* what transparent ones have, with pages of 4 KiB */

struct rme_monitor {
    int fd;   /* the userfaultfd */
    int map;  /* the page map of this process; -1: none */
    int stop; /* an eventfd that ends the thread */
    pthread_t thread;
    pthread_mutex_t *lock; /* the owner's */
    void (*gone)(void *arg, uintptr_t start, uintptr_t end);
    void *arg;
    void *probe;       /* a watched page that is never touched */
    size_t probe_size; /* what is asked of it: a page, or 0 where that will do */
    size_t page;
    atomic_bool broken;
};

static int open_userfaultfd(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (fd < 0 && errno == EINVAL) /* before Linux 5.11 */
        fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (ioctl(fd, UFFDIO_API, &api) != 0) {
        int error = errno;

        close(fd);
        return -error;
    }
    return fd;
}

/* The next event; 0 or negative, with errno, when there is none.  Not by read(): see thread.h. */
static ssize_t read_event(const struct rme_monitor *monitor, struct uffd_msg *message)
{
    return syscall(SYS_read, monitor->fd, message, sizeof(*message));
}

/* Reads all events that are there and hands them to the owner.  The owner's lock is held. */
static void read_events(struct rme_monitor *monitor)
{
    struct uffd_msg message;
    ssize_t got;

    while ((got = read_event(monitor, &message)) == (ssize_t)sizeof(message)) {
        switch (message.event) {
        case UFFD_EVENT_UNMAP:
        case UFFD_EVENT_REMOVE:
            monitor->gone(monitor->arg, (uintptr_t)message.arg.remove.start,
                          (uintptr_t)message.arg.remove.end);
            break;
        case UFFD_EVENT_REMAP:
            monitor->gone(monitor->arg, (uintptr_t)message.arg.remap.from,
                          (uintptr_t)(message.arg.remap.from + message.arg.remap.len));
            break;
        default:
            break;
        }
    }
    if (got >= 0 || (errno != EAGAIN && errno != EINTR))
        atomic_store(&monitor->broken, true);
}

static void *watch_events(void *arg)
{
    struct rme_monitor *monitor = arg;
    struct pollfd fds[2] = {{.fd = monitor->fd, .events = POLLIN},
                            {.fd = monitor->stop, .events = POLLIN}};

    while (!atomic_load(&monitor->broken)) {
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents != 0)
            break;
        pthread_mutex_lock(monitor->lock);
        read_events(monitor);
        pthread_mutex_unlock(monitor->lock);
    }
    return NULL;
}

/* Is a mapping changing?  0 or -1 with errno, as the kernel says. */
static int ask(const struct rme_monitor *monitor, size_t size)
{
    struct uffdio_writeprotect probe = {
        .range = {.start = (uintptr_t)monitor->probe, .len = size},
        .mode = 0,
    };

    return ioctl(monitor->fd, UFFDIO_WRITEPROTECT, &probe);
}

static bool empty_range_says(const struct rme_monitor *monitor, int error)
{
    return ask(monitor, 0) == -1 && errno == error;
}

struct page {
    void *base;
    size_t size;
};

static void *unmap(void *arg)
{
    const struct page *page = arg;

    munmap(page->base, page->size);
    return NULL;
}

/* A page that is watched, or NULL with errno. */
static void *watched_page(struct rme_monitor *monitor)
{
    void *page =
        mmap(NULL, monitor->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int error;

    if (page == MAP_FAILED)
        return NULL;
    error = rme_monitor_watch(monitor, (uintptr_t)page, (uintptr_t)page + monitor->page);
    if (error == 0)
        return page;
    munmap(page, monitor->page);
    errno = -error;
    return NULL;
}

/* Unmapped while it is watched, it would hold us until somebody reads the event. */
static void drop_page(struct rme_monitor *monitor, void *page)
{
    rme_monitor_unwatch(monitor, (uintptr_t)page, (uintptr_t)page + monitor->page);
    munmap(page, monitor->page);
}

/* Does the kernel tell of a change before it finds an empty range wrong?  Nobody reads events
 * yet. */
static bool empty_range_will_do(struct rme_monitor *monitor)
{
    struct page page = {.base = watched_page(monitor), .size = monitor->page};
    struct pollfd event = {.fd = monitor->fd, .events = POLLIN};
    struct uffd_msg message;
    pthread_t thread;
    bool tells = false;

    if (page.base == NULL)
        return false;
    if (rme_thread_start(&thread, unmap, &page) != 0) {
        drop_page(monitor, page.base);
        return false;
    }
    while (pthread_tryjoin_np(thread, NULL) != 0) { /* it is held until its event is read */
        if (poll(&event, 1, 1) != 1)
            continue;
        tells = empty_range_says(monitor, EAGAIN);
        tells &= read_event(monitor, &message) == (ssize_t)sizeof(message);
    }
    return tells && empty_range_says(monitor, EINVAL);
}

static int watch_probe(struct rme_monitor *monitor)
{
    monitor->probe_size = monitor->page;
    monitor->probe = watched_page(monitor);
    if (monitor->probe == NULL)
        return -errno;
    if (!rme_monitor_settled(monitor)) {
        drop_page(monitor, monitor->probe);
        return -ENOSYS;
    }
    if (empty_range_will_do(monitor))
        monitor->probe_size = 0;
    return 0;
}

/* How many stretches of huge pages there are in one page; negative: the kernel does not tell.
 */
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

/* The page map of this process; -1: there is none that tells of huge pages. */
static int open_page_map(size_t page)
{
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    if (map >= 0 && scan_huge(map, (uintptr_t)&map / page * page, page) < 0) {
        close(map);
        return -1;
    }
    return map;
}

int rme_monitor_new(pthread_mutex_t *lock,
                    void (*gone)(void *arg, uintptr_t start, uintptr_t end), void *arg,
                    struct rme_monitor **out)
{
    struct rme_monitor *monitor = calloc(1, sizeof(*monitor));
    int ret;

    if (monitor == NULL)
        return -ENOMEM;
    monitor->lock = lock;
    monitor->gone = gone;
    monitor->arg = arg;
    monitor->page = (size_t)sysconf(_SC_PAGESIZE);
    ret = monitor->fd = open_userfaultfd();
    if (ret < 0)
        goto err_free;
    monitor->map = open_page_map(monitor->page);
    ret = monitor->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ret < 0) {
        ret = -errno;
        goto err_close;
    }
    ret = watch_probe(monitor);
    if (ret != 0)
        goto err_close_stop;
    ret = rme_thread_start(&monitor->thread, watch_events, monitor);
    if (ret != 0)
        goto err_unmap;
    *out = monitor;
    return 0;

err_unmap:
    drop_page(monitor, monitor->probe);
err_close_stop:
    close(monitor->stop);
err_close:
    if (monitor->map >= 0)
        close(monitor->map);
    close(monitor->fd);
err_free:
    free(monitor);
    return ret;
}

void rme_monitor_free(struct rme_monitor *monitor)
{
    if (monitor == NULL)
        return;
    (void)eventfd_write(monitor->stop, 1);
    pthread_join(monitor->thread, NULL);
    close(monitor->fd); /* ends all watching, and lets go of a thread that waits for an event to
                           be read */
    close(monitor->stop);
    if (monitor->map >= 0)
        close(monitor->map);
    munmap(monitor->probe, monitor->page);
    free(monitor);
}

/* Does a huge page lie across this address? */
static bool splits_huge(const struct rme_monitor *monitor, uintptr_t address)
{
    return monitor->map >= 0 && address % HUGE_PAGE != 0 &&
           scan_huge(monitor->map, address, monitor->page) > 0;
}

int rme_monitor_watch(struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_WP};

    if (splits_huge(monitor, start))
        start -= start % HUGE_PAGE;
    if (splits_huge(monitor, end))
        end += HUGE_PAGE - end % HUGE_PAGE;
    range.range.start = start;
    range.range.len = end - start;
    return ioctl(monitor->fd, UFFDIO_REGISTER, &range) == 0 ? 0 : -errno;
}

void rme_monitor_unwatch(struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    struct uffdio_range range;

    if (splits_huge(monitor, start))
        start += HUGE_PAGE - start % HUGE_PAGE;
    if (splits_huge(monitor, end))
        end -= end % HUGE_PAGE;
    if (start >= end)
        return;
    range = (struct uffdio_range){.start = start, .len = end - start};
    (void)ioctl(monitor->fd, UFFDIO_UNREGISTER,
                &range); /* fails when the memory is gone, and with it the watch */
}

bool rme_monitor_settled(struct rme_monitor *monitor)
{
    if (atomic_load(&monitor->broken))
        return false;
    return monitor->probe_size == 0 ? empty_range_says(monitor, EINVAL)
                                    : ask(monitor, monitor->probe_size) == 0;
}
