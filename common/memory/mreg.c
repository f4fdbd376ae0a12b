/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path of acquire.  Segments in zones have keys already, others may be cached.  The rest
 * is sorted by address and cut into groups: adjacent segments are registered together while the
 * pages of the hole between them cost less than one more call, T = a*p + b [001 4.2, 5.1]. Each
 * group is registered by one call, holes included.
 *
 * Failure path.  A group may be refused because of its holes, which are unmapped or lack the
 * needed rights [001 4.2.2]: a few segments are then registered one by one; for many the kernel
 * is asked for the holes, and groups end there.  If a single segment is refused for lack of
 * resources, the cache evicts its unused regions, all dead regions are deregistered, and the
 * segment is tried once more.  Then the whole call fails, and the caller copies.
 *
 * The cache [000 5.4].  Regions are found by range, evicted least recently used first, and
 * limited by entries and bytes.  No stale region is used.  A region is entered into the index,
 * then its pages are watched, then registered, and only then it is live.  An unmap after the
 * watch takes the region out of the index; an earlier one does no harm, because registration
 * pins the later memory.  A look-up asks the monitor whether the region's memory is still
 * watched, which finds changes without an event so far (monitor.c); events are read under the
 * lock of look-ups.  A change of a hole of a group takes the region out, too.  Memory that
 * comes on demand is cached without a monitor: each look-up asks the kernel (demand.h).
 *
 * Discards (MADV_DONTNEED) are reported first, and take the pages away after the event was
 * read: a region that is entered in between would lose its pages without another event.  A host
 * discards neither the memory of an operation nor that of a hint before the call returns.  A
 * hole of a group is other memory, which an allocator may be discarding: a cached group serves
 * uses within the pages of its segments (its spans) only.
 *
 * Rights.  A region serves uses that need no more rights than the region has.  A peer gets only
 * the direction that its operation needs: memory that one peer reads and another writes has two
 * registrations.  Without windows a registration with a remote right begins and ends with the
 * bytes of its segments, not with their pages.  A registration for one operation alone
 * (rme_pin_alone) has no holes either, and belongs neither to a zone nor to the cache.
 *
 * End.  A region without holds that is not cached is dead.  rme_mreg_dereg_flush deregisters
 * the dead in batches with only its own lock held, so that a second caller waits for the first.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/itree.h"
#include "base/list.h"
#include "memory/demand.h"
#include "memory/monitor.h"
#include "memory/mreg.h"

#define ASK_NS     1e5 /* cost of asking the kernel for the mappings */
#define HINT_SHARE 4   /* a hint registers at most this fraction of the cache's bytes */

/* A segment without keys. */
struct part {
    uintptr_t start, end;
    struct rme_mseg *seg;
    bool hole; /* the memory before it cannot be registered */
};

struct span {
    uintptr_t start, end;
};

/* One registration of user memory: of one segment, or of a group with the holes between its
 * segments.  Allocated with one hold, and freed by the flush. */
struct region {
    /* The registered range: of a region for one operation, or for a key that opens all of it,
     * the host's bytes, else whole pages. */
    struct rme_inode node;
    struct list_head link;  /* in `unused` or `dead` */
    struct rme_watch watch; /* of a cached region: the pages of `node` */
    struct rme_mr mr;
    unsigned access;
    unsigned refs; /* holds */
    bool indexed;  /* in the index: cached, and not known to have changed */
    bool live;     /* registered: the keys are valid */
    void *block;   /* block of the zone that is released when this is deregistered, or NULL */
    uint32_t spans;
    struct span span[]; /* the pages of the segments, in order of address */
};

struct rme_mreg_hold {
    uint32_t count;
    struct region *region[];
};

