/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Watches memory by userfaultfd events (write-protect mode, with nothing protected), and asks
 * the kernel before a range is relied on.  Where userfaultfd is refused, hooks in the C library
 * report changes (hooks.c), and no range is watched by itself.  doc/design/unmap-monitor.md has
 * the proof that no change is noticed too late, the query by UFFDIO_CONTINUE and its results,
 * the changes that no kernel or no hook reports, and the rules of fork.
 *
 * Locks, outer first: root_lock, watch_lock, the lock of a monitor.  Memory is allocated and
 * freed only under the first.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "memory/hooks.h"
#include "memory/monitor.h"

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

#define HUGE_PAGE  ((uintptr_t)2 << 20) /* transparent huge page, with 4 KiB pages */
#define ASKS_MAX   100                  /* limit of queries about one range */
#define HOOK_TRIES 1000 /* of a hook for the lock, each a turn of the processor */

/* A descriptor, and the identity of its file: the host may have closed the descriptor, whose
 * number may then belong to another file. */
struct opened {
    int fd;
    _Atomic uint64_t file; /* its identity; 0: not open; a forked child does not lock */
};

struct rme_monitor {
    struct opened watching; /* the userfaultfd */
    struct opened asked;    /* a second one that watches nothing, for queries */
    struct opened pagemap;  /* page map of this process; may be missing */
    uintptr_t page;
    pthread_t thread;
    atomic_bool stopped;        /* nothing is watched any more; the thread ends */
    pthread_mutex_t watch_lock; /* serialises watch and unwatch */
    pthread_mutex_t lock;       /* guards the fields below; events are read under this lock */
    struct list_head watchers;
    struct rme_itree claims; /* of all watchers */
    struct rme_monitor_lacks lacks;
    atomic_bool missed; /* by a hook: a change was not reported */
};

static pthread_mutex_t root_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rme_monitor *root; /* allocated, or `hooked` */
/* The monitor by hooks.  Never freed: a hook may run at any time. */
static struct rme_monitor hooked = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                    .watchers = LIST_EMPTY_RING(hooked.watchers)};

/* ---- descriptors: system calls as in thread.h ---- */

/* Returns the identity of an open file; 0: none. */
static uint64_t file_of(int fd)
{
    struct statx st;

    if (fd < 0 || syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO, &st) != 0)
        return 0;
    return st.stx_ino ^ (uint64_t)st.stx_dev_major << 52 ^ (uint64_t)st.stx_dev_minor << 32;
}

static bool is_ours(const struct opened *opened)
{
    return opened->file != 0 && file_of(opened->fd) == opened->file;
}

static void close_ours(struct opened *opened)
{
    if (is_ours(opened))
        (void)syscall(SYS_close, opened->fd);
    opened->file = 0;
}

/* A negative errno in `fd`: not open, or closed here for lack of an identity (sets `lacks`). */
static struct opened opened(int fd, const char **lacks)
{
    struct opened opened = {.fd = fd, .file = file_of(fd)};

    if (fd >= 0 && opened.file == 0) {
        opened.fd = -errno;
        *lacks = "statx";
        (void)syscall(SYS_close, fd);
    }
    return opened;
}

/* ---- userfaultfd ---- */

/* A negative errno: a part is not watched memory any more; the rest may be still watched. */
static int end_watch(const struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    struct uffdio_range range = {.start = start, .len = end - start};

    if (!is_ours(&monitor->watching))
        return -EBADF;
    return ioctl(monitor->watching.fd, UFFDIO_UNREGISTER, &range) == 0 ? 0 : -errno;
}

/* A negative errno: such memory cannot be watched (files, huge pages of hugetlbfs, nothing
 * mapped), or the descriptor is lost.  watch_lock is held. */
static int begin_watch(const struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    struct uffdio_register range = {.range = {.start = start, .len = end - start},
                                    .mode = UFFDIO_REGISTER_MODE_WP};

    if (!is_ours(&monitor->watching))
        return -EBADF;
    if (ioctl(monitor->watching.fd, UFFDIO_REGISTER, &range) != 0)
        return -errno;
    if ((range.ioctls & ((__u64)1 << _UFFDIO_ZEROPAGE)) != 0)
        return 0;
    (void)end_watch(monitor, start, end);
    return -EINVAL;
}

