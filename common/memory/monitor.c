/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Watches memory by userfaultfd events, and asks the kernel before a range is relied on.
 * doc/design/unmap-monitor.md has the proof that no change is noticed too late, the changes
 * that no kernel reports, and the rules of fork.
 *
 * Locks, outer first: root_lock, watch_lock, read_lock, that of one watcher, log_lock,
 * claims_lock.  The last two are never held together.  Memory is allocated and freed only under
 * the first.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/monitor.h"
#include "base/thread.h"

#define SEAMS_MAX    4    /* limit of mappings in one range */
#define LOG          16   /* ranges that are read before the watchers are called */
#define GIVE_BACK_MS 2000 /* limit of the wait for changes in progress, at the end */

struct range {
    uintptr_t start, end;
};

struct rme_monitor {
    struct rme_uffd uffd;
    pid_t process; /* owner of the mappings */
    unsigned users;
    int stop; /* eventfd that ends the thread */
    pthread_t thread;
    atomic_bool broken;
    atomic_bool left;           /* only the thread uses the monitor now */
    pthread_mutex_t watch_lock; /* serialises watch and unwatch */
    /* guards the list of watchers; serialises reading and reporting */
    pthread_mutex_t read_lock;
    pthread_mutex_t log_lock;     /* guards the log */
    pthread_mutex_t claims_lock;  /* guards claims and states of watches */
    struct rme_watcher *watchers; /* recipients of changes */
    struct range log[LOG];        /* entry n is at n % LOG */
    uint64_t logged;              /* entries written since the start */
    /* batches begun since the start; also read without the lock */
    atomic_uint_fast64_t batches;
    struct rme_itree claims; /* of all watchers */
};

static pthread_mutex_t root_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rme_monitor *root;

/* ---- events ---- */

/* Appends to the log.  log_lock is held. */
static void write_down(struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    monitor->log[monitor->logged++ % LOG] = (struct range){start, end};
}

/* Reads one event into the log.  False: no more events now. */
static bool read_event(struct rme_monitor *monitor)
{
    struct rme_uffd_change change;

    switch (rme_uffd_next(&monitor->uffd, &change)) {
    case RME_UFFD_GONE:
        write_down(monitor, change.start, change.end);
        return true;
    case RME_UFFD_MOVED: { /* the watch has moved with the memory, but no claim has */
        uintptr_t to_end = change.to + (change.end - change.start);

        write_down(monitor, change.start, change.end);
        write_down(monitor, change.to, to_end);
        (void)rme_uffd_unwatch(&monitor->uffd, change.to, to_end);
        return true;
    }
    case RME_UFFD_OTHER:
        return true;
    case RME_UFFD_BROKEN:
        atomic_store(&monitor->broken, true);
        return false;
    case RME_UFFD_NONE:
        break;
    }
    return false;
}

/* Reads as many events as the log has room for; all watchers have seen its old entries.  False:
 * no more events now. */
static bool read_batch(struct rme_monitor *monitor)
{
    bool more = true;
    uint64_t end;

    pthread_mutex_lock(&monitor->log_lock);
    atomic_fetch_add(&monitor->batches, 1);
    end = monitor->logged + LOG - 1; /* one event makes at most two entries */
    while (more && monitor->logged < end)
        more = read_event(monitor);
    pthread_mutex_unlock(&monitor->log_lock);
    return more;
}

/* Copies the unseen log entries of a watcher, whose lock is held. */
static uint32_t take_from_log(struct rme_monitor *monitor, struct rme_watcher *watcher,
                              struct range *out)
{
    uint32_t count = 0;

    pthread_mutex_lock(&monitor->log_lock);
    while (watcher->told < monitor->logged)
        out[count++] = monitor->log[watcher->told++ % LOG];
    watcher->batches = atomic_load(&monitor->batches);
    pthread_mutex_unlock(&monitor->log_lock);
    return count;
}

void rme_monitor_catch_up(struct rme_monitor *monitor, struct rme_watcher *watcher)
{
    struct range range[LOG];
    uint32_t count;

    if (atomic_load(&monitor->batches) == watcher->batches)
        return;
    count = take_from_log(monitor, watcher, range);
    for (uint32_t i = 0; i < count; i++)
        watcher->gone(watcher->arg, range[i].start, range[i].end);
}