struct rme_mreg {
    struct rme_mreg_config config;
    uintptr_t page;
    int demand;                  /* descriptor of demand.h; -1: memory is pinned */
    struct rme_monitor *monitor; /* NULL: no cache, or memory on demand */
    struct rme_watcher watcher;
    atomic_bool caches; /* the cache is in use */
    /* The lock of the monitor, or `own_lock`.  Guards the fields below; nothing is allocated,
     * freed or registered under it. */
    pthread_mutex_t *lock, own_lock;
    struct rme_itree index;       /* cached regions */
    struct list_head unused;      /* cached, without holds; least recently used first */
    struct list_head dead;        /* to be deregistered */
    uint64_t entries, bytes;      /* of cached regions */
    atomic_uint_fast64_t pending; /* dead regions that are not deregistered yet */
    /* one thread at a time deregisters; taken before `lock` and before the lock of the zone */
    pthread_mutex_t dereg_lock;
};

/* Returns the rights including implied ones. */
static unsigned implied(unsigned access)
{
    return access | ((access & RME_ACCESS_REMOTE_WRITE) != 0 ? RME_ACCESS_LOCAL_WRITE : 0);
}

static struct region *region_of(const struct rme_inode *node)
{
    return container_of(node, struct region, node);
}

bool rme_mreg_caches(const struct rme_mreg *mreg)
{
    return atomic_load(&mreg->caches);
}

/* Returns true if registrations with these rights may be cached. */
static bool caches_for(const struct rme_mreg *mreg, unsigned access)
{
    return rme_mreg_caches(mreg) && !rme_pin_alone(mreg->config.pin, access);
}

/* ---- index: the lock is held ---- */

static void queue_dereg(struct rme_mreg *mreg, struct region *region)
{
    list_add_tail(&region->link, &mreg->dead);
    atomic_fetch_add(&mreg->pending, 1);
    atomic_store(&mreg->config.pin->chores, true);
}

/* Removes a region from the index.  Without holds it is dead. */
static void unindex(struct rme_mreg *mreg, struct region *region)
{
    rme_itree_remove(&mreg->index, &region->node);
    region->indexed = false;
    mreg->entries--;
    mreg->bytes -= region->node.end - region->node.start;
    if (mreg->monitor != NULL)
        rme_monitor_drop(mreg->monitor, &region->watch);
    if (region->refs == 0) {
        list_del_init(&region->link);
        queue_dereg(mreg, region);
    }
}

/* Called by the monitor: this memory has changed.  Wakes a sleeping thread for the first dead
 * region; the thread that deregisters an earlier one, which was woken or is in a call, takes
 * all of them. */
static void on_unmap(void *arg, uintptr_t start, uintptr_t end)
{
    struct rme_mreg *mreg = arg;
    const struct rme_pin *pin = mreg->config.pin;
    bool idle = list_empty(&mreg->dead);
    struct rme_inode *node;

    while ((node = rme_itree_overlap(&mreg->index, start, end)) != NULL)
        unindex(mreg, region_of(node));
    if (idle && !list_empty(&mreg->dead) && atomic_load(&pin->asleep))
        pin->ops->wake(pin->fabric);
}

/* Ends a hold.  True: the region is dead. */
static bool put(struct rme_mreg *mreg, struct region *region)
{
    /* no event reports changes after the monitor was lost */
    if (region->indexed && !(region->live && rme_mreg_caches(mreg)))
        unindex(mreg, region);
    if (--region->refs > 0)
        return false;
    if (region->indexed)
        list_add_tail(&region->link, &mreg->unused);
    else
        queue_dereg(mreg, region);
    return !region->indexed;
}

/* Evicts the region that was unused longest.  False: all are in use. */
static bool evict(struct rme_mreg *mreg)
{
    struct region *region = list_first(&mreg->unused, struct region, link);

    if (region == NULL)
        return false;
    unindex(mreg, region);
    rme_pin_count(mreg->config.pin, RME_C_REG_EVICTIONS, 1);
    return true;
}

/* Evicts unused regions until `more` bytes fit, and then some more of them, so that they are
 * deregistered together.  False: used regions leave no room. */
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

struct use {
    uintptr_t start, end;
    unsigned access;
};

/* Returns true if a live region, which covers a use, has the rights that the use needs, no
 * remote right beyond them if a peer uses the region, and no hole there. */
