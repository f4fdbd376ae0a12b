/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The registration cache [000 5.4]: regions found by range, least recently used given up first,
 * bounded by entries and bytes, deregistered in batches by rme_mreg_reap.
 *
 * Why no stale region is ever found.  A region is put into the index first, then its range is
 * watched, then registered, and only then does it become live.  An unmap at any point after the
 * watch takes it out of the index; one that happens before has no effect on what is registered,
 * because registration pins what is there afterwards.  A lookup happens under the lock, under
 * which events are read and applied, and only while the monitor says that no change is under
 * way.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mreg_int.h"

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

/* The monitor's call: this memory is not what it was. */
static void gone(void *arg, uintptr_t start, uintptr_t end)
{
    struct rme_mreg *mreg = arg;
    struct rme_inode *node;

    while ((node = rme_itree_overlap(&mreg->index, start, end)) != NULL) {
        struct region *region = region_of(node);

        forget(mreg, region);
        if (region->live && region->refs == 0) {
            TAILQ_REMOVE(&mreg->unused, region, link);
            bury(mreg, region);
        }
    }
}

void mreg_cache_open(struct rme_mreg *mreg)
{
    int ret;

    if (mreg->config.max_entries == 0 || mreg->config.max_bytes == 0)
        return;
    ret = rme_monitor_new(&mreg->lock, gone, mreg, &mreg->monitor);
    if (ret != 0) {
        mreg->monitor = NULL;
        rme_log_put(mreg->config.pin->log, RME_LOG_WARN,
                    "the registration cache is off: unmaps cannot be watched (userfaultfd: "
                    "%s); memory is registered for "
                    "each operation; a kernel from 5.11 on allows it to everyone, a container "
                    "may have to (seccomp)",
                    strerror(-ret));
    }
}

void mreg_cache_close(struct rme_mreg *mreg)
{
    rme_monitor_free(mreg->monitor);
    mreg->monitor = NULL;
    (void)mreg_cache_drop_unused(mreg);
}

bool mreg_cache_trusted(struct rme_mreg *mreg)
{
    return mreg->monitor != NULL && rme_monitor_settled(mreg->monitor);
}

static bool has_rights(const struct rme_inode *node, const void *arg)
{
    const struct region *region = region_of(node);
    unsigned access = *(const unsigned *)arg;

    return region->live && (region->access & access) == access;
}

struct region *mreg_cache_get(struct rme_mreg *mreg, const void *start, uint64_t length,
                              unsigned access)
{
    struct rme_inode *node = rme_itree_cover(&mreg->index, (uintptr_t)start,
                                             (uintptr_t)start + length, has_rights, &access);
    struct region *region;

    if (node == NULL)
        return NULL;
    region = region_of(node);
    if (region->refs++ == 0)
        TAILQ_REMOVE(&mreg->unused, region, link);
    return region;
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
    region->unwatch = true;
    bury(mreg, region);
    atomic_fetch_add(&mreg->config.pin->evictions, 1);
    return true;
}

bool mreg_cache_drop_unused(struct rme_mreg *mreg)
{
    bool any = false;

    while (evict(mreg))
        any = true;
    return any;
}

/* Gives up unused regions until `more` bytes fit.  Lock held.  False: what is in use leaves no
 * room. */
static bool make_room(struct rme_mreg *mreg, uint64_t more)
{
    const struct rme_mreg_config *config = &mreg->config;

    if (more > config->max_bytes)
        return false;
    while (mreg->entries >= config->max_entries || mreg->bytes > config->max_bytes - more)
        if (!evict(mreg))
            return false;
    return true;
}

static bool is_same_region(const struct rme_inode *node, const void *arg)
{
    const struct region *region = region_of(node), *wanted = arg;

    return region->live && region->nspans == 1 && region->start == wanted->start &&
           region->end == wanted->end;
}

/* A region of the same range with fewer rights gives its rights to the new one and goes.  Lock
 * held. */
static void absorb(struct rme_mreg *mreg, struct region *region)
{
    struct rme_inode *node =
        region->nspans == 1
            ? rme_itree_cover(&mreg->index, region->start, region->end, is_same_region, region)
            : NULL;
    struct region *old;

    if (node == NULL)
        return;
    old = region_of(node);
    region->access |= old->access;
    forget(mreg, old);
    if (old->refs == 0) {
        TAILQ_REMOVE(&mreg->unused, old, link);
        bury(mreg, old);
    }
}

/* Enters a region that is not live yet.  watch_lock held.  False: no room. */
static bool enter(struct rme_mreg *mreg, struct region *region)
{
    bool room;

    pthread_mutex_lock(&mreg->lock);
    absorb(mreg, region);
    room = make_room(mreg, region->end - region->start);
    if (room)
        index_region(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
    return room;
}

/* Takes a region out again.  False: an unmap did so before. */
static bool leave(struct rme_mreg *mreg, struct region *region)
{
    bool indexed;

    pthread_mutex_lock(&mreg->lock);
    indexed = region->indexed;
    if (indexed)
        forget(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
    return indexed;
}

/* Puts a region into the index and watches its range.  -EAGAIN: cannot be cached. */
static int enter_and_watch(struct rme_mreg *mreg, struct region *region)
{
    int ret = -EAGAIN;

    pthread_mutex_lock(&mreg->watch_lock);
    if (enter(mreg, region)) {
        if (rme_monitor_watch(mreg->monitor, region->start, region->end) == 0)
            ret = 0;
        else
            (void)leave(mreg, region);
    }
    pthread_mutex_unlock(&mreg->watch_lock);
    return ret;
}

int mreg_cache_register(struct rme_mreg *mreg, struct region *region)
{
    unsigned access = region->access;
    int ret = enter_and_watch(mreg, region);

    if (ret == 0) {
        ret = rme_pin_try(mreg->config.pin, (void *)region->start, region->end - region->start,
                          region->access, &region->mr);
        if (ret != 0) {
            region->unwatch = leave(mreg, region);
            mreg_cache_unwatch(mreg, region);
            region->unwatch = false;
        }
    }
    if (ret != 0) {
        region->access = access;
        return ret;
    }
    pthread_mutex_lock(&mreg->lock);
    region->live =
        true; /* and if it has left the index meanwhile, it serves this operation and dies */
    pthread_mutex_unlock(&mreg->lock);
    return 0;
}

/* The first part of [*at, end) that no cached region needs watched; false: there is none. */
static bool next_unneeded(struct rme_mreg *mreg, uintptr_t *at, uintptr_t end, uintptr_t *stop)
{
    struct rme_inode *node;

    pthread_mutex_lock(&mreg->lock);
    while (*at < end && (node = rme_itree_overlap(&mreg->index, *at, end)) != NULL &&
           node->start <= *at)
        *at = node->end;
    node = *at < end ? rme_itree_overlap(&mreg->index, *at, end) : NULL;
    *stop = node != NULL ? node->start : end;
    pthread_mutex_unlock(&mreg->lock);
    return *at < end;
}

void mreg_cache_unwatch(struct rme_mreg *mreg, const struct region *region)
{
    uintptr_t at = region->start, stop;

    if (!region->unwatch)
        return;
    pthread_mutex_lock(&mreg->watch_lock);
    while (mreg->monitor != NULL && next_unneeded(mreg, &at, region->end, &stop)) {
        rme_monitor_unwatch(mreg->monitor, at, stop);
        at = stop;
    }
    pthread_mutex_unlock(&mreg->watch_lock);
}
