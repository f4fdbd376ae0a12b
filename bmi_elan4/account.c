/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * account.c - buffers and transfers held by processes.
 *
 * A packet to a process that is dead, or accepts nothing, does not land, and its buffer is not
 * reclaimed.  To limit such a process to the buffers of one link, each process has an account
 * of its buffers that have not landed, over all its present and former links.  Messages never
 * hold more than f->tx_per_link.
 *
 * An account belongs to a place in the network (vp), where processes succeed each other.
 * Buffers of a predecessor do not limit its successor, because they are reclaimed only when the
 * successor has been there for long.  A place whose processes repeatedly die leaves
 * more each time: at twice the limit there are no new links with the place until buffers are
 * reclaimed.  Connection requests are refused, and show that the predecessors are long gone
 * (move.c).  The refusals may also be left behind, so at three times the limit there are none.
 * Other places are not affected.
 *
 * A process known to be dead is recorded here, so that the discovery by one link ends the
 * others immediately, and nothing more is sent to it.
 *
 * A DMA cannot be withdrawn.  A packet that has not landed at the end of its link is an orphan
 * until the packet lands, or another process has been at the receiver's place for quarantine_ms
 * (move.c): that process's interface has refused the packet meanwhile, unless its queue was
 * full all the time.
 */
#include "bmi_elan4/elan.h"

/* Records the process that has the place.  Returns false if the process is recorded already.
 * The generation is only compared for equality: a predecessor may have reported a false one,
 * and a clock may have been set back. */
static bool succeed(struct elan_account *o, uint64_t generation)
{
    if (generation == 0 || generation == o->generation)
        return false;
    o->generation = generation;
    o->former += o->out;
    o->out = 0;
    o->dead = false;
    o->first = 0;
    return true;
}

void elan_account_charge(struct rme_fabric *f, const struct elan_dma *d)
{
    struct elan_account *o = &f->account[d->to.vp];

    if (o->generation == 0)
        succeed(o, d->to.generation);
    if (d->to.generation == o->generation)
        o->out++;
    else
        o->former++;
}

void elan_account_give(struct rme_fabric *f, const struct elan_dma *d)
{
    struct elan_account *o = &f->account[d->to.vp];

    /* without one in `out` the process was charged as a predecessor */
    if (d->to.generation == o->generation && o->out > 0)
        o->out--;
    else
        o->former--;
}

bool elan_account_full(const struct rme_fabric *f, const struct elan_peer *of)
{
    const struct elan_account *o = &f->account[of->vp];

    return (of->generation == o->generation ? o->out : o->former) >= f->tx_per_link;
}

bool elan_place_full(const struct rme_fabric *f, unsigned vp, uint32_t times)
{
    return f->account[vp].out + f->account[vp].former >= times * f->tx_per_link;
}

bool elan_account_over(const struct rme_fabric *f, const struct elan_peer *of)
{
    const struct elan_account *o = &f->account[of->vp];

    return of->generation && (of->generation != o->generation || o->dead);
}

bool elan_account_dead(const struct rme_fabric *f, const struct elan_peer *of)
{
    uint64_t now = 0;
    int node, context, rc;

    if (elan_account_over(f, of))
        return true;
    if (bmi_elan4_place(&f->nic->range, (int)of->vp, &node, &context) < 0 ||
        node != f->nic->node)
        return false;
    rc = bmi_elan4_log_owner(f->nic->log, context, &now);
    return rc == 0 || (rc > 0 && now != of->generation);
}

void elan_see(struct rme_fabric *f, const struct elan_peer *from)
{
    struct elan_account *o = &f->account[from->vp];

    f->died |= succeed(o, from->generation);
    o->dead = false;
    o->last = (int64_t)rme_now();
    if (!o->first)
        o->first = o->last;
}

/* ---- Orphans ---- */

void elan_orphan(struct rme_fabric *f, struct elan_dma *d, bool kept)
{
    d->since = (int64_t)rme_now() - (d->since ? f->watched - d->since : 0);
    d->kept = kept;
    f->config.stats->value[RME_C_QUARANTINED] += kept;
    list_add_tail(&d->next, &f->orphans);
    f->norphans += !d->is_move;
    f->kept_moves += d->is_move;
    if (d->is_move) /* a buffer has been charged since it was taken */
        elan_account_charge(f, d);
}

void elan_orphan_over(struct rme_fabric *f, struct elan_dma *d)
{
    list_del_init(&d->next);
    f->config.stats->value[RME_C_QUARANTINED] -= d->kept;
    d->kept = d->ended = false;
    f->norphans -= !d->is_move;
    f->kept_moves -= d->is_move;
    if (d->is_move)
        elan_account_give(f, d);
}

bool elan_kept_full(struct rme_fabric *f, int node, const struct elan_peer *from)
{
    const struct elan_dma *d;
    uint32_t kept = 0;

    list_for_each(d, &f->orphans, next)
        kept += (int)(d->to.vp / f->places.per_node) + f->nic->range.low_node == node;
    if (kept >= f->kept_max)
        elan_log(
            f, RME_LOG_ERROR,
            "node %d: no new connections: %u buffers wait for DMAs to this node, most likely "
            "to processes that are gone; restart this process, or raise elan_tx_buffers",
            node, kept);
    else if (from != NULL && (elan_place_full(f, from->vp, 2) || elan_account_full(f, from)))
        elan_log(f, RME_LOG_WARN,
                 "process %u: no connection: neither this process nor its predecessors in the "
                 "context accept messages",
                 from->vp);
    else
        return false;
    return true;
}