static bool serves(const struct rme_inode *node, const void *arg)
{
    const struct region *region = region_of(node);
    const struct use *use = arg;
    unsigned wanted = use->access;
    unsigned compared = wanted | ((wanted & RME_ACCESS_REMOTE) != 0 ? RME_ACCESS_REMOTE : 0);
    uint32_t at = 0, behind = region->spans;

    while (behind - at > 1) {
        uint32_t middle = at + (behind - at) / 2;

        *(region->span[middle].start <= use->start ? &at : &behind) = middle;
    }
    return region->live && (region->access & compared) == wanted &&
           use->end <= region->span[at].end;
}

/*
 * Returns a cached region that covers the range with these rights and is still the same memory,
 * of memory on demand one whose range is mapped, with one more hold; NULL: none.  `known` is a
 * region of watched memory that was found since the lock was taken, or NULL; it is not checked
 * again.
 */
static struct region *find(struct rme_mreg *mreg, uintptr_t start, uintptr_t end,
                           unsigned access, const struct region *known)
{
    const struct use use = {start, end, access};
    struct rme_inode *node;

    while ((node = rme_itree_cover(&mreg->index, start, end, serves, &use)) != NULL) {
        struct region *region = region_of(node);
        bool same = region == known;

        if (mreg->demand >= 0)
            same = rme_demand_check(mreg->demand, mreg->config.pin, start, end,
                                    region->access) == 0;
        else if (!same)
            same = rme_monitor_still(mreg->monitor, &region->watch);
        if (same) {
            if (region->refs++ == 0)
                list_del_init(&region->link);
            return region;
        }
        unindex(mreg, region);
    }
    return NULL;
}

/* ---- deregistration ---- */

bool rme_mreg_wants_dereg(const struct rme_mreg *mreg)
{
    return atomic_load(&mreg->pending) != 0;
}

void rme_mreg_dereg_flush(struct rme_mreg *mreg)
{
    struct list_head batch = LIST_EMPTY_RING(batch);
    struct rme_itree watched = {NULL};
    struct region *region;
    int cancels;

    if (!rme_mreg_wants_dereg(mreg))
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    pthread_mutex_lock(&mreg->dereg_lock);
    pthread_mutex_lock(mreg->lock);
    list_move_all(&mreg->dead, &batch);
    pthread_mutex_unlock(mreg->lock);
    list_for_each(region, &batch, link) {
        if (region->live)
            rme_pin_dereg(mreg->config.pin, &region->mr);
        if (region->watch.state != RME_WATCH_NEW)
            rme_itree_insert(&watched, &region->watch.claim);
    }
    if (watched.root != NULL)
        rme_monitor_unwatch(mreg->monitor, &watched);
    while ((region = list_first(&batch, struct region, link)) != NULL) {
        list_del_init(&region->link);
        if (region->block != NULL)
            rme_zone_release(mreg->config.zone, region->block);
        free(region);
        atomic_fetch_sub(&mreg->pending, 1);
    }
    pthread_mutex_unlock(&mreg->dereg_lock);
    pthread_setcancelstate(cancels, NULL);
}

/* Evicts all unused regions, and deregisters them and the dead. */
static void drop_unused(struct rme_mreg *mreg)
{
    pthread_mutex_lock(mreg->lock);
    while (evict(mreg))
        ;
    pthread_mutex_unlock(mreg->lock);
    rme_mreg_dereg_flush(mreg);
}

/* ---- registration ---- */

/* Enters a region into the index, and watches its pages.  False: there is no room, or changes
 * of the memory are not reported.  No cache is used any more if the monitor has lost its
 * descriptors. */
