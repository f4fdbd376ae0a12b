/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The registration cache [000 5.4]: regions found by range, evicted least recently used first,
 * limited by entries and bytes, deregistered in batches by rme_mreg_dereg_flush.
 *
 * No stale region is used.  A region is entered into the index, then its range is watched, then
 * registered, and only then it is live.  An unmap after the watch takes the region out of the
 * index; an earlier one does no harm, because registration pins the later memory.  A lookup
 * first handles the events that were read, and then asks the monitor whether the region's
 * memory is still watched, which finds changes without an event so far (monitor.c).  Only the
 * changed region is affected.
 *
 * Discards (MADV_DONTNEED) are reported first, and take the pages away after the event was
 * read: a region that is entered in between would lose its pages without another event.  A host
 * does not discard the memory of an operation, but it may discard hinted memory.  So the event
 * drops the hint, and a hint is consumed in the same critical section that enters its region.
 *
 * With on-demand paging a region is valid as long as the kernel reports memory with the needed
 * rights at its addresses (demand.c).
 *
 * Rights.  A region serves uses that need no more rights than the region has.  A peer gets only
 * the direction that its operation needs: memory that one peer reads and another writes has two
 * registrations.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/remedy.h"
#include "memory/mreg_int.h"

/* share of the bytes that a cache which was full frees in idle time */
#define ROOM_SHARE 8

static struct region *region_of(const struct rme_inode *node)
{
    return ((const struct span *)(const void *)node)
        ->region; /* the node is the first member of the span */
}

static void index_region(struct rme_mreg *mreg, struct region *region)
{
    for (uint32_t i = 0; i < region->nspans; i++)
        rme_itree_insert(&mreg->index, &region->span[i].node);
    region->indexed = true;
    mreg->entries++;
    mreg->bytes += region->end - region->start;
}

static void forget(struct rme_mreg *mreg, struct region *region)
{
    for (uint32_t i = 0; i < region->nspans; i++)
        rme_itree_remove(&mreg->index, &region->span[i].node);
    region->indexed = false;
    mreg->entries--;
    mreg->bytes -= region->end - region->start;
}

static void bury(struct rme_mreg *mreg, struct region *region)
{
    TAILQ_INSERT_TAIL(&mreg->dead, region, link);
    atomic_fetch_add(&mreg->pending, 1);
    atomic_store(&mreg->config.pin->chores, true);
}

/* Removes a cached region that has changed.  Lock held. */
static void lose(struct rme_mreg *mreg, struct region *region)
{
    forget(mreg, region);
    if (mreg->monitor != NULL)
        rme_monitor_drop(mreg->monitor, &region->watch);
    if (region->live && region->refs == 0) {
        TAILQ_REMOVE(&mreg->unused, region, link);
        bury(mreg, region);
    }
}

/* Called by the monitor: this memory has changed. */
static void gone(void *arg, uintptr_t start, uintptr_t end)
{
    struct rme_mreg *mreg = arg;
    struct rme_inode *node;

    while ((node = rme_itree_overlap(&mreg->index, start, end)) != NULL)
        lose(mreg, region_of(node));
    mreg_hints_drop(mreg, start, end);
}

void mreg_cache_open(struct rme_mreg *mreg)
{
    int ret;

    if (mreg->config.max_entries == 0 || mreg->config.max_bytes == 0)
        return;
    mreg->follows = mreg->maps >= 0;
    if (mreg->follows)
        return;
    mreg->watcher = (struct rme_watcher){.lock = &mreg->lock, .gone = gone, .arg = mreg};
    ret = rme_monitor_join(&mreg->watcher, &mreg->monitor);
    if (ret != 0) {
        mreg->monitor = NULL;
        rme_log_put(
            mreg->config.pin->log, RME_LOG_WARN,
            "registration cache: off, memory is registered for each operation: unmapping "
            "cannot be watched (userfaultfd: %s); %s",
            strerror(-ret),
            rme_remedy(
                ret, "use Linux 5.14 or later, and in a container allow userfaultfd (seccomp, "
                     "/proc)"));
    }
}

void mreg_cache_close(struct rme_mreg *mreg)
{
    mreg->follows = false;
    rme_monitor_leave(mreg->monitor, &mreg->watcher);
    mreg->monitor = NULL;
}

/* Returns true if a registration with rights `has` serves a use that needs `wanted`.  A remote
 * right beyond the wanted ones is refused. */
static bool serves(unsigned has, unsigned wanted)
{
    const unsigned remote = RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE;

    return (has & wanted) == wanted &&
           ((wanted & remote) == 0 || (has & remote) == (wanted & remote));
}

