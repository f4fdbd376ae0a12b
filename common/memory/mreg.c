/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path of acquire.  Segments in zones have keys already, others may be cached.  The rest
 * is sorted by address and cut into groups: adjacent segments are registered together while the
 * pages of the hole between them cost less than one more call, T = a*p + b [001 4.2, 5.1]. Each
 * group is registered by one call, holes included.
 *
 * Failure path.  A group may be refused because of its holes: a few segments are then
 * registered one by one; for many the kernel is asked for the holes, and groups end there
 * (holes.c).  If a single segment is refused, the cache evicts its unused regions, all dead
 * regions are deregistered, and the segment is tried once more.  Then the whole call fails, and
 * the caller copies.
 *
 * Access by peers.  Without windows a registration with a remote right has no rest of a page
 * before its first segment and behind its last.  Where it serves one operation alone
 * (rme_pin_alone), it has no holes either, and neither a zone nor the cache keeps it.
 *
 * End of a hold.  Regions that are not cached go to the list of the dead.  rme_mreg_dereg_flush
 * deregisters all of them in one batch with only its own lock held, so that a second caller
 * waits for the first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/mreg_int.h"

#define CALL_NS_PRESET 10000.0 /* b of T = a*p + b */
#define PAGE_NS_PRESET 250.0   /* a */
#define ASK_NS         1e5     /* cost of asking the kernel for the mappings */

struct rme_mreg_hold {
    uint32_t count;
    struct region *region[];
};

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
    if (config->call_ns <= 0 || config->page_ns <= 0) {
        mreg->config.call_ns = CALL_NS_PRESET;
        mreg->config.page_ns = PAGE_NS_PRESET;
    }
    mreg->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&mreg->lock, NULL);
    pthread_mutex_init(&mreg->dereg_lock, NULL);
    TAILQ_INIT(&mreg->unused);
    TAILQ_INIT(&mreg->dead);
    mreg_demand_open(mreg);
    if (mreg->maps >= 0)
        mreg->config.max_bytes = INT64_MAX;
    mreg_cache_open(mreg);
    *out = mreg;
    return 0;
}

/* Evicts the cache's unused regions, and deregisters them and the dead. */
static void drop_unused(struct rme_mreg *mreg)
{
    pthread_mutex_lock(&mreg->lock);
    mreg_cache_drop_unused(mreg);
    pthread_mutex_unlock(&mreg->lock);
    rme_mreg_dereg_flush(mreg);
}

void rme_mreg_free(struct rme_mreg *mreg)
{
    if (mreg == NULL)
        return;
    drop_unused(mreg); /* ends the watches, which needs the monitor */
    mreg_cache_close(mreg);
    mreg_demand_close(mreg);
    pthread_mutex_destroy(&mreg->dereg_lock);
    pthread_mutex_destroy(&mreg->lock);
    free(mreg);
}

bool rme_mreg_caches(const struct rme_mreg *mreg)
{
    return mreg->monitor != NULL || mreg->follows;
}

uint64_t rme_mreg_bound(const struct rme_mreg *mreg)
{
    return mreg->config.max_bytes;
}

uint64_t rme_mreg_entries(const struct rme_mreg *mreg)
{
    return rme_mreg_caches(mreg) ? mreg->config.max_entries : 0;
}

/* ---- lookup ---- */

/* Finds the keys of empty segments and of those in zones; clears the keys of the others.
 * Returns how many are left.  `now`: slabs may be registered for that, and no lock is held. */
static uint32_t resolve_zones(const struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                              unsigned access, bool now)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct rme_mr *mr;

        seg[i].lkey = seg[i].rkey = 0;
        if (seg[i].length == 0)
            continue;
        if (mreg->config.zone == NULL || rme_zone_show(mreg->config.zone, seg[i].base,
                                                       seg[i].length, access, now, &mr) != 0) {
            left++;
            continue;
        }
        seg[i].lkey = mr->lkey;
        seg[i].rkey = mr->rkey;
        atomic_fetch_add(&mreg->config.pin->hits, 1);
    }
    return left;
}

/* Returns true for a segment without keys.  (Keys of a fabric are never both 0.) */
static bool is_open(const struct rme_mseg *seg)
{
    return seg->length != 0 && seg->lkey == 0 && seg->rkey == 0;
}