static bool enter(struct rme_mreg *mreg, struct region *region)
{
    bool exact = mreg->config.pin->caps->mws == 0 && (region->access & RME_ACCESS_REMOTE) != 0;
    struct rme_inode *node = &region->node, *claim = &region->watch.claim;
    bool fits;
    int ret;

    claim->start = node->start & ~(mreg->page - 1);
    claim->end = (node->end + mreg->page - 1) & ~(mreg->page - 1);
    if (!exact) {
        node->start = claim->start;
        node->end = claim->end;
    }
    pthread_mutex_lock(mreg->lock);
    region->indexed = fits = make_room(mreg, node->end - node->start);
    if (fits) {
        rme_itree_insert(&mreg->index, node);
        mreg->entries++;
        mreg->bytes += node->end - node->start;
    }
    pthread_mutex_unlock(mreg->lock);
    if (mreg->demand >= 0 || !fits)
        return fits;
    ret = rme_monitor_watch(mreg->monitor, &region->watch);
    if ((ret == -EBADF || ret == -ESTALE) && atomic_exchange(&mreg->caches, false)) {
        rme_log_put(
            mreg->config.pin->log, RME_LOG_WARN,
            "registration cache: off from now on, memory is registered for each operation: "
            "unmapping can no longer be watched: %s",
            ret == -ESTALE ? "another library has replaced the hooks in the C library; allow "
                             "userfaultfd"
                           : "the program has closed descriptors of this library; close only "
                             "descriptors that the program has opened");
        drop_unused(mreg);
    }
    return ret == 0;
}

/* Writes the spans of segments, in order of address, to `span` unless NULL; memory on demand
 * has no holes.  Returns their number. */
static uint32_t spans_of(const struct rme_mreg *mreg, const struct part *part, uint32_t count,
                         struct span *span)
{
    struct span last = {0, 0};
    uint32_t spans = 0;

    for (uint32_t i = 0; i < count; i++) {
        uintptr_t start = part[i].start & ~(mreg->page - 1);
        uintptr_t end = (part[i].end + mreg->page - 1) & ~(mreg->page - 1);

        if (spans == 0 || (start > last.end && mreg->demand < 0)) {
            last = (struct span){start, end};
            spans++;
        } else if (end > last.end) {
            last.end = end;
        }
        if (span != NULL)
            span[spans - 1] = last;
    }
    return spans;
}

/* Registers segments, in order of address, as a new region with one hold: into the cache, or
 * exactly their range for one operation; a refusal is logged if `loud`.  -EAGAIN: not
 * cacheable; other errors: of the registration. */