/* Reads all queued events, and reports them to all watchers. */
static void pump(struct rme_monitor *monitor)
{
    bool more = true;

    pthread_mutex_lock(&monitor->read_lock);
    while (more) {
        more = read_batch(monitor);
        for (struct rme_watcher *w = monitor->watchers; w != NULL; w = w->next) {
            pthread_mutex_lock(w->lock);
            rme_monitor_catch_up(monitor, w);
            pthread_mutex_unlock(w->lock);
        }
    }
    pthread_mutex_unlock(&monitor->read_lock);
}

static void *watch_events(void *arg)
{
    struct rme_monitor *monitor = arg;
    struct pollfd fds[2] = {{.fd = monitor->uffd.fd, .events = POLLIN},
                            {.fd = monitor->stop, .events = POLLIN}};

    while (!atomic_load(&monitor->broken)) {
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents != 0 || atomic_load(&monitor->left))
            return NULL;
        pump(monitor);
    }
    pthread_mutex_lock(&monitor->watch_lock);
    rme_uffd_unwatch_all(&monitor->uffd);
    rme_uffd_abandon(&monitor->uffd);
    pthread_mutex_unlock(&monitor->watch_lock);
    return NULL;
}

void rme_monitor_lost(struct rme_monitor *monitor, uintptr_t start, uintptr_t end)
{
    pthread_mutex_lock(&monitor->read_lock);
    for (struct rme_watcher *w = monitor->watchers; w != NULL; w = w->next) {
        pthread_mutex_lock(w->lock);
        w->gone(w->arg, start, end);
        pthread_mutex_unlock(w->lock);
    }
    pthread_mutex_unlock(&monitor->read_lock);
}

/* ---- start and end ---- */

static void destroy(struct rme_monitor *monitor)
{
    rme_uffd_close(&monitor->uffd);
    if (monitor->stop >= 0)
        close(monitor->stop);
    pthread_mutex_destroy(&monitor->claims_lock);
    pthread_mutex_destroy(&monitor->log_lock);
    pthread_mutex_destroy(&monitor->read_lock);
    pthread_mutex_destroy(&monitor->watch_lock);
    free(monitor);
}

static int monitor_new(struct rme_monitor **out)
{
    struct rme_monitor *monitor = calloc(1, sizeof(*monitor));
    int ret;

    if (monitor == NULL)
        return -ENOMEM;
    ret = rme_uffd_open(&monitor->uffd);
    if (ret != 0) {
        free(monitor);
        return ret;
    }
    monitor->process = getpid();
    pthread_mutex_init(&monitor->watch_lock, NULL);
    pthread_mutex_init(&monitor->read_lock, NULL);
    pthread_mutex_init(&monitor->log_lock, NULL);
    pthread_mutex_init(&monitor->claims_lock, NULL);
    monitor->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ret =
        monitor->stop < 0 ? -errno : rme_thread_start(&monitor->thread, watch_events, monitor);
    if (ret == 0)
        *out = monitor;
    else
        destroy(monitor);
    return ret;
}

/* Unwatches all ranges, and waits for changes in progress, whose threads need their events
 * read. Such a change may have moved a watched mapping behind the walk: then walks once
 * more. */
static void give_back(struct rme_monitor *monitor)
{
    for (int left = GIVE_BACK_MS; left > 0; left--) {
        pthread_mutex_lock(&monitor->watch_lock);
        rme_uffd_unwatch_all(&monitor->uffd);
        pthread_mutex_unlock(&monitor->watch_lock);
        if (!rme_uffd_pending(&monitor->uffd))
            break;
        pump(monitor);
        (void)poll(NULL, 0, 1);
    }
}

/*
 * Wakes the thread for its end.  False: the program has closed the descriptor, as a daemon may
 * close all, and its number may belong to another file by now.  Then the thread cannot be
 * woken, and its descriptors must not be closed.
 */
static bool tell_to_stop(const struct rme_monitor *monitor)
{
    struct stat st;

    return fstat(monitor->stop, &st) == 0 && (st.st_mode & S_IFMT) == 0 &&
           eventfd_write(monitor->stop, 1) == 0;
}