/* Queries one of the descriptors; returns the kernel's errno.  An answer EINVAL without the
 * result in `mapped` is another file's, and EBADF here. */
static int ask(int fd, uintptr_t start, uintptr_t end)
{
    struct uffdio_continue range = {.range = {.start = start, .len = end - start}};
    int error = ioctl(fd, UFFDIO_CONTINUE, &range) == 0 ? 0 : errno;

    return error == EINVAL && range.mapped != -EINVAL ? EBADF : error;
}

/* Returns true if a range is one private, anonymous, watched mapping. */
static bool is_watched(const struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    return ask(monitor->asked.fd, start, end) == EINVAL;
}

/* Returns true if a huge page lies across this address; false also if the kernel cannot report
 * huge pages. */
static bool splits_huge(const struct rme_monitor *monitor, uintptr_t address)
{
    struct page_region found;
    struct pm_scan_arg scan = {.size = sizeof(scan),
                               .start = address,
                               .end = address + monitor->page,
                               .vec = (uintptr_t)&found,
                               .vec_len = 1,
                               .category_mask = PAGE_IS_HUGE,
                               .return_mask = PAGE_IS_HUGE};

    return monitor->pagemap.file != 0 && address % HUGE_PAGE != 0 &&
           ioctl(monitor->pagemap.fd, PAGEMAP_SCAN, &scan) > 0;
}

/* ---- opening ---- */

static int open_uffd(unsigned long long features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    int error = errno;

    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0)
        return fd;
    if (fd >= 0) {
        error = errno;
        close(fd);
    }
    return -error;
}

/* Tests whether the query distinguishes watched from other memory, on two pages, the first of
 * which is watched. */
static int try_out(struct rme_monitor *monitor)
{
    const size_t page = monitor->page;
    void *pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t first = (uintptr_t)pages;
    int ret;

    if (pages == MAP_FAILED)
        return -errno;
    ret = begin_watch(monitor, first, first + page);
    if (ret == 0 && (!is_watched(monitor, first, first + page) ||
                     ask(monitor->asked.fd, first + page, first + 2 * page) != ENOENT ||
                     ask(monitor->asked.fd, first, first + 2 * page) != ENOENT))
        ret = -ENOSYS;
    (void)end_watch(monitor, first, first + page);
    munmap(pages, 2 * page);
    return ret;
}

/* Opens the descriptors.  A negative errno: `lacks` is not available on this system; some may
 * be open. */
static int open_all(struct rme_monitor *monitor, const char **lacks)
{
    const char *optional;

    *lacks = "userfaultfd";
    monitor->watching = opened(open_uffd(FEATURES), lacks);
    monitor->asked = opened(open_uffd(0), lacks);
    monitor->pagemap = opened(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), &optional);
    if (monitor->watching.fd < 0 || monitor->asked.fd < 0)
        return monitor->watching.fd < 0 ? monitor->watching.fd : monitor->asked.fd;
    return try_out(monitor);
}

/* ---- events ---- */

/* Reports a changed range to all watchers.  The lock is held. */
static void report(struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    struct rme_watcher *watcher;

    list_for_each(watcher, &monitor->watchers, link)
        watcher->on_unmap(watcher->arg, start, end);
}

/* Reads and reports one event.  Not by read(): see thread.h.  The lock is held. */
static void read_event(struct rme_monitor *monitor)
{
    struct uffd_msg message;
    bool ours = is_ours(&monitor->watching);
    long got = ours ? syscall(SYS_read, monitor->watching.fd, &message, sizeof(message)) : 0;

    if (got != (long)sizeof(message)) {
        if (got >= 0 || (errno != EAGAIN && errno != EINTR))
            atomic_store(&monitor->stopped, true);
    } else if (message.event == UFFD_EVENT_UNMAP || message.event == UFFD_EVENT_REMOVE) {
        report(monitor, (uintptr_t)message.arg.remove.start, (uintptr_t)message.arg.remove.end);
    } else if (message.event == UFFD_EVENT_REMAP) {
        uintptr_t from = (uintptr_t)message.arg.remap.from;
        uintptr_t to = (uintptr_t)message.arg.remap.to;
        uintptr_t length = (uintptr_t)message.arg.remap.len;

        report(monitor, from, from + length);
        report(monitor, to, to + length);
        /* the watch has moved with the memory, but no claim has */
        (void)end_watch(monitor, to, to + length);
    }
}

