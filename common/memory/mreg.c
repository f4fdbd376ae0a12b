/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path of acquire.  Segments in zones have keys already, others may be cached.  The rest
 * is sorted by address and cut into groups: adjacent segments are registered together while the
 * pages of the hole between them cost less than one more call, T = a*p + b [001 4.2, 5.1]. Each
 * group is registered by one call, holes included.
 *
 * Failure path.  A group may be refused because of its holes, which are unmapped or lack the
 * needed rights [001 4.2.2]: a few segments are then registered one by one; for many the kernel
 * is asked for the holes, and groups end there.  The answer is recorded, separately for reads
 * and writes, so that later groups end there without a refusal; a hole is forgotten after
 * HOLE_USES uses, and the group is tried again.  If a single segment is refused, the cache
 * evicts its unused regions, all dead regions are deregistered, and the segment is tried once
 * more.  Then the whole call fails, and the caller copies.
 *
 * Access by peers.  Without windows a registration with a remote right has no rest of a page
 * before its first segment and behind its last.  Where it serves one operation alone
 * (rme_pin_alone), it has no holes either, and neither a zone nor the cache keeps it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory/mreg_int.h"

#define ASK_NS    1e5 /* cost of asking the kernel for the mappings */
#define HOLE_USES 64

struct rme_mreg_hold {
    uint32_t count;
    struct region *region[];
};

/* Returns true if registrations with these rights may be cached. */
static bool caches_for(const struct rme_mreg *mreg, unsigned access)
{
    return rme_mreg_caches(mreg) && !rme_pin_alone(mreg->config.pin, access);
}

/* ---- lookup ---- */

static void set_keys(struct rme_mreg *mreg, struct rme_mseg *seg, const struct rme_mr *mr)
{
    seg->lkey = mr->lkey;
    seg->rkey = mr->rkey;
    atomic_fetch_add(&mreg->config.pin->hits, 1);
}

/* Finds the keys of empty segments and of those in zones; clears the keys of the others.
 * Returns how many are left. */
static uint32_t resolve_zones(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                              unsigned access)
{
    struct rme_zone *zone = mreg->config.zone;
    uint32_t left = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct rme_mr *mr;

        seg[i].lkey = seg[i].rkey = 0;
        if (seg[i].length == 0)
            continue;
        if (zone != NULL && rme_zone_find(zone, seg[i].base, seg[i].length, access, &mr) == 0)
            set_keys(mreg, &seg[i], mr);
        else
            left++;
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

    pthread_mutex_lock(mreg->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct region *region;

        if (!is_open(&seg[i]))
            continue;
        region = mreg_cache_get(mreg, seg[i].base, seg[i].length, access, &known);
        if (region != NULL) {
            hold->region[hold->count++] = region;
            set_keys(mreg, &seg[i], &region->mr);
        } else {
            left++;
        }
    }
    pthread_mutex_unlock(mreg->lock);
    return left;
}

/* ---- holes ---- */