static void monitor_free(struct rme_monitor *monitor)
{
    give_back(monitor);
    if (tell_to_stop(monitor)) {
        pthread_join(monitor->thread, NULL);
        destroy(monitor);
        return;
    }
    atomic_store(&monitor->left, true); /* the thread sleeps on, and keeps the memory */
    pthread_detach(monitor->thread);
}

static void hold_root(void)
{
    pthread_mutex_lock(&root_lock);
}

static void release_root(void)
{
    pthread_mutex_unlock(&root_lock);
}

/* Blocks forks while the root changes: a child could never take its lock. */
static void guard_root(void)
{
    (void)pthread_atfork(hold_root, release_root, release_root);
}

static void enlist(struct rme_monitor *monitor, struct rme_watcher *watcher)
{
    pthread_mutex_lock(&monitor->read_lock);
    pthread_mutex_lock(&monitor->log_lock);
    watcher->told = monitor->logged;
    watcher->batches = atomic_load(&monitor->batches);
    pthread_mutex_unlock(&monitor->log_lock);
    watcher->next = monitor->watchers;
    monitor->watchers = watcher;
    pthread_mutex_unlock(&monitor->read_lock);
}

int rme_monitor_join(struct rme_watcher *watcher, struct rme_monitor **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int ret = 0;

    pthread_once(&once, guard_root);
    pthread_mutex_lock(&root_lock);
    if (root != NULL && root->process != getpid())
        root = NULL; /* the parent's monitor; its locks and its thread do not exist here */
    if (root == NULL)
        ret = monitor_new(&root);
    if (ret == 0) {
        root->users++;
        enlist(root, watcher);
        *out = root;
    }
    pthread_mutex_unlock(&root_lock);
    return ret;
}

void rme_monitor_leave(struct rme_monitor *monitor, struct rme_watcher *watcher)
{
    struct rme_watcher **at;

    if (monitor == NULL || monitor->process != getpid()) /* the parent's */
        return;
    pthread_mutex_lock(&root_lock);
    pthread_mutex_lock(&monitor->read_lock);
    for (at = &monitor->watchers; *at != watcher; at = &(*at)->next)
        ;
    *at = watcher->next;
    pthread_mutex_unlock(&monitor->read_lock);
    if (--monitor->users == 0) {
        root = NULL;
        monitor_free(monitor);
    }
    pthread_mutex_unlock(&root_lock);
}

/* ---- watches ---- */

/* Finds the first part of [*at, end) that no watcher claims; false: none. */
static bool next_unclaimed(struct rme_monitor *monitor, uintptr_t *at, uintptr_t end,
                           uintptr_t *stop)
{
    struct rme_inode *node;

    pthread_mutex_lock(&monitor->claims_lock);
    while (*at < end && (node = rme_itree_overlap(&monitor->claims, *at, end)) != NULL &&
           node->start <= *at)
        *at = node->end;
    node = *at < end ? rme_itree_overlap(&monitor->claims, *at, end) : NULL;
    *stop = node != NULL ? node->start : end;
    pthread_mutex_unlock(&monitor->claims_lock);
    return *at < end;
}

void rme_monitor_watch(struct rme_monitor *monitor, struct rme_watch *watch)
{
    uintptr_t at = watch->start, end = watch->end, stop;

    pthread_mutex_lock(&monitor->watch_lock);
    if (rme_uffd_splits_huge(&monitor->uffd, at))
        at -= at % RME_HUGE_PAGE;
    if (rme_uffd_splits_huge(&monitor->uffd, end))
        end += RME_HUGE_PAGE - end % RME_HUGE_PAGE;
    while (next_unclaimed(monitor, &at, end, &stop)) {
        (void)rme_uffd_watch(&monitor->uffd, at, stop);
        at = stop;
    }
    pthread_mutex_lock(&monitor->claims_lock);
    if (watch->state == RME_WATCH_NEW) { /* not changed yet */
        for (struct rme_claim *claim = watch->claims; claim != NULL; claim = claim->next)
            rme_itree_insert(&monitor->claims, &claim->node);
        watch->state = RME_WATCH_HELD;
    }
    pthread_mutex_unlock(&monitor->claims_lock);
    pthread_mutex_unlock(&monitor->watch_lock);
}