static int region_new(struct rme_mreg *mreg, const struct part *part, uint32_t count,
                      unsigned access, bool cached, bool loud, struct region **out)
{
    unsigned demand = mreg->demand >= 0 ? RME_ACCESS_DEMAND : 0;
    uint32_t spans = cached ? spans_of(mreg, part, count, NULL) : 0;
    struct region *region = calloc(1, sizeof(*region) + spans * sizeof(region->span[0]));
    uintptr_t start = part->start, end = 0;
    int ret = 0;

    if (region == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        if (part[i].end > end)
            end = part[i].end;
    if (cached)
        region->spans = spans_of(mreg, part, count, region->span);
    region->node.start = start;
    region->node.end = end;
    region->access = access;
    region->refs = 1;
    if (cached && !enter(mreg, region))
        ret = -EAGAIN;
    start = region->node.start;
    end = region->node.end;
    if (ret == 0 && demand != 0)
        ret = rme_demand_check(mreg->demand, mreg->config.pin, start, end, access);
    if (ret == 0)
        ret = rme_pin_reg(mreg->config.pin, (void *)start, end - start, access | demand, loud,
                          &region->mr);
    pthread_mutex_lock(mreg->lock);
    region->live = ret == 0;
    if (ret != 0)
        (void)put(mreg, region);
    pthread_mutex_unlock(mreg->lock);
    *out = region;
    return ret;
}

/* ---- groups ---- */

static int by_address(const void *a, const void *b)
{
    uintptr_t left = ((const struct part *)a)->start, right = ((const struct part *)b)->start;

    return (left > right) - (left < right);
}

/* Registers a group of segments, in order of address, as one region: into the cache if
 * possible. */
static int register_group(struct rme_mreg *mreg, const struct part *part, uint32_t count,
                          unsigned access, bool loud, struct rme_mreg_hold *hold)
{
    struct region *region;
    int ret = -EAGAIN;

    if (caches_for(mreg, access))
        ret = region_new(mreg, part, count, access, true, false, &region);
    if (ret == -EAGAIN || (ret != 0 && loud))
        ret = region_new(mreg, part, count, access, false, loud, &region);
    if (ret != 0)
        return ret;
    hold->region[hold->count++] = region;
    for (uint32_t i = 0; i < count; i++) {
        part[i].seg->lkey = region->mr.lkey;
        part[i].seg->rkey = region->mr.rkey;
    }
    return 0;
}

/* Registers one segment.  After a refusal for lack of resources the cache evicts, the dead are
 * deregistered, and the second refusal is final. */
static int register_one(struct rme_mreg *mreg, const struct part *part, unsigned access,
                        struct rme_mreg_hold *hold)
{
    bool again = rme_mreg_caches(mreg) || rme_mreg_wants_dereg(mreg);
    int ret = register_group(mreg, part, 1, access, !again, hold);

    if (!again || !rme_pin_lacks(ret))
        return ret;
    drop_unused(mreg);
    return register_group(mreg, part, 1, access, true, hold);
}

/* Asks the kernel for the holes of a group whose registration was refused. */
static void ask_for_holes(struct part *part, uint32_t count, bool writes)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t from, to, at = part->end;
    char *line = NULL, rights[3];
    size_t size = 0;

    for (uint32_t i = 1; maps != NULL && i < count && getline(&line, &size, maps) >= 0;) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %2s", &from, &to, rights) != 3 ||
            to <= at || (writes ? rights[1] != 'w' : rights[0] != 'r'))
            continue;
        if (from > at) {
            while (i < count && part[i].start < from)
                i++;
            if (i < count)
                part[i].hole = true;
        }
        at = to;
    }
    free(line);
    if (maps != NULL)
        fclose(maps);
}

/* Returns how many of the first segments form one group: for one operation alone those without
 * a gap, else those with gaps that are worth it and no known holes. */
static uint32_t group_length(const struct rme_mreg *mreg, const struct part *part,
                             uint32_t count, unsigned access)
{
    bool alone = rme_pin_alone(mreg->config.pin, access);
    uintptr_t unit = alone ? 1 : mreg->page, end = 0;
    uint32_t i;

    for (i = 0; i < count; i++) {
        uintptr_t next = part[i].start / unit * unit,
                  last = (part[i].end + unit - 1) / unit * unit;
        double pages = next > end ? (double)((next - end) / mreg->page) : 0;

        if (i > 0 && next > end &&
            (alone || part[i].hole || pages * mreg->config.page_ns > mreg->config.call_ns))
            break;
        if (last > end)
            end = last;
    }
    return i;
}

/* Registers the first segment or group.  Returns the number of segments, or an error. */
static int register_first(struct rme_mreg *mreg, struct part *part, uint32_t count,
                          unsigned access, struct rme_mreg_hold *hold)
{
    uint32_t group = group_length(mreg, part, count, access), before = group + 1;
    int ret = 0;

    while (group > 1 && group < before) {
        ret = register_group(mreg, part, group, access, false, hold);
        if (ret == 0)
            return (int)group;
        before = group;
        if (ret == -EFAULT && group * mreg->config.call_ns > ASK_NS) {
            ask_for_holes(part, group, (access & RME_ACCESS_LOCAL_WRITE) != 0);
            group = group_length(mreg, part, group, access);
        }
    }
    ret = 0;
    for (uint32_t i = 0; i < group && ret == 0; i++)
        ret = register_one(mreg, &part[i], access, hold);
    return ret == 0 ? (int)group : ret;
}

/* ---- interface ---- */

static void set_keys(struct rme_mreg *mreg, struct rme_mseg *seg, const struct rme_mr *mr)
{
    seg->lkey = mr->lkey;
    seg->rkey = mr->rkey;
    rme_pin_count(mreg->config.pin, RME_C_REG_HITS, 1);
}