/* Finds segments in the cache, and holds their regions.  Returns how many are left. */
static uint32_t resolve_cached(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                               unsigned access, struct rme_mreg_hold *hold)
{
    const struct region *known = NULL;
    uint32_t left = 0;

    pthread_mutex_lock(&mreg->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct region *region;

        if (!is_open(&seg[i]))
            continue;
        region = mreg_cache_get(mreg, seg[i].base, seg[i].length, access, &known);
        if (region == NULL) {
            left++;
            continue;
        }
        hold->region[hold->count++] = region;
        seg[i].lkey = region->mr.lkey;
        seg[i].rkey = region->mr.rkey;
        atomic_fetch_add(&mreg->config.pin->hits, 1);
    }
    pthread_mutex_unlock(&mreg->lock);
    return left;
}

/* ---- registration ---- */

/* Returns true if a peer gets the key of such a registration, which gives access to all of
 * it. */
static bool is_shown(const struct rme_mreg *mreg, unsigned access)
{
    return mreg->config.pin->keys_open && (access & RME_ACCESS_REMOTE) != 0;
}

static uintptr_t start_of(const struct rme_mseg *seg)
{
    return (uintptr_t)seg->base;
}

static uintptr_t end_of(const struct rme_mseg *seg)
{
    return (uintptr_t)seg->base + seg->length;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t left = start_of(*(struct rme_mseg *const *)a),
              right = start_of(*(struct rme_mseg *const *)b);

    return (left > right) - (left < right);
}

/* Allocates a region for `count` segments in order of address, with range and spans set. */
static struct region *region_new(const struct rme_mreg *mreg, struct rme_mseg *const *seg,
                                 uint32_t count, unsigned access)
{
    struct region *region = calloc(1, sizeof(*region) + count * sizeof(region->span[0]));

    if (region == NULL)
        return NULL;
    region->access = access;
    region->exact = is_shown(mreg, access);
    region->refs = 1;
    region->start = start_of(seg[0]);
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t first = region->exact ? start_of(seg[i]) : page_down(mreg, start_of(seg[i])),
                  last = region->exact ? end_of(seg[i]) : page_up(mreg, end_of(seg[i]));
        struct rme_inode *before =
            region->nspans > 0 ? &region->span[region->nspans - 1].node : NULL;

        if (end_of(seg[i]) > region->end)
            region->end = end_of(seg[i]);
        if (before != NULL && first <= before->end) {
            before->end = last > before->end ? last : before->end;
        } else {
            region->span[region->nspans].node.start = first;
            region->span[region->nspans].node.end = last;
            region->span[region->nspans++].region = region;
        }
    }
    return region;
}

/* Extends a region to the whole pages that a cached region has, unless exact. */
static void widen(const struct rme_mreg *mreg, struct region *region)
{
    if (region->exact)
        return;
    region->start = page_down(mreg, region->start);
    region->end = page_up(mreg, region->end);
}

/* Registers a region: into the cache if possible, else exactly its range, for this operation
 * alone. */
static int register_region(struct rme_mreg *mreg, struct region *region, bool quiet)
{
    struct rme_pin *pin = mreg->config.pin;
    int ret = -EAGAIN;

    if (rme_mreg_caches(mreg) && !rme_pin_alone(pin, region->access)) {
        uintptr_t start = region->start, end = region->end;

        widen(mreg, region);
        ret = mreg_cache_register(mreg, region, NULL);
        if (ret == 0)
            return 0;
        region->start = start;
        region->end = end;
    }
    if (ret == -EAGAIN || !quiet) {
        ret = mreg_pin(mreg, region->start, region->end, region->access, !quiet, &region->mr);
    }
    return ret;
}

/* Registers a group of segments as one region. */
static int register_group(struct rme_mreg *mreg, struct rme_mseg **seg, uint32_t count,
                          unsigned access, bool quiet, struct rme_mreg_hold *hold)
{
    struct region *region = region_new(mreg, seg, count, access);
    int ret;

    if (region == NULL)
        return -ENOMEM;
    ret = register_region(mreg, region, quiet);
    if (ret != 0) {
        free(region);
        return ret;
    }
    hold->region[hold->count++] = region;
    for (uint32_t i = 0; i < count; i++) {
        seg[i]->lkey = region->mr.lkey;
        seg[i]->rkey = region->mr.rkey;
    }
    return 0;
}

/* Registers one segment.  After a refusal the cache evicts, the dead are deregistered, and the
 * second refusal is final. */
static int register_one(struct rme_mreg *mreg, struct rme_mseg **seg, unsigned access,
                        struct rme_mreg_hold *hold)
{
    bool again = rme_mreg_caches(mreg) || rme_mreg_wants_dereg(mreg);
    int ret = register_group(mreg, seg, 1, access, again, hold);

    if (ret == 0 || !again)
        return ret;
    drop_unused(mreg);
    return register_group(mreg, seg, 1, access, false, hold);
}

