/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The registration cache [000 5.4]: regions found by range, least recently used given up first,
 * bounded by entries and bytes, deregistered in batches by rme_mreg_reap.
 *
 * Why no stale region is ever found.  A region is put into the index first, then its range is
 * watched, then registered, and only then does it become live.  An unmap at any point after the
 * watch takes it out of the index; one that happens before has no effect on what is registered,
 * because registration pins what is there afterwards.  A lookup begins with what the events
 * that were read have to say, and the region found is used only when the monitor says that its
 * memory is still watched: that finds what the events do not tell, or not yet (monitor.c).  It
 * concerns that region alone, so while something is unmapped the rest serves.
 *
 * What is discarded (MADV_DONTNEED) the kernel tells of first, and takes away after that event
 * was read: a region that is entered in between has pages that go, and nothing tells of it.
 * The host does not discard what an operation has, but it may well discard what a hint of its
 * is about.  So the event drops the hint, and a hint is taken and its region entered in one go.
 *
 * Memory that comes on demand needs none of that: its region is found as long as the kernel
 * says that there is memory which it may be used for (demand.c).
 *
 * Rights.  A region serves whoever needs no more than it has, but what is exposed to a peer is
 * exposed for the direction that the operation needs: memory that is read by one peer and
 * written by another has a registration for each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/remedy.h"
#include "memory/mreg_int.h"

/* of its bytes, which a cache that was full has free when nothing else is to be done */
#define ROOM_SHARE 8

static struct region *region_of(const struct rme_inode *node)
{
    return ((const struct span *)(const void *)node)
        ->region; /* the node is the span's first member */
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
}

/* A cached region is not what it was.  Lock held. */
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

/* The monitor's call: this memory is not what it was. */
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

/* May who needs `wanted` use what was registered with `has`?  A right that a peer would get
 * beside the wanted one is one too many. */
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

/* The monitor knows of whole pages only; an exact region may be part of some. */
static enum rme_still pages_still(struct rme_mreg *mreg, uintptr_t start, uintptr_t end,
                                  uintptr_t *seam)
{
    return rme_monitor_still(mreg->monitor, page_down(mreg, start), page_up(mreg, end), seam);
}

/* Is the span of a cached region still the same memory?  Asks about the whole region first,
 * holes included, as its other spans may be wanted next. */
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

/* The same, of memory that comes on demand. */
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

/* Gives up the region that was unused longest.  False: all are in use. */
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

/* Gives up unused regions until `more` bytes fit, and some more of them then, so that they can
 * be deregistered together.  Lock held.  False: what is in use leaves no room. */
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

/* A region of the same range whose uses the new one can serve as well goes.  Lock held. */
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

/* Enters a region that is not live yet.  False: no room, or it is not wanted any more. */
static bool enter(struct rme_mreg *mreg, struct region *region, const struct hint *hint)
{
    bool room;

    pthread_mutex_lock(&mreg->lock);
    if (!mreg->follows)
        rme_monitor_catch_up(mreg->monitor, &mreg->watcher); /* later news are of this one */
    room = (hint == NULL || mreg_hint_take(mreg, hint)) &&
           make_room(mreg, region->end - region->start);
    if (room)
        index_region(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
    return room;
}

/* Takes a region out again, unless an unmap did so before. */
static void leave(struct rme_mreg *mreg, struct region *region)
{
    pthread_mutex_lock(&mreg->lock);
    if (region->indexed)
        forget(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
}

/* Is what has just been watched memory that can be watched? */
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

/* Takes a region that never became live out of everything, as it was before. */
static void undo(struct rme_mreg *mreg, struct region *region)
{
    leave(mreg, region);
    mreg_cache_unwatch(mreg, &region, 1);
    region->watched = false;
    region->watch = (struct rme_watch){0};
}

/* Watches a region that was entered.  False: it cannot be, and has been taken out again. */
static bool watch_all(struct rme_mreg *mreg, struct region *region)
{
    watch(mreg, region);
    if (can_be_cached(mreg, region))
        return true;
    undo(mreg, region);
    /* perhaps part of it was replaced unnoticed while somebody claimed it */
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
        true; /* and if it has left the index meanwhile, it serves this operation and dies */
    if (region->indexed)
        replace_lesser(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
    return 0;
}

/* Enters a watch in the order of addresses; what is given up one after the other often lies
 * so. */
static void sort_in(struct rme_watch **watch, unsigned count, struct rme_watch *new)
{
    for (; count > 0 && watch[count - 1]->start > new->start; count--)
        watch[count] = watch[count - 1];
    watch[count] = new;
}

void mreg_cache_unwatch(struct rme_mreg *mreg, struct region *const *region, unsigned count)
{
    struct rme_watch *watch[REAP_BATCH];
    unsigned watches = 0;

    for (unsigned i = 0; i < count; i++)
        if (region[i]->watched)
            sort_in(watch, watches++, &region[i]->watch);
    if (watches > 0)
        rme_monitor_unwatch(mreg->monitor, watch, watches);
}