/* Returns true if a recorded hole lies in a range between two segments. */
static bool hole_between(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, bool writes)
{
    bool found = false;

    if (atomic_load_explicit(&mreg->holes, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(mreg->lock);
    for (unsigned i = 0; i < HOLES && !found; i++) {
        struct hole *hole = &mreg->hole[i];

        found =
            hole->uses > 0 && hole->writes == writes && hole->start < end && hole->end > start;
        if (found)
            hole->uses--;
    }
    pthread_mutex_unlock(mreg->lock);
    return found;
}

static void record_hole(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, bool writes)
{
    pthread_mutex_lock(mreg->lock);
    mreg->hole[mreg->holes++ % HOLES] =
        (struct hole){.start = start, .end = end, .writes = writes, .uses = HOLE_USES};
    pthread_mutex_unlock(mreg->lock);
}

/* Asks the kernel for the holes of a range whose registration was refused, and records the
 * first HOLES of them. */
static void ask_for_holes(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, bool writes)
{
    FILE *maps = start < end ? fopen("/proc/self/maps", "re") : NULL; /* else adjacent */
    char *line = NULL, rights[3];
    uintptr_t from, to;
    size_t size = 0;

    for (int found = 0; maps != NULL && start < end && found < HOLES;) {
        if (getline(&line, &size, maps) < 0)
            break;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %2s", &from, &to, rights) != 3 ||
            to <= start || (writes ? rights[1] != 'w' : rights[0] != 'r'))
            continue;
        if (from > start) {
            record_hole(mreg, start, from < end ? from : end, writes);
            found++;
        }
        start = to;
    }
    free(line);
    if (maps != NULL)
        fclose(maps);
}

/* ---- registration ---- */

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

/* Registers a group of segments, in order of address, as one region: into the cache if
 * possible, else exactly its range, for this operation alone. */
static int register_group(struct rme_mreg *mreg, struct rme_mseg **seg, uint32_t count,
                          unsigned access, bool quiet, struct rme_mreg_hold *hold)
{
    struct region *region = mreg_region_new(start_of(seg[0]), 0, access);
    int ret = -EAGAIN;

    if (region == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        if (end_of(seg[i]) > region->end)
            region->end = end_of(seg[i]);
    if (caches_for(mreg, access))
        ret = mreg_cache_register(mreg, region);
    if (ret == -EAGAIN || (ret != 0 && !quiet))
        ret = mreg_pin(mreg, region->start, region->end, access, !quiet, &region->mr);
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
    mreg_drop_unused(mreg);
    return register_group(mreg, seg, 1, access, false, hold);
}

/* Returns true if a group goes on across a gap of whole pages. */
static bool spans(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access)
{
    double pages = (double)((end - start) / mreg->page);

    return pages * mreg->config.page_ns <= mreg->config.call_ns &&
           !hole_between(mreg, start, end, (access & RME_ACCESS_LOCAL_WRITE) != 0);
}

/* Returns how many of the first segments form one group: for one operation alone those without
 * a gap, else those with gaps that are worth it. */
static uint32_t group_length(struct rme_mreg *mreg, struct rme_mseg *const *seg, uint32_t count,
                             unsigned access)
{
    uintptr_t unit = rme_pin_alone(mreg->config.pin, access) ? 1 : mreg->page, end = 0;
    uint32_t i;

    for (i = 0; i < count; i++) {
        uintptr_t next = start_of(seg[i]) / unit * unit,
                  last = (end_of(seg[i]) + unit - 1) / unit * unit;

        if (i > 0 && next > end && (unit == 1 || !spans(mreg, end, next, access)))
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
            ask_for_holes(mreg, end_of(seg[0]), start_of(seg[group - 1]),
                          (access & RME_ACCESS_LOCAL_WRITE) != 0);
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

/* Registers the segments without keys, of which there are `left`. */
static int register_open(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t left,
                         unsigned access, struct rme_mreg_hold *hold)
{
    struct rme_mseg **open = malloc(left * sizeof(open[0]));
    int done = 0, cancels;

    if (open == NULL)
        return -ENOMEM;
    for (uint32_t n = 0; n < left; seg++)
        if (is_open(seg))
            open[n++] = seg;
    qsort(open, left, sizeof(open[0]), by_address);
    /* cancellation in a system call would leave a registration half done */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    for (uint32_t at = 0; at < left && done >= 0; at += (uint32_t)done)
        done = register_first(mreg, &open[at], left - at, access, hold);
    pthread_setcancelstate(cancels, NULL);
    atomic_fetch_add(&mreg->config.pin->misses, left);
    free(open);
    return done < 0 ? done : 0;
}

/* ---- interface ---- */

/* Finds the keys that need no registration.  Returns how many segments are left, or -ENOMEM. */
static int64_t find_keys(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                         unsigned access, struct rme_mreg_hold **hold)
{
    uint32_t left = resolve_zones(mreg, seg, count, access);

    *hold = NULL;
    if (left == 0)
        return 0;
    *hold = calloc(1, sizeof(**hold) + left * sizeof((*hold)->region[0]));
    if (*hold == NULL)
        return -ENOMEM;
    return caches_for(mreg, access) ? resolve_cached(mreg, seg, count, access, *hold) : left;
}

int rme_mreg_acquire(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                     unsigned access, struct rme_mreg_hold **out)
{
    struct rme_mreg_hold *hold;
    int64_t ret;

    access = mreg_implied(access);
    ret = find_keys(mreg, seg, count, access, &hold);
    if (ret > 0)
        ret = register_open(mreg, seg, (uint32_t)ret, access, hold);
    if (ret == 0)
        *out = hold;
    else if (rme_mreg_release(mreg, hold))
        rme_mreg_dereg_flush(mreg);
    return (int)ret;
}

int rme_mreg_try(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count, unsigned access,
                 struct rme_mreg_hold **out)
{
    struct rme_mreg_hold *hold;

    if (find_keys(mreg, seg, count, mreg_implied(access), &hold) == 0) {
        *out = hold;
        return 0;
    }
    (void)rme_mreg_release(mreg, hold); /* all of it is cached: no deregistration is needed */
    return -EAGAIN;
}

bool rme_mreg_release_block(struct rme_mreg *mreg, struct rme_mreg_hold *hold, void *block)
{
    bool died = false;

    pthread_mutex_lock(mreg->lock);
    if (block != NULL)
        hold->region[0]->block = block;
    for (uint32_t i = 0; i < hold->count; i++)
        died |= mreg_cache_put(mreg, hold->region[i]);
    pthread_mutex_unlock(mreg->lock);
    free(hold);
    return died;
}

bool rme_mreg_release(struct rme_mreg *mreg, struct rme_mreg_hold *hold)
{
    return hold != NULL && rme_mreg_release_block(mreg, hold, NULL);
}