/* Returns how many of the first segments adjoin without a gap. */
static uint32_t joined_length(struct rme_mseg *const *seg, uint32_t count)
{
    uintptr_t end = end_of(seg[0]);
    uint32_t i;

    for (i = 1; i < count && start_of(seg[i]) <= end; i++)
        if (end_of(seg[i]) > end)
            end = end_of(seg[i]);
    return i;
}

/* Returns how many of the first segments form one group. */
static uint32_t group_length(struct rme_mreg *mreg, struct rme_mseg *const *seg, uint32_t count,
                             unsigned access)
{
    uintptr_t end = page_up(mreg, end_of(seg[0]));
    uint32_t i;

    if (rme_pin_alone(mreg->config.pin, access))
        return joined_length(seg, count);
    for (i = 1; i < count; i++) {
        uintptr_t next = page_down(mreg, start_of(seg[i])),
                  last = page_up(mreg, end_of(seg[i]));

        if (next > end && ((double)((next - end) / mreg->page) * mreg->config.page_ns >
                               mreg->config.call_ns ||
                           mreg_hole_between(mreg, end, next, access)))
            break;
        if (last > end)
            end = last;
    }
    return i;
}

/* Registers the first segment or group.  Returns the number of segments, or an error. */
static int register_first(struct rme_mreg *mreg, struct rme_mseg **seg, uint32_t count,
                          unsigned access, struct rme_mreg_hold *hold)
{
    uint32_t group = group_length(mreg, seg, count, access), before;
    int ret = 0;

    do {
        before = group;
        if (group > 1)
            ret = register_group(mreg, seg, group, access, true, hold);
        if (group > 1 && ret == 0)
            return (int)group;
        if (ret == -EFAULT && group * mreg->config.call_ns > ASK_NS) {
            mreg_holes_ask(mreg, end_of(seg[0]), start_of(seg[group - 1]), access);
            group = group_length(mreg, seg, group, access);
        }
    } while (group < before);
    for (uint32_t i = 0; i < group; i++) {
        ret = register_one(mreg, &seg[i], access, hold);
        if (ret != 0)
            return ret;
    }
    return (int)group;
}

static int register_all(struct rme_mreg *mreg, struct rme_mseg **seg, uint32_t count,
                        unsigned access, struct rme_mreg_hold *hold)
{
    int done = 0;

    qsort(seg, count, sizeof(seg[0]), by_address);
    for (uint32_t at = 0; at < count; at += (uint32_t)done) {
        done = register_first(mreg, &seg[at], count - at, access, hold);
        if (done < 0)
            break;
    }
    atomic_fetch_add(&mreg->config.pin->misses, count);
    return done < 0 ? done : 0;
}

/* ---- interface ---- */

static struct rme_mreg_hold *hold_new(uint32_t count)
{
    return calloc(1, sizeof(struct rme_mreg_hold) + count * sizeof(struct region *));
}

