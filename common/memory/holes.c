/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Holes: memory between the host's segments that cannot be registered with them, as unmapped or
 * without the needed rights [001 4.2.2].  The kernel is asked after it has refused a group, and
 * the answer is recorded, separately for reads and writes, so that later groups end there
 * without a refusal.
 *
 * This only saves time.  Changes are found as usual: a registration is refused, or a hole is
 * forgotten after HOLE_USES uses and the group is tried again.
 */
#include "memory/maps.h"
#include "memory/mreg_int.h"

#define HOLE_USES 64

static struct holes *holes_of(struct rme_mreg *mreg, unsigned access)
{
    return &mreg->holes[(access & RME_ACCESS_LOCAL_WRITE) != 0];
}

static void forget(struct holes *holes, struct hole *hole)
{
    rme_itree_remove(&holes->tree, &hole->node);
    hole->node.end = 0;
    atomic_fetch_sub(&holes->known, 1);
}

bool mreg_hole_between(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access)
{
    struct holes *holes = holes_of(mreg, access);
    struct hole *hole;

    if (atomic_load_explicit(&holes->known, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&mreg->lock);
    hole = (struct hole *)(void *)rme_itree_overlap(&holes->tree, start, end);
    if (hole != NULL && ++hole->uses == HOLE_USES)
        forget(holes, hole);
    pthread_mutex_unlock(&mreg->lock);
    return hole != NULL;
}

/* A walk along the mappings, to find the holes of a range. */
struct search {
    struct rme_mreg *mreg;
    uintptr_t at, end; /* the remaining range */
    unsigned access, found;
};

static void learn(struct search *search, uintptr_t end)
{
    struct holes *holes = holes_of(search->mreg, search->access);
    struct hole *hole;

    pthread_mutex_lock(&search->mreg->lock);
    if (rme_itree_overlap(&holes->tree, search->at, end) == NULL) {
        hole = &holes->hole[holes->next++ % HOLES];
        if (hole->node.end != 0)
            forget(holes, hole);
        *hole = (struct hole){.node = {.start = search->at, .end = end}};
        rme_itree_insert(&holes->tree, &hole->node);
        atomic_fetch_add(&holes->known, 1);
    }
    pthread_mutex_unlock(&search->mreg->lock);
    search->found++;
}

static bool look_at(void *arg, const struct rme_mapping *mapping)
{
    struct search *search = arg;
    bool writes = (search->access & RME_ACCESS_LOCAL_WRITE) != 0;

    if (mapping->end <= search->at || !(writes ? mapping->writable : mapping->readable))
        return true;
    if (mapping->start > search->at)
        learn(search, mapping->start < search->end ? mapping->start : search->end);
    search->at = mapping->end;
    return search->at < search->end && search->found < HOLES;
}

void mreg_holes_ask(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access)
{
    struct search search = {.mreg = mreg, .at = start, .end = end, .access = access};
    int maps;

    if (start >= end) /* adjacent segments */
        return;
    maps = rme_maps_open();
    if (maps < 0)
        return;
    rme_maps_walk(maps, look_at, &search);
    rme_maps_close(maps);
}