/* The monitor's thread.  Closes the userfaultfd at its end, which ends all watches; threads
 * that wait for their events to be read continue. */
static void *watch_events(void *arg)
{
    struct rme_monitor *monitor = arg;
    struct pollfd events = {.fd = monitor->watching.fd, .events = POLLIN};

    while (!atomic_load(&monitor->stopped))
        if (poll(&events, 1, -1) > 0) {
            pthread_mutex_lock(&monitor->lock);
            read_event(monitor);
            pthread_mutex_unlock(&monitor->lock);
        }
    pthread_mutex_lock(&monitor->watch_lock);
    close_ours(&monitor->watching);
    pthread_mutex_unlock(&monitor->watch_lock);
    return NULL;
}

/* ---- start and end ---- */

static void close_all(struct rme_monitor *monitor)
{
    close_ours(&monitor->watching);
    close_ours(&monitor->asked);
    close_ours(&monitor->pagemap);
}

static void destroy(struct rme_monitor *monitor)
{
    close_all(monitor);
    pthread_mutex_destroy(&monitor->lock);
    pthread_mutex_destroy(&monitor->watch_lock);
    free(monitor);
}

/* ---- hooks ---- */

/* Reports a change from a hook, which never waits: the holder of the lock may be the code that
 * a signal handler interrupts, the parent of a copied process, or wait for this thread. */
static void hook_report(uintptr_t start, uintptr_t end)
{
    for (int tries = 0; pthread_mutex_trylock(&hooked.lock) != 0; tries++) {
        if (tries == HOOK_TRIES) {
            atomic_store(&hooked.missed, true);
            return;
        }
        sched_yield();
    }
    report(&hooked, start, end);
    pthread_mutex_unlock(&hooked.lock);
}

/* Returns true if a range is private anonymous memory, whose changes all come by system calls
 * of this process. */
static bool is_own_memory(uintptr_t at, uintptr_t end)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL, rights[5];
    uintptr_t from, to;
    uint64_t inode;
    size_t size = 0;

    while (maps != NULL && at < end && getline(&line, &size, maps) >= 0) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64, &from, &to, rights,
                   &inode) != 4 ||
            to <= at)
            continue;
        if (from > at || rights[3] != 'p' || inode != 0)
            break;
        at = to;
    }
    free(line);
    if (maps != NULL)
        fclose(maps);
    return at >= end;
}

static int start_hooks(const char **lacks)
{
    uintptr_t own = (uintptr_t)&own;

    if (!is_own_memory(own, own + 1)) {
        *lacks = "/proc/self/maps";
        return -ENOTSUP;
    }
    return rme_hooks_start(hook_report, lacks);
}

static int monitor_new(struct rme_monitor **out, const char **lacks)
{
    struct rme_monitor *monitor = calloc(1, sizeof(*monitor));
    int ret;

    *lacks = "memory";
    if (monitor == NULL)
        return -ENOMEM;
    monitor->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&monitor->watch_lock, NULL);
    pthread_mutex_init(&monitor->lock, NULL);
    list_init(&monitor->watchers);
    ret = open_all(monitor, lacks);
    if (ret == 0) {
        *lacks = "thread";
        ret = rme_thread_start(&monitor->thread, watch_events, monitor);
    }
    if (ret == 0)
        *out = monitor;
    else
        destroy(monitor);
    return ret;
}