/* Returns true for a segment without keys.  (Keys of a fabric are never both 0.) */
static bool is_open(const struct rme_mseg *seg)
{
    return seg->length != 0 && seg->lkey == 0 && seg->rkey == 0;
}

/* Finds the keys that need no registration: those of zones, and of cached regions, which the
 * hold keeps.  Returns how many segments are left, or -ENOMEM. */
static int64_t find_keys(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                         unsigned access, struct rme_mreg_hold **out)
{
    struct rme_zone *zone = mreg->config.zone;
    const struct region *known = NULL;
    struct rme_mreg_hold *hold = NULL;
    uint32_t left = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct rme_mr *mr = NULL;

        seg[i].lkey = seg[i].rkey = 0;
        if (seg[i].length != 0 && zone != NULL)
            mr = rme_zone_find(zone, seg[i].base, seg[i].length, access);
        if (mr != NULL)
            set_keys(mreg, &seg[i], mr);
        left += is_open(&seg[i]);
    }
    if (left > 0)
        hold = calloc(1, sizeof(*hold) + left * sizeof(hold->region[0]));
    *out = hold;
    if (hold == NULL)
        return left > 0 ? -ENOMEM : 0;
    if (!caches_for(mreg, access))
        return left;
    pthread_mutex_lock(mreg->lock);
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t start = (uintptr_t)seg[i].base;
        struct region *region =
            is_open(&seg[i]) ? find(mreg, start, start + seg[i].length, access, known) : NULL;

        if (region == NULL)
            continue;
        hold->region[hold->count++] = region;
        known = region;
        set_keys(mreg, &seg[i], &region->mr);
    }
    pthread_mutex_unlock(mreg->lock);
    return left - hold->count;
}

/* Registers the segments without keys, of which there are `left`. */
static int register_open(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t left,
                         unsigned access, struct rme_mreg_hold *hold)
{
    struct part *part = calloc(left, sizeof(part[0]));
    int done = 0, cancels;

    if (part == NULL)
        return -ENOMEM;
    for (uint32_t n = 0; n < left; seg++)
        if (is_open(seg))
            part[n++] = (struct part){(uintptr_t)seg->base, (uintptr_t)seg->base + seg->length,
                                      seg, false};
    qsort(part, left, sizeof(part[0]), by_address);
    /* cancellation in a system call would leave a registration half done */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    for (uint32_t at = 0; at < left && done >= 0; at += (uint32_t)done)
        done = register_first(mreg, &part[at], left - at, access, hold);
    pthread_setcancelstate(cancels, NULL);
    rme_pin_count(mreg->config.pin, RME_C_REG_MISSES, left);
    free(part);
    return done < 0 ? done : 0;
}

int rme_mreg_acquire(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                     unsigned access, struct rme_mreg_hold **out)
{
    int64_t ret;

    access = implied(access);
    ret = find_keys(mreg, seg, count, access, out);
    if (ret > 0)
        ret = register_open(mreg, seg, (uint32_t)ret, access, *out);
    if (ret == 0)
        return 0;
    if (rme_mreg_release(mreg, *out, NULL))
        rme_mreg_dereg_flush(mreg);
    *out = NULL;
    return (int)ret;
}

int rme_mreg_try(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count, unsigned access,
                 struct rme_mreg_hold **out)
{
    if (find_keys(mreg, seg, count, implied(access), out) == 0)
        return 0;
    /* all of it is cached: no deregistration is needed */
    (void)rme_mreg_release(mreg, *out, NULL);
    *out = NULL;
    return -EAGAIN;
}

bool rme_mreg_release(struct rme_mreg *mreg, struct rme_mreg_hold *hold, void *block)
{
    bool died = false;

    if (hold == NULL) {
        if (block != NULL)
            (void)rme_zone_release(mreg->config.zone, block);
        return false;
    }
    pthread_mutex_lock(mreg->lock);
    if (block != NULL)
        hold->region[0]->block = block;
    for (uint32_t i = 0; i < hold->count; i++)
        died |= put(mreg, hold->region[i]);
    pthread_mutex_unlock(mreg->lock);
    free(hold);
    return died;
}