static bool has_rights(const struct rme_inode *node, const void *arg)
{
    const struct region *region = region_of(node);

    return region->live && serves(region->access, *(const unsigned *)arg);
}

/* Asks about whole pages, as the monitor knows no others; an exact region may be part of
 * some. */
static enum rme_still pages_still(struct rme_mreg *mreg, uintptr_t start, uintptr_t end,
                                  uintptr_t *seam)
{
    return rme_monitor_still(mreg->monitor, page_down(mreg, start), page_up(mreg, end), seam);
}

/* Returns whether the span of a cached region is unchanged.  Asks about the whole region first,
 * holes included, as its other spans may be needed next. */
static enum rme_still still(struct rme_mreg *mreg, struct rme_inode *node,
                            const struct region **known)
{
    struct span *span = (struct span *)(void *)node;
    struct region *region = span->region;
    enum rme_still answer;

    if (region == *known)
        return RME_STILL_YES;
    answer = pages_still(mreg, region->start, region->end, &region->seam);
    if (answer == RME_STILL_YES)
        *known = region;
    if (answer != RME_STILL_NO || region->nspans == 1)
        return answer;
    return pages_still(mreg, node->start, node->end, &span->seam);
}

/* Returns the same for memory that comes on demand. */
static enum rme_still there(const struct rme_mreg *mreg, const struct region *region,
                            uintptr_t start, uint64_t length)
{
    return mreg_demand_look(mreg, start, start + length, region->access) == 0 ? RME_STILL_YES
                                                                              : RME_STILL_NO;
}

struct region *mreg_cache_get(struct rme_mreg *mreg, const void *start, uint64_t length,
                              unsigned access, const struct region **known)
{
    struct rme_inode *node;

    if (!mreg->follows)
        rme_monitor_catch_up(mreg->monitor, &mreg->watcher);
    while ((node = rme_itree_cover(&mreg->index, (uintptr_t)start, (uintptr_t)start + length,
                                   has_rights, &access)) != NULL) {
        struct region *region = region_of(node);
        enum rme_still answer = mreg->follows ? there(mreg, region, (uintptr_t)start, length)
                                              : still(mreg, node, known);

        if (answer == RME_STILL_NO) {
            lose(mreg, region);
            continue;
        }
        if (answer == RME_STILL_UNKNOWN)
            return NULL;
        if (region->refs++ == 0)
            TAILQ_REMOVE(&mreg->unused, region, link);
        return region;
    }
    return NULL;
}

bool mreg_cache_put(struct rme_mreg *mreg, struct region *region)
{
    if (--region->refs > 0)
        return false;
    if (region->indexed) {
        TAILQ_INSERT_TAIL(&mreg->unused, region, link);
        return false;
    }
    bury(mreg, region);
    return true;
}

/* Evicts the region that was unused longest.  False: all are in use. */
static bool evict(struct rme_mreg *mreg)
{
    struct region *region = TAILQ_FIRST(&mreg->unused);

    if (region == NULL)
        return false;
    TAILQ_REMOVE(&mreg->unused, region, link);
    forget(mreg, region);
    bury(mreg, region);
    atomic_fetch_add(&mreg->config.pin->evictions, 1);
    return true;
}

void mreg_cache_drop_unused(struct rme_mreg *mreg)
{
    while (evict(mreg))
        ;
}

/* Evicts unused regions until `more` bytes fit, and then some more of them, so that they are
 * deregistered together.  Lock held.  False: used regions leave no room. */
static bool make_room(struct rme_mreg *mreg, uint64_t more)
{
    const struct rme_mreg_config *config = &mreg->config;
    uint32_t evicted = 0;

    if (more > config->max_bytes)
        return false;
    for (; mreg->entries >= config->max_entries || mreg->bytes > config->max_bytes - more;
         evicted++)
        if (!evict(mreg))
            return false;
    if (evicted > 0)
        atomic_store(&mreg->tight, true);
    for (; evicted > 0 && evicted < config->batch && evict(mreg); evicted++)
        ;
    return true;
}

void mreg_cache_make_room(struct rme_mreg *mreg)
{
    const struct rme_mreg_config *config = &mreg->config;

    while (mreg->entries + config->batch > config->max_entries ||
           mreg->bytes > config->max_bytes - config->max_bytes / ROOM_SHARE)
        if (!evict(mreg))
            return;
}

static bool is_lesser(const struct rme_inode *node, const void *arg)
{
    const struct region *region = region_of(node), *new = arg;

    return region != new && region->live && region->nspans == 1 &&
           region->start == new->start &&
           region->end == new->end &&serves(new->access, region->access);
}

