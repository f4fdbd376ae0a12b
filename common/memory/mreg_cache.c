/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The registration cache [000 5.4]: regions found by range, evicted least recently used first,
 * limited by entries and bytes, deregistered in batches by rme_mreg_dereg_flush.
 *
 * No stale region is used.  A region is entered into the index, then its pages are watched,
 * then registered, and only then it is live.  An unmap after the watch takes the region out of
 * the index; an earlier one does no harm, because registration pins the later memory.  A lookup
 * asks the monitor whether the region's memory is still watched, which finds changes without an
 * event so far (monitor.c); events are read under the lock of lookups.  A change of a hole of a
 * group takes the region out, too.
 *
 * Discards (MADV_DONTNEED) are reported first, and take the pages away after the event was
 * read: a region that is entered in between would lose its pages without another event.  A host
 * discards neither the memory of an operation nor that of a hint before the call returns.
 *
 * Rights.  A region serves uses that need no more rights than the region has.  A peer gets only
 * the direction that its operation needs: memory that one peer reads and another writes has two
 * registrations.
 *
 * End of a hold.  Regions that are not cached go to the list of the dead.  rme_mreg_dereg_flush
 * deregisters all of them in one batch with only its own lock held, so that a second caller
 * waits for the first.
 *
 * Memory that comes on demand is cached without a monitor: each look-up asks the kernel
 * (demand.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/remedy.h"
#include "memory/demand.h"
#include "memory/mreg_int.h"

/* a hint registers at most this fraction of the cache's bytes */
#define HINT_SHARE  4
#define DEREG_BATCH 64

static struct region *region_of(const struct rme_inode *node)
{
    return container_of(node, struct region, node);
}

/* ---- registration by the device ---- */

int mreg_pin(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access, bool loud,
             struct rme_mr *mr)
{
    struct rme_pin *pin = mreg->config.pin;
    int ret = 0;

    if (mreg->demand >= 0) {
        ret = rme_demand_check(mreg->demand, pin, start, end, access);
        access |= RME_ACCESS_DEMAND;
    }
    if (ret != 0)
        return ret;
    return (loud ? rme_pin_reg : rme_pin_try)(pin, (void *)start, end - start, access, mr);
}

/* ---- index: the lock is held ---- */

static void bury(struct rme_mreg *mreg, struct region *region)
{
    TAILQ_INSERT_TAIL(&mreg->dead, region, link);
    atomic_fetch_add(&mreg->pending, 1);
    atomic_store(&mreg->config.pin->chores, true);
}

/* Removes a region from the index.  Without holds it is dead. */
static void forget(struct rme_mreg *mreg, struct region *region)
{
    rme_itree_remove(&mreg->index, &region->node);
    region->indexed = false;
    mreg->entries--;
    mreg->bytes -= region->node.end - region->node.start;
    if (mreg->monitor != NULL)
        rme_monitor_drop(mreg->monitor, &region->watch);
    if (region->refs == 0) {
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
        forget(mreg, region_of(node));
}

bool mreg_cache_put(struct rme_mreg *mreg, struct region *region)
{
    if (--region->refs > 0)
        return false;
    if (!region->indexed) {
        bury(mreg, region);
        return true;
    }
    TAILQ_INSERT_TAIL(&mreg->unused, region, link);
    if (!atomic_load(&mreg->lost))
        return false;
    forget(mreg, region); /* no event reports the unmapping of this memory */
    return true;
}

bool rme_mreg_caches(const struct rme_mreg *mreg)
{
    return mreg->follows || (mreg->monitor != NULL && !atomic_load(&mreg->lost));
}

/* ---- lookup ---- */

/* Returns true if a registration with rights `has` serves a use that needs `wanted`.  A remote
 * right beyond the wanted ones is refused. */
static bool serves(unsigned has, unsigned wanted)
{
    return (has & wanted) == wanted &&
           ((wanted & RME_ACCESS_REMOTE) == 0 ||
            (has & RME_ACCESS_REMOTE) == (wanted & RME_ACCESS_REMOTE));
}

static bool has_rights(const struct rme_inode *node, const void *arg)
{
    const struct region *region = region_of(node);

    return region->live && serves(region->access, *(const unsigned *)arg);
}

/* Returns true if a cached region is unchanged; of memory that comes on demand, if the range
 * that is looked up is there. */
static bool still(struct rme_mreg *mreg, struct region *region, uintptr_t start,
                  uint64_t length, const struct region **known)
{
    if (mreg->follows)
        return rme_demand_check(mreg->demand, mreg->config.pin, start, start + length,
                                region->access) == 0;
    if (region != *known && !rme_monitor_still(mreg->monitor, &region->watch))
        return false;
    *known = region;
    return true;
}

struct region *mreg_cache_get(struct rme_mreg *mreg, const void *start, uint64_t length,
                              unsigned access, const struct region **known)
{
    uintptr_t from = (uintptr_t)start;
    struct rme_inode *node;

    while ((node = rme_itree_cover(&mreg->index, from, from + length, has_rights, &access)) !=
           NULL) {
        struct region *region = region_of(node);

        if (!still(mreg, region, from, length, known)) {
            forget(mreg, region);
            continue;
        }
        if (region->refs++ == 0)
            TAILQ_REMOVE(&mreg->unused, region, link);
        return region;
    }
    return NULL;
}

/* ---- deregistration ---- */

bool rme_mreg_wants_dereg(const struct rme_mreg *mreg)
{
    return atomic_load(&mreg->pending) != 0;
}

/* Inserts a watch in the order of addresses; regions that are evicted in turn are often in that
 * order. */
static void sort_in(struct rme_watch **watch, unsigned count, struct rme_watch *new)
{
    for (; count > 0 && watch[count - 1]->claim.start > new->claim.start; count--)
        watch[count] = watch[count - 1];
    watch[count] = new;
}

/* Deregisters the first regions of a list, at most DEREG_BATCH, and then ends the watches that
 * only they needed.  dereg_lock is held. */
static void bury_some(struct rme_mreg *mreg, struct region_list *list)
{
    struct region *dead[DEREG_BATCH];
    struct rme_watch *watch[DEREG_BATCH];
    unsigned count, watches = 0;

    for (count = 0; count < DEREG_BATCH && !TAILQ_EMPTY(list); count++) {
        dead[count] = TAILQ_FIRST(list);
        TAILQ_REMOVE(list, dead[count], link);
        rme_pin_dereg(mreg->config.pin, &dead[count]->mr);
        if (dead[count]->watch.state != RME_WATCH_NEW)
            sort_in(watch, watches++, &dead[count]->watch);
    }
    if (watches > 0)
        rme_monitor_unwatch(mreg->monitor, watch, watches);
    for (unsigned i = 0; i < count; i++) {
        if (dead[i]->block != NULL)
            rme_zone_release(mreg->config.zone, dead[i]->block);
        free(dead[i]);
    }
    atomic_fetch_sub(&mreg->pending, count);
}

void rme_mreg_dereg_flush(struct rme_mreg *mreg)
{
    struct region_list batch = TAILQ_HEAD_INITIALIZER(batch);
    int cancels;

    if (!rme_mreg_wants_dereg(mreg))
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    pthread_mutex_lock(&mreg->dereg_lock);
    pthread_mutex_lock(mreg->lock);
    TAILQ_CONCAT(&batch, &mreg->dead, link);
    pthread_mutex_unlock(mreg->lock);
    while (!TAILQ_EMPTY(&batch))
        bury_some(mreg, &batch);
    pthread_mutex_unlock(&mreg->dereg_lock);
    pthread_setcancelstate(cancels, NULL);
}

/* ---- limits ---- */

/* Evicts the region that was unused longest.  The lock is held.  False: all are in use. */
static bool evict(struct rme_mreg *mreg)
{
    struct region *region = TAILQ_FIRST(&mreg->unused);

    if (region == NULL)
        return false;
    forget(mreg, region);
    atomic_fetch_add(&mreg->config.pin->evictions, 1);
    return true;
}

void mreg_drop_unused(struct rme_mreg *mreg)
{
    pthread_mutex_lock(mreg->lock);
    while (evict(mreg))
        ;
    pthread_mutex_unlock(mreg->lock);
    rme_mreg_dereg_flush(mreg);
}

/* Evicts unused regions until `more` bytes fit, and then some more of them, so that they are
 * deregistered together.  The lock is held.  False: used regions leave no room. */
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
    for (; evicted > 0 && evicted < config->batch && evict(mreg); evicted++)
        ;
    return true;
}

/* ---- registration ---- */

struct region *mreg_region_new(uintptr_t start, uintptr_t end, unsigned access)
{
    struct region *region = calloc(1, sizeof(*region));

    if (region == NULL)
        return NULL;
    region->start = start;
    region->end = end;
    region->access = access;
    region->refs = 1;
    return region;
}

static uintptr_t page_down(const struct rme_mreg *mreg, uintptr_t at)
{
    return at & ~(mreg->page - 1);
}

/* Enters a region that is not live yet.  The lock is held.  False: no room. */
static bool enter(struct rme_mreg *mreg, struct region *region)
{
    bool exact = mreg->config.pin->keys_open && (region->access & RME_ACCESS_REMOTE) != 0;
    uintptr_t start = page_down(mreg, region->start),
              end = page_down(mreg, region->end + mreg->page - 1);

    region->watch.claim.start = start;
    region->watch.claim.end = end;
    region->node.start = exact ? region->start : start;
    region->node.end = exact ? region->end : end;
    region->indexed = make_room(mreg, region->node.end - region->node.start);
    if (region->indexed) {
        rme_itree_insert(&mreg->index, &region->node);
        mreg->entries++;
        mreg->bytes += region->node.end - region->node.start;
    }
    return region->indexed;
}

/* Undoes the entry of a region that never became live. */
static void leave(struct rme_mreg *mreg, struct region *region)
{
    struct rme_watch *watch = &region->watch;

    pthread_mutex_lock(mreg->lock);
    if (region->indexed)
        forget(mreg, region);
    pthread_mutex_unlock(mreg->lock);
    if (mreg->monitor != NULL)
        rme_monitor_unwatch(mreg->monitor, &watch, 1);
    *watch = (struct rme_watch){.state = RME_WATCH_NEW};
}

/* Stops caching once the monitor has lost its descriptors. */
static void notice_loss(struct rme_mreg *mreg)
{
    if (!rme_monitor_is_lost(mreg->monitor) || atomic_exchange(&mreg->lost, true))
        return;
    rme_log_put(mreg->config.pin->log, RME_LOG_WARN,
                "registration cache: off from now on, memory is registered for each operation: "
                "unmapping cannot be watched any more: the program has closed descriptors of "
                "this library; close only descriptors that the program has opened");
    mreg_drop_unused(mreg);
}

static int register_entered(struct rme_mreg *mreg, struct region *region)
{
    int ret = -EAGAIN;

    if (!mreg->follows && !rme_monitor_watch(mreg->monitor, &region->watch))
        notice_loss(mreg);
    else
        ret = mreg_pin(mreg, region->node.start, region->node.end, region->access, false,
                       &region->mr);
    if (ret != 0) {
        leave(mreg, region);
        return ret;
    }
    pthread_mutex_lock(mreg->lock);
    region->live = true;
    pthread_mutex_unlock(mreg->lock);
    return 0;
}

int mreg_cache_register(struct rme_mreg *mreg, struct region *region)
{
    bool entered;

    pthread_mutex_lock(mreg->lock);
    entered = enter(mreg, region);
    pthread_mutex_unlock(mreg->lock);
    return entered ? register_entered(mreg, region) : -EAGAIN;
}

/* ---- hints ---- */

void rme_mreg_hint(struct rme_mreg *mreg, void *start, uint64_t length, unsigned access)
{
    const struct region *known = NULL;
    struct region *region;
    int cancels;

    if (!rme_mreg_caches(mreg) || length == 0 || length > UINTPTR_MAX - (uintptr_t)start)
        return;
    if (mreg->config.zone != NULL && rme_zone_owns(mreg->config.zone, start, length))
        return;
    access = mreg_implied(access);
    if (mreg->config.pin->each)
        access &= ~RME_ACCESS_REMOTE;
    if (length > mreg->config.max_bytes / HINT_SHARE)
        length = mreg->config.max_bytes / HINT_SHARE;
    pthread_mutex_lock(mreg->lock);
    region = mreg_cache_get(mreg, start, length, access, &known);
    pthread_mutex_unlock(mreg->lock);
    if (region == NULL)
        region = mreg_region_new((uintptr_t)start, (uintptr_t)start + length, access);
    if (region == NULL)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    if (region->live || mreg_cache_register(mreg, region) == 0) {
        pthread_mutex_lock(mreg->lock);
        (void)mreg_cache_put(mreg, region);
        pthread_mutex_unlock(mreg->lock);
    } else {
        free(region);
    }
    rme_mreg_dereg_flush(mreg);
    pthread_setcancelstate(cancels, NULL);
}

/* ---- start and end ---- */

/* Starts the monitor if the limits allow a cache, unless memory comes on demand. */
static void open_cache(struct rme_mreg *mreg)
{
    int ret = 0;

    if (mreg->config.max_entries == 0 || mreg->config.max_bytes == 0)
        return;
    mreg->follows = mreg->demand >= 0;
    mreg->watcher = (struct rme_watcher){.gone = gone, .arg = mreg};
    if (!mreg->follows)
        ret = rme_monitor_join(&mreg->watcher, &mreg->monitor);
    if (mreg->monitor != NULL)
        mreg->lock = rme_monitor_lock(mreg->monitor);
    if (ret != 0)
        rme_log_put(
            mreg->config.pin->log, RME_LOG_WARN,
            "registration cache: off, memory is registered for each operation: unmapping "
            "cannot be watched (userfaultfd: %s); %s",
            strerror(-ret),
            rme_remedy(
                ret, "use Linux 5.14 or later, and in a container allow userfaultfd (seccomp, "
                     "/proc)"));
}

int rme_mreg_new(const struct rme_mreg_config *config, struct rme_mreg **out)
{
    struct rme_mreg *mreg = calloc(1, sizeof(*mreg));

    if (mreg == NULL)
        return -ENOMEM;
    mreg->config = *config;
    if (config->batch > config->max_entries / 8)
        mreg->config.batch = (uint32_t)(config->max_entries / 8);
    if (config->max_bytes == UINT64_MAX)
        mreg->config.max_bytes = rme_pin_budget() / 4;
    mreg->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&mreg->own_lock, NULL);
    mreg->lock = &mreg->own_lock;
    pthread_mutex_init(&mreg->dereg_lock, NULL);
    TAILQ_INIT(&mreg->unused);
    TAILQ_INIT(&mreg->dead);
    mreg->demand = rme_demand_open(config->pin);
    if (mreg->demand >= 0)
        mreg->config.max_bytes = INT64_MAX; /* such memory is not pinned */
    open_cache(mreg);
    *out = mreg;
    return 0;
}

void rme_mreg_free(struct rme_mreg *mreg)
{
    if (mreg == NULL)
        return;
    mreg_drop_unused(mreg); /* ends the watches, which needs the monitor */
    rme_monitor_leave(mreg->monitor, &mreg->watcher);
    rme_demand_close(mreg->demand);
    pthread_mutex_destroy(&mreg->dereg_lock);
    pthread_mutex_destroy(&mreg->own_lock);
    free(mreg);
}

uint64_t rme_mreg_bound(const struct rme_mreg *mreg)
{
    return mreg->config.max_bytes;
}

uint64_t rme_mreg_entries(const struct rme_mreg *mreg)
{
    return rme_mreg_caches(mreg) ? mreg->config.max_entries : 0;
}
