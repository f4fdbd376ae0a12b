/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * owner.c - buffers held by processes.
 *
 * A packet to a process that is dead, or accepts nothing, does not land, and its buffer is not
 * reclaimed.  To limit such a process to the buffers of one link, each process has an account
 * of its buffers that have not landed, over all its present and former links.  Messages never
 * hold more than elan_tx_per_link.
 *
 * An account belongs to a place in the network (vp), where processes succeed each other.
 * Buffers of a predecessor do not limit its successor, because they may be reclaimed only when
 * the successor reports refusals (refuse.c).  A place whose processes repeatedly die leaves
 * more each time: at twice the limit there are no new links with the place until buffers are
 * reclaimed.  Connection requests are refused, and show that the predecessors are long gone
 * (elan_succeeded()).  The refusals may be left behind, too, so at three times the limit there
 * are none.  Other places are not affected.
 *
 * A process known to be dead is recorded here, so that the discovery by one link ends the
 * others at once, and nothing more is sent to it.
 */
#include "bmi_elan4/elan.h"

static struct elan_owner *owner_of(const struct rme_fabric *f, unsigned vp)
{
    return &f->owner[vp];
}

/* Records the process that has the place.  The generation is only compared for equality: a
 * predecessor may have reported a false one, and a clock may have been set back. */
static void succeed(struct elan_owner *o, uint64_t generation)
{
    if (generation == 0 || generation == o->generation)
        return;
    o->generation = generation;
    o->former += o->out;
    o->out = 0;
    o->dead = false;
    o->stalled = 0;
}

void elan_owner_charge(struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    struct elan_owner *o = owner_of(f, vp);

    if (o->generation == 0)
        succeed(o, generation);
    if (generation == o->generation)
        o->out++;
    else
        o->former++;
}

void elan_owner_give(struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    struct elan_owner *o = owner_of(f, vp);

    if (generation == o->generation && o->out > 0) /* otherwise the process was charged as a
                                                    * predecessor */
        o->out--;
    else
        o->former--;
}

bool elan_owner_full(const struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    const struct elan_owner *o = owner_of(f, vp);

    return (generation == o->generation ? o->out : o->former) >= f->tx_per_link;
}

bool elan_place_full(const struct rme_fabric *f, unsigned vp)
{
    const struct elan_owner *o = owner_of(f, vp);

    return o->out + o->former >= 2 * f->tx_per_link;
}

bool elan_place_silent(const struct rme_fabric *f, unsigned vp)
{
    const struct elan_owner *o = owner_of(f, vp);

    return o->out + o->former >= 3 * f->tx_per_link;
}

void elan_owner_died(struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    struct elan_owner *o = owner_of(f, vp);

    if (!generation || generation != o->generation || o->dead)
        return;
    o->dead = true;
    f->died = true;
}

bool elan_owner_dead(const struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    const struct elan_owner *o = owner_of(f, vp);

    return o->dead && generation == o->generation;
}

void elan_owner_stalled(struct rme_fabric *f, unsigned vp, uint64_t generation, int64_t since)
{
    struct elan_owner *o = owner_of(f, vp);

    if (generation == o->generation && (!o->stalled || since < o->stalled))
        o->stalled = since;
}

void elan_owner_resumed(struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    struct elan_owner *o = owner_of(f, vp);

    if (generation == o->generation)
        o->stalled = 0;
}

int64_t elan_owner_stalled_since(const struct rme_fabric *f, unsigned vp, uint64_t generation,
                                 int64_t then)
{
    const struct elan_owner *o = owner_of(f, vp);

    return generation == o->generation && o->stalled && o->stalled < then ? o->stalled : then;
}

bool elan_owner_replaced(const struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    const struct elan_owner *o = owner_of(f, vp);

    return generation && o->seen && o->seen != generation;
}

void elan_see(struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    struct elan_owner *o = owner_of(f, vp);

    succeed(o, generation);
    o->dead = false;
    o->stalled = 0;
    o->last = elan_now();
    if (o->seen == generation)
        return;
    o->seen = generation;
    o->first = o->last;
}

bool elan_succeeded(const struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    const struct elan_owner *o = owner_of(f, vp);

    return generation && o->seen != generation && o->last - o->first >= f->quarantine_ms;
}