/* Registers the segments without keys. */
static int acquire_open(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                        uint32_t left, unsigned access, struct rme_mreg_hold *hold)
{
    struct rme_mseg **open = malloc(left * sizeof(open[0]));
    uint32_t n = 0;
    int ret, cancels;

    if (open == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        if (is_open(&seg[i]))
            open[n++] = &seg[i];
    /* cancellation in a system call would leave a registration half done */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    ret = register_all(mreg, open, n, access, hold);
    pthread_setcancelstate(cancels, NULL);
    free(open);
    return ret;
}

/* Returns the rights including implied ones. */
static unsigned implied(unsigned access)
{
    return access | ((access & RME_ACCESS_REMOTE_WRITE) != 0 ? RME_ACCESS_LOCAL_WRITE : 0);
}

int rme_mreg_acquire(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                     unsigned access, struct rme_mreg_hold **out)
{
    struct rme_mreg_hold *hold = NULL;
    uint32_t left = resolve_zones(mreg, seg, count, access, true);
    int ret;

    access = implied(access);
    if (left > 0) {
        hold = hold_new(left);
        if (hold == NULL)
            return -ENOMEM;
        if (rme_mreg_caches(mreg) && !rme_pin_alone(mreg->config.pin, access))
            left = resolve_cached(mreg, seg, count, access, hold);
    }
    if (left > 0) {
        ret = acquire_open(mreg, seg, count, left, access, hold);
        if (ret != 0) {
            if (rme_mreg_release(mreg, hold))
                rme_mreg_dereg_flush(mreg);
            return ret;
        }
    }
    *out = hold;
    return 0;
}

int rme_mreg_try(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count, unsigned access,
                 struct rme_mreg_hold **out)
{
    struct rme_mreg_hold *hold = NULL;
    uint32_t left = resolve_zones(mreg, seg, count, access, false);

    if (left > 0) {
        hold = rme_mreg_caches(mreg) && !rme_pin_alone(mreg->config.pin, access)
                   ? hold_new(left)
                   : NULL;
        if (hold == NULL)
            return -EAGAIN;
        left = resolve_cached(mreg, seg, count, implied(access), hold);
    }
    if (left > 0) {
        (void)rme_mreg_release(mreg,
                               hold); /* all of it is cached: no deregistration is needed */
        return -EAGAIN;
    }
    *out = hold;
    return 0;
}

bool rme_mreg_release_block(struct rme_mreg *mreg, struct rme_mreg_hold *hold, void *block)
{
    bool died = false;

    pthread_mutex_lock(&mreg->lock);
    if (block != NULL)
        hold->region[0]->block = block;
    for (uint32_t i = 0; i < hold->count; i++)
        died |= mreg_cache_put(mreg, hold->region[i]);
    pthread_mutex_unlock(&mreg->lock);
    free(hold);
    return died;
}

bool rme_mreg_release(struct rme_mreg *mreg, struct rme_mreg_hold *hold)
{
    return hold != NULL && rme_mreg_release_block(mreg, hold, NULL);
}

bool rme_mreg_wants_dereg(const struct rme_mreg *mreg)
{
    return atomic_load(&mreg->pending) != 0;
}

/* Deregisters the first regions of a list, at most DEREG_BATCH.  dereg_lock is held. */
static void bury_some(struct rme_mreg *mreg, struct region_list *list)
{
    struct region *dead[DEREG_BATCH];
    unsigned count;

    for (count = 0; count < DEREG_BATCH && !TAILQ_EMPTY(list); count++) {
        dead[count] = TAILQ_FIRST(list);
        TAILQ_REMOVE(list, dead[count], link);
        rme_pin_dereg(mreg->config.pin, &dead[count]->mr);
    }
    mreg_cache_unwatch(mreg, dead, count);
    for (unsigned i = 0; i < count; i++) {
        if (dead[i]->block != NULL)
            rme_zone_put(mreg->config.zone, dead[i]->block);
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
    pthread_mutex_lock(&mreg->lock);
    TAILQ_CONCAT(&batch, &mreg->dead, link);
    pthread_mutex_unlock(&mreg->lock);
    while (!TAILQ_EMPTY(&batch))
        bury_some(mreg, &batch);
    pthread_mutex_unlock(&mreg->dereg_lock);
    pthread_setcancelstate(cancels, NULL);
}

bool rme_mreg_wants_room(const struct rme_mreg *mreg)
{
    return atomic_load_explicit(&mreg->tight, memory_order_relaxed);
}

void rme_mreg_make_room(struct rme_mreg *mreg)
{
    pthread_mutex_lock(&mreg->lock);
    atomic_store(&mreg->tight, false);
    mreg_cache_make_room(mreg);
    pthread_mutex_unlock(&mreg->lock);
    rme_mreg_dereg_flush(mreg);
}

/* ---- hints ---- */

void rme_mreg_hint(struct rme_mreg *mreg, const void *start, size_t length, unsigned access)
{
    if (!rme_mreg_caches(mreg) || length == 0 || length > UINTPTR_MAX - (uintptr_t)start)
        return;
    if (mreg->config.zone != NULL && rme_zone_owns(mreg->config.zone, start, length))
        return;
    access = implied(access);
    if (mreg->config.pin->each)
        access &= ~RME_ACCESS_REMOTE;
    mreg_hint_add(mreg, (uintptr_t)start, length, access);
}

void rme_mreg_warm(struct rme_mreg *mreg)
{
    struct rme_mseg seg, *segs = &seg;
    struct region *region;
    struct hint hint;
    bool died;

    if (!mreg_hint_oldest(mreg, &hint))
        return;
    seg = (struct rme_mseg){.base = (void *)hint.start, .length = hint.length};
    region = region_new(mreg, &segs, 1, hint.access);
    if (region == NULL)
        return;
    widen(mreg, region);
    if (mreg_cache_register(mreg, region, &hint) != 0) { /* no operation uses it yet */
        free(region);
        return;
    }
    pthread_mutex_lock(&mreg->lock);
    died = mreg_cache_put(mreg, region);
    pthread_mutex_unlock(&mreg->lock);
    if (died)
        rme_mreg_dereg_flush(mreg);
}