/* Removes a region of the same range whose uses the new one can serve as well.  Lock held. */
static void replace_lesser(struct rme_mreg *mreg, const struct region *region)
{
    struct rme_inode *node =
        region->nspans == 1
            ? rme_itree_cover(&mreg->index, region->start, region->end, is_lesser, region)
            : NULL;
    struct region *old;

    if (node == NULL)
        return;
    old = region_of(node);
    forget(mreg, old);
    if (old->refs == 0) {
        TAILQ_REMOVE(&mreg->unused, old, link);
        bury(mreg, old);
    }
}

/* Enters a region that is not live yet.  False: no room, or its hint was dropped. */
static bool enter(struct rme_mreg *mreg, struct region *region, const struct hint *hint)
{
    bool room;

    pthread_mutex_lock(&mreg->lock);
    if (!mreg->follows)
        /* later events concern this region */
        rme_monitor_catch_up(mreg->monitor, &mreg->watcher);
    room = (hint == NULL || mreg_hint_take(mreg, hint)) &&
           make_room(mreg, region->end - region->start);
    if (room)
        index_region(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
    return room;
}

/* Takes a region out again, unless an unmap has done so. */
static void leave(struct rme_mreg *mreg, struct region *region)
{
    pthread_mutex_lock(&mreg->lock);
    if (region->indexed)
        forget(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
}

/* Returns true if the memory that has just been watched can be watched. */
static bool can_be_cached(struct rme_mreg *mreg, struct region *region)
{
    bool yes;

    pthread_mutex_lock(&mreg->lock);
    yes = pages_still(mreg, region->start, region->end, &region->seam) == RME_STILL_YES;
    for (uint32_t i = 0; i < region->nspans && !yes && region->nspans > 1; i++) {
        struct span *span = &region->span[i];

        if (pages_still(mreg, span->node.start, span->node.end, &span->seam) != RME_STILL_YES)
            break;
        yes = i == region->nspans - 1;
    }
    pthread_mutex_unlock(&mreg->lock);
    return yes;
}

static void watch(struct rme_mreg *mreg, struct region *region)
{
    struct rme_claim **last = &region->watch.claims;

    region->watch.start = page_down(mreg, region->start);
    region->watch.end = page_up(mreg, region->end);
    for (uint32_t i = 0; i < region->nspans; i++) {
        struct span *span = &region->span[i];

        span->claim.node.start = page_down(mreg, span->node.start);
        span->claim.node.end = page_up(mreg, span->node.end);
        *last = &span->claim;
        last = &span->claim.next;
    }
    *last = NULL;
    region->watched = true;
    rme_monitor_watch(mreg->monitor, &region->watch);
}

/* Undoes the entry of a region that never became live. */
static void undo(struct rme_mreg *mreg, struct region *region)
{
    leave(mreg, region);
    mreg_cache_unwatch(mreg, &region, 1);
    region->watched = false;
    region->watch = (struct rme_watch){0};
}

/* Watches an entered region.  False: not possible, and the region was taken out again. */
static bool watch_all(struct rme_mreg *mreg, struct region *region)
{
    watch(mreg, region);
    if (can_be_cached(mreg, region))
        return true;
    undo(mreg, region);
    /* a part may have been replaced unnoticed while another claim existed */
    rme_monitor_lost(mreg->monitor, page_down(mreg, region->start), page_up(mreg, region->end));
    return false;
}

int mreg_cache_register(struct rme_mreg *mreg, struct region *region, const struct hint *hint)
{
    int ret;

    if (!enter(mreg, region, hint))
        return -EAGAIN;
    if (!mreg->follows && !watch_all(mreg, region))
        return -EAGAIN;
    ret = mreg_pin(mreg, region->start, region->end, region->access, false, &region->mr);
    if (ret != 0) {
        undo(mreg, region);
        return ret;
    }
    pthread_mutex_lock(&mreg->lock);
    region->live =
        true; /* if it has left the index meanwhile, it serves this operation alone */
    if (region->indexed)
        replace_lesser(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
    return 0;
}

/* Inserts a watch in the order of addresses; regions that are evicted in turn are often in that
 * order. */
static void sort_in(struct rme_watch **watch, unsigned count, struct rme_watch *new)
{
    for (; count > 0 && watch[count - 1]->start > new->start; count--)
        watch[count] = watch[count - 1];
    watch[count] = new;
}

void mreg_cache_unwatch(struct rme_mreg *mreg, struct region *const *region, unsigned count)
{
    struct rme_watch *watch[DEREG_BATCH];
    unsigned watches = 0;

    for (unsigned i = 0; i < count; i++)
        if (region[i]->watched)
            sort_in(watch, watches++, &region[i]->watch);
    if (watches > 0)
        rme_monitor_unwatch(mreg->monitor, watch, watches);
}