void rme_monitor_drop(struct rme_monitor *monitor, struct rme_watch *watch)
{
    pthread_mutex_lock(&monitor->claims_lock);
    if (watch->state == RME_WATCH_HELD)
        for (struct rme_claim *claim = watch->claims; claim != NULL; claim = claim->next)
            rme_itree_remove(&monitor->claims, &claim->node);
    watch->state = RME_WATCH_DROPPED;
    pthread_mutex_unlock(&monitor->claims_lock);
}

/* Ends the watch on the unclaimed parts of a range.  watch_lock is held.  False: not on all. */
static bool unwatch_range(struct rme_monitor *monitor, uintptr_t at, uintptr_t end)
{
    bool all = true;
    uintptr_t stop;

    if (rme_uffd_splits_huge(&monitor->uffd, at))
        at += RME_HUGE_PAGE - at % RME_HUGE_PAGE;
    if (rme_uffd_splits_huge(&monitor->uffd, end))
        end -= end % RME_HUGE_PAGE;
    while (next_unclaimed(monitor, &at, end, &stop)) {
        all = rme_uffd_unwatch(&monitor->uffd, at, stop) && all;
        at = stop;
    }
    return all;
}

/* Returns how many of the first watches adjoin; *end is the end of the last of them. */
static unsigned touching(struct rme_watch *const *watch, unsigned count, uintptr_t *end)
{
    unsigned n;

    *end = watch[0]->end;
    for (n = 1; n < count && watch[n]->start <= *end; n++)
        if (watch[n]->end > *end)
            *end = watch[n]->end;
    return n;
}

void rme_monitor_unwatch(struct rme_monitor *monitor, struct rme_watch *const *watch,
                         unsigned count)
{
    unsigned run;
    uintptr_t end;

    pthread_mutex_lock(&monitor->watch_lock);
    for (unsigned i = 0; i < count; i++)
        rme_monitor_drop(monitor, watch[i]);
    for (unsigned i = 0; i < count; i += run) {
        run = touching(&watch[i], count - i, &end);
        /* a range that cannot be unwatched any more prevents the others from ending with it */
        if (!unwatch_range(monitor, watch[i]->start, end) && run > 1)
            for (unsigned k = i; k < i + run; k++)
                (void)unwatch_range(monitor, watch[k]->start, watch[k]->end);
    }
    pthread_mutex_unlock(&monitor->watch_lock);
}

/* ---- queries ---- */

/* Returns the end of the mapping at `at`, before `end`; `at`: not a watched mapping. */
static uintptr_t find_seam(const struct rme_monitor *monitor, uintptr_t at, uintptr_t end)
{
    const size_t page = monitor->uffd.page;
    uintptr_t good = at, bad = end;

    while (bad - good > page) {
        uintptr_t middle = good == at && bad == end
                               ? at + page /* usually the first page fails already */
                               : good + (bad - good) / 2 / page * page;

        if (rme_uffd_still(&monitor->uffd, at, middle) == RME_STILL_YES)
            good = middle;
        else
            bad = middle;
    }
    return good;
}

enum rme_still rme_monitor_still(struct rme_monitor *monitor, uintptr_t start, uintptr_t end,
                                 uintptr_t *seam)
{
    uintptr_t at = start;

    if (atomic_load(&monitor->broken))
        return RME_STILL_NO;
    for (int cuts = 0; cuts < SEAMS_MAX && at < end;) {
        uintptr_t stop = at < *seam && *seam < end ? *seam : end;
        enum rme_still still = rme_uffd_still(&monitor->uffd, at, stop);

        if (still == RME_STILL_UNKNOWN)
            return still;
        if (still == RME_STILL_NO) {
            stop = find_seam(monitor, at, stop);
            if (stop == at)
                return RME_STILL_NO;
            *seam = stop;
            cuts++;
        }
        at = stop;
    }
    return at < end ? RME_STILL_NO : RME_STILL_YES;
}