void rme_mreg_hint(struct rme_mreg *mreg, void *start, uint64_t length, unsigned access)
{
    uintptr_t from = (uintptr_t)start;
    struct region *region;
    struct part part;
    int cancels;

    if (!rme_mreg_caches(mreg) || length == 0 || length > UINTPTR_MAX - from)
        return;
    if (mreg->config.zone != NULL &&
        rme_zone_find(mreg->config.zone, start, length, RME_ACCESS_LOCAL) != NULL)
        return;
    access = implied(access);
    if (mreg->config.pin->caps->register_each)
        access &= ~RME_ACCESS_REMOTE;
    if (length > mreg->config.max_bytes / HINT_SHARE)
        length = mreg->config.max_bytes / HINT_SHARE;
    part = (struct part){.start = from, .end = from + length};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    pthread_mutex_lock(mreg->lock);
    region = find(mreg, part.start, part.end, access, NULL);
    pthread_mutex_unlock(mreg->lock);
    if (region != NULL || region_new(mreg, &part, 1, access, true, false, &region) == 0) {
        pthread_mutex_lock(mreg->lock);
        (void)put(mreg, region);
        pthread_mutex_unlock(mreg->lock);
    }
    rme_mreg_dereg_flush(mreg);
    pthread_setcancelstate(cancels, NULL);
}

/* ---- start and end ---- */

/* Joins the monitor.  False: there is none. */
static bool join_monitor(struct rme_mreg *mreg)
{
    const char *remedy = "use Linux 5.14 or later, and in a container allow userfaultfd and "
                         "statx (seccomp, /proc)";
    struct rme_log *log = mreg->config.pin->log;
    struct rme_monitor_lacks lacks;
    int ret = rme_monitor_join(&mreg->watcher, &mreg->monitor, &lacks);

    if (ret != 0)
        rme_log_put(log, RME_LOG_WARN,
                    "registration cache: off, memory is registered for each operation: "
                    "unmapping cannot be watched (%s: %s; hooks need %s); %s",
                    lacks.what, strerror(-ret), lacks.hooks, rme_remedy(ret, remedy));
    else if (lacks.what != NULL)
        rme_log_put(log, RME_LOG_WARN,
                    "registration cache: unmapping is watched by hooks in the C library, which "
                    "miss system calls made without it (%s: %s); %s",
                    lacks.what, strerror(-lacks.error), rme_remedy(lacks.error, remedy));
    return ret == 0;
}

int rme_mreg_new(const struct rme_mreg_config *config, struct rme_mreg **out)
{
    struct rme_mreg *mreg = calloc(1, sizeof(*mreg));

    if (mreg == NULL)
        return -ENOMEM;
    mreg->config = *config;
    if (config->batch > config->max_entries / 8)
        mreg->config.batch = (uint32_t)(config->max_entries / 8);
    mreg->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&mreg->own_lock, NULL);
    mreg->lock = &mreg->own_lock;
    pthread_mutex_init(&mreg->dereg_lock, NULL);
    list_init(&mreg->unused);
    list_init(&mreg->dead);
    mreg->demand = rme_demand_open(config->pin);
    if (mreg->demand >= 0)
        mreg->config.max_bytes = INT64_MAX; /* such memory is not pinned */
    mreg->watcher = (struct rme_watcher){.on_unmap = on_unmap, .arg = mreg};
    atomic_store(&mreg->caches, mreg->config.max_entries > 0 && mreg->config.max_bytes > 0);
    if (mreg->caches && mreg->demand < 0)
        atomic_store(&mreg->caches, join_monitor(mreg));
    if (mreg->monitor != NULL)
        mreg->lock = rme_monitor_lock(mreg->monitor);
    *out = mreg;
    return 0;
}

void rme_mreg_free(struct rme_mreg *mreg)
{
    if (mreg == NULL)
        return;
    drop_unused(mreg); /* ends the watches, which needs the monitor */
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