/* Wakes the thread up by an event.  False: the thread cannot be woken, and is not ending. */
static bool wake_thread(struct rme_monitor *monitor)
{
    void *page =
        mmap(NULL, monitor->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool wakes;

    if (page == MAP_FAILED)
        return false;
    pthread_mutex_lock(&monitor->watch_lock);
    wakes = monitor->watching.file == 0 || /* closed by the thread */
            begin_watch(monitor, (uintptr_t)page, (uintptr_t)page + monitor->page) == 0;
    pthread_mutex_unlock(&monitor->watch_lock);
    munmap(page, monitor->page);
    return wakes;
}

/* Ends the thread, which closes its userfaultfd.  A thread whose descriptor the program has
 * closed may sleep on, and keeps the memory of the monitor. */
static void monitor_free(struct rme_monitor *monitor)
{
    atomic_store(&monitor->stopped, true);
    if (wake_thread(monitor)) {
        pthread_join(monitor->thread, NULL);
        destroy(monitor);
    } else {
        close_ours(&monitor->asked);
        close_ours(&monitor->pagemap);
        pthread_detach(monitor->thread);
    }
}

/* ---- fork ---- */

/* The root does not change during a fork: a child could never take its lock. */
void rme_monitor_before_fork(void)
{
    pthread_mutex_lock(&root_lock);
}

void rme_monitor_after_fork(void)
{
    pthread_mutex_unlock(&root_lock);
}

/* Closes a child's copies of the descriptors, which would keep the parent's watches.  The rest
 * of the monitor is abandoned: its thread does not exist here, and its locks may be held. */
void rme_monitor_after_fork_in_child(void)
{
    if (root == &hooked) {
        rme_hooks_stop();
        pthread_mutex_init(&hooked.lock, NULL);
        list_init(&hooked.watchers);
    } else if (root != NULL) {
        close_all(root);
    }
    root = NULL;
    pthread_mutex_unlock(&root_lock);
}

/* ---- engines ---- */

/* Starts the monitor of the process: by userfaultfd, else by hooks.  root_lock is held. */
static int root_new(struct rme_monitor_lacks *lacks)
{
    *lacks = (struct rme_monitor_lacks){NULL, 0, NULL};
    lacks->error = monitor_new(&root, &lacks->what);
    if (lacks->error == 0) {
        lacks->what = NULL;
    } else if (start_hooks(&lacks->hooks) == 0) {
        root = &hooked;
    } else {
        return lacks->error;
    }
    root->lacks = *lacks;
    return 0;
}

int rme_monitor_join(struct rme_watcher *watcher, struct rme_monitor **out,
                     struct rme_monitor_lacks *lacks)
{
    int ret = 0;

    pthread_mutex_lock(&root_lock);
    if (root == NULL)
        ret = root_new(lacks);
    if (ret == 0) {
        *lacks = root->lacks;
        pthread_mutex_lock(&root->lock);
        list_add_head(&watcher->link, &root->watchers);
        pthread_mutex_unlock(&root->lock);
        *out = root;
    }
    pthread_mutex_unlock(&root_lock);
    return ret;
}

void rme_monitor_leave(struct rme_monitor *monitor, struct rme_watcher *watcher)
{
    if (monitor == NULL)
        return;
    pthread_mutex_lock(&root_lock);
    pthread_mutex_lock(&monitor->lock);
    list_del_init(&watcher->link);
    pthread_mutex_unlock(&monitor->lock);
    if (list_empty(&monitor->watchers)) {
        root = NULL;
        if (monitor == &hooked)
            rme_hooks_stop();
        else
            monitor_free(monitor);
    }
    pthread_mutex_unlock(&root_lock);
}

/* ---- watches ---- */

pthread_mutex_t *rme_monitor_lock(struct rme_monitor *monitor)
{
    return &monitor->lock;
}

/* Begins or ends the watch on the parts of [at, end) that no watcher claims.  watch_lock is
 * held.  False: not on all. */
static bool for_unclaimed(struct rme_monitor *monitor, uintptr_t at, uintptr_t end,
                          int (*change)(const struct rme_monitor *, uintptr_t, uintptr_t))
{
    bool all = true;

    while (at < end) {
        struct rme_inode *node;
        uintptr_t start = at;

        pthread_mutex_lock(&monitor->lock);
        node = rme_itree_overlap(&monitor->claims, at, end);
        if (node != NULL && node->start <= at)
            start = at = node->end;
        else
            at = node != NULL ? node->start : end;
        pthread_mutex_unlock(&monitor->lock);
        if (start < at)
            all = change(monitor, start, at) == 0 && all;
    }
    return all;
}

/* Returns true if a range is watched.  Several mappings are asked about in halves. */
static bool is_covered(const struct rme_monitor *monitor, uintptr_t start, uintptr_t end,
                       unsigned *asks)
{
    uintptr_t middle = start + (end - start) / 2 / monitor->page * monitor->page;

    if (++*asks > ASKS_MAX)
        return false;
    if (is_watched(monitor, start, end))
        return true;
    return middle > start && is_covered(monitor, start, middle, asks) &&
           is_covered(monitor, middle, end, asks);
}

bool rme_monitor_still(struct rme_monitor *monitor, const struct rme_watch *watch)
{
    unsigned asks = 0;

    if (monitor == &hooked)
        return !atomic_load(&monitor->missed) && rme_hooks_intact();
    return !atomic_load(&monitor->stopped) &&
           is_covered(monitor, watch->claim.start, watch->claim.end, &asks);
}

/* Watches a range with hooks: they report it already. */
static int watch_hooked(const struct rme_watch *watch)
{
    pthread_mutex_lock(&hooked.lock);
    if (atomic_exchange(&hooked.missed, false))
        report(&hooked, 0, UINTPTR_MAX);
    pthread_mutex_unlock(&hooked.lock);
    if (!rme_hooks_intact())
        return -ESTALE;
    return is_own_memory(watch->claim.start, watch->claim.end) ? 0 : -EAGAIN;
}

/* Begins the watch of a range by userfaultfd.  Errors as of rme_monitor_watch. */
static int watch_range(struct rme_monitor *monitor, struct rme_watch *watch)
{
    uintptr_t at = watch->claim.start, end = watch->claim.end;
    bool lost;

    pthread_mutex_lock(&monitor->watch_lock);
    if (splits_huge(monitor, at))
        at -= at % HUGE_PAGE;
    if (splits_huge(monitor, end))
        end += HUGE_PAGE - end % HUGE_PAGE;
    (void)for_unclaimed(monitor, at, end, begin_watch);
    pthread_mutex_lock(&monitor->lock);
    if (watch->state == RME_WATCH_NEW) { /* not changed yet */
        rme_itree_insert(&monitor->claims, &watch->claim);
        watch->state = RME_WATCH_HELD;
    }
    pthread_mutex_unlock(&monitor->lock);
    pthread_mutex_unlock(&monitor->watch_lock);
    if (rme_monitor_still(monitor, watch))
        return 0;
    pthread_mutex_lock(&monitor->watch_lock); /* the thread closes `watching` under it */
    lost = !is_ours(&monitor->watching) || !is_ours(&monitor->asked);
    pthread_mutex_unlock(&monitor->watch_lock);
    return lost ? -EBADF : -EAGAIN;
}

int rme_monitor_watch(struct rme_monitor *monitor, struct rme_watch *watch)
{
    int ret = monitor == &hooked ? watch_hooked(watch) : watch_range(monitor, watch);

    if (ret == 0)
        return 0;
    pthread_mutex_lock(&monitor->lock);
    report(monitor, watch->claim.start, watch->claim.end);
    pthread_mutex_unlock(&monitor->lock);
    return ret;
}

void rme_monitor_drop(struct rme_monitor *monitor, struct rme_watch *watch)
{
    if (watch->state == RME_WATCH_HELD)
        rme_itree_remove(&monitor->claims, &watch->claim);
    watch->state = RME_WATCH_DROPPED;
}

/* Ends the watch on the unclaimed parts of a range.  watch_lock is held.  False: not on all. */
static bool unwatch_range(struct rme_monitor *monitor, uintptr_t at, uintptr_t end)
{
    if (splits_huge(monitor, at))
        at += HUGE_PAGE - at % HUGE_PAGE;
    if (splits_huge(monitor, end))
        end -= end % HUGE_PAGE;
    return for_unclaimed(monitor, at, end, end_watch);
}

void rme_monitor_unwatch(struct rme_monitor *monitor, struct rme_itree *dropped)
{
    struct rme_inode *node;

    if (monitor == &hooked) {
        *dropped = (struct rme_itree){NULL};
        return;
    }
    pthread_mutex_lock(&monitor->watch_lock);
    while ((node = rme_itree_overlap(dropped, 0, UINTPTR_MAX)) != NULL) {
        uintptr_t start = node->start, end = start;
        bool all;

        for (; node != NULL; node = rme_itree_overlap(dropped, end, end + 1))
            end = node->end;
        all = unwatch_range(monitor, start, end);
        while ((node = rme_itree_overlap(dropped, start, end)) != NULL) {
            rme_itree_remove(dropped, node);
            /* a range that cannot be unwatched any more prevents the others from ending */
            if (!all && (node->start != start || node->end != end))
                (void)unwatch_range(monitor, node->start, node->end);
        }
    }
    pthread_mutex_unlock(&monitor->watch_lock);
}
