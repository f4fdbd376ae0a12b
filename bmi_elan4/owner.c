/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * owner.c - accounts of processes.
 *
 * A packet to the queue of a process that is dead, or that takes nothing, does not land, and
 * its buffer is not had again. So that such a process costs no more than one link may, each
 * process has an account of the buffers that it has and that have not landed, whatever links
 * they belong to or belonged to. There are never more of them for messages than
 * elan_tx_per_link says.
 *
 * The account is one of a place in the network (vp), where processes come after each other.
 * What a former one left behind does not hinder the next one, for it may come back only when
 * that one tells what its interface refused (refuse.c). But who comes, dies and comes again
 * leaves more each time: with twice the number there are no new links with that place until
 * something has come back. Who asks for one is told so, and by asking again shows that the
 * former ones are gone for long (elan_succeeded); that answer, too, may be left behind, so with
 * three times the number there is none. Other places do not notice.
 *
 * A process that is known to be dead is noted here, so that it is found out once, by whichever
 * of its links: the others end at once, and nothing more is sent to it.
 */
#include "bmi_elan4/elan.h"

static struct elan_owner *owner_of(const struct rme_fabric *f, unsigned vp)
{
    return &f->owner[vp];
}

/* That process has the place. Whether its generation is the greater one says nothing: the
 * former one may have lied about its own, or the clock have been set back. */
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

    if (generation == o->generation && o->out > 0) /* else it had the place before, too */
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
