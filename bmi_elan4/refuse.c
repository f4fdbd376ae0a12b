/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * refuse.c - DMAs that the interface refused.
 *
 * A DMA that meets an address where no memory is ends without setting its events, and the
 * interface whose address it was gets a trap: ours for our memory, the peer's for the peer's.
 * All that a trap is known to say is the address, so the transfer is looked for that uses it.
 * If it is one of ours, its link ends: no one else can say to the host that it will not be
 * complete. If none of ours uses it, it was a peer's DMA, or one that a peer asked for; then
 * all peers are told the address, and the one whose transfer it was ends the link.
 *
 * A transfer counts its refusals. When as many of its DMAs are missing as were refused,
 * nothing of it is under way any more, and the link ends in order (link.c). Its events and
 * chains are not used again all the same: what a peer says about its interface may be untrue,
 * and a set that comes late must not be taken for one of another transfer.
 *
 * Of very many traps some are lost, and a peer that sends to nowhere for fun is not the
 * occasion for as many packets: then a transfer that was refused meanwhile waits until its
 * host gives it up.
 */
#include <errno.h>

#include "bmi_elan4/elan.h"

#define SAY_MS 1000 /* between two lines about traps that are nobody's */

static bool within(E4_Addr at, E4_Addr from, uint64_t bytes)
{
    return at - from < bytes;
}

static bool reads_or_writes_here(struct rme_fabric *f, const struct rme_xfer *x, E4_Addr at)
{
    for (uint32_t i = 0; i < x->npiece; i++)
        for (uint32_t s = 0; s < x->piece[i].nseg; s++)
            if (within(at, bmi_elan4_at(f->nic, x->piece[i].seg[s].base),
                       x->piece[i].seg[s].length))
                return true;
    return false;
}

static bool reads_or_writes_there(const struct rme_xfer *x, E4_Addr at)
{
    for (uint32_t i = 0; i < x->npiece; i++) {
        const struct rme_piece *p = &x->piece[i];
        uint64_t bytes = 0;
        for (uint32_t s = 0; s < p->nseg; s++)
            bytes += p->seg[s].length;
        if (within(at, p->raddr + p->rkey, bytes))
            return true;
    }
    return false;
}

/* The transfer of the link that this was, or NULL. A source is here for a write, there for a
 * read; a sink the other way round. */
static struct elan_move *find(struct rme_link *l, enum bmi_elan4_trap_kind kind, E4_Addr at,
                              bool here)
{
    bool read = here == (kind == BMI_ELAN4_TRAP_SINK);
    struct elan_move *m;

    TAILQ_FOREACH(m, &l->moves, next)
        if (m->x->read == read && !elan_move_stuck(m) &&
            (here ? reads_or_writes_here(l->f, m->x, at) : reads_or_writes_there(m->x, at)))
            break;
    return m;
}

static void end(struct rme_link *l, struct elan_move *m, E4_Addr at, const char *where)
{
    m->refused++;
    if (m->note)
        l->gap = true;
    elan_move_unhold(l);
    if (l->state != ELAN_UP_STATE)
        return;
    elan_log(l->f, RME_LOG_WARN,
             "%s: a transfer met an address %s where no memory is, 0x%llx; the connection is "
             "given up; memory must stay as it is until its operation has ended",
             l->name, where, (unsigned long long)at);
    elan_link_end(l, -EFAULT);
}

static bool ours(struct rme_fabric *f, const struct bmi_elan4_trap *t)
{
    struct rme_link *l;
    struct elan_move *m;

    TAILQ_FOREACH(l, &f->links, all)
        if ((m = find(l, t->kind, t->at, true)) != NULL) {
            end(l, m, t->at, "of this process");
            return true;
        }
    return false;
}

static void tell_peers(struct rme_fabric *f, const struct bmi_elan4_trap *t)
{
    struct rme_link *l;
    uint8_t address[8];

    for (unsigned i = 0; i < 8; i++)
        address[i] = (uint8_t)(t->at >> 8 * i);
    TAILQ_FOREACH(l, &f->links, all)
        if ((l->state == ELAN_UP_STATE || l->state == ELAN_ENDING_STATE) &&
            f->norphans < f->tx_most / 2) {
            struct elan_packet p = {.kind = ELAN_REFUSED,
                                    .link = l->peer_number,
                                    .to = l->generation,
                                    .arg = t->kind};
            elan_tx_alone(f, l->vp, l->queue, &p, NULL, address, sizeof(address));
        }
}

void elan_refusals(struct rme_fabric *f)
{
    struct bmi_elan4_trap t, last;
    bool others = false;
    int64_t now = elan_now();

    f->traps = atomic_load(&f->nic->traps);
    while (bmi_elan4_trap_take(f->nic, &t)) {
        if (t.kind != BMI_ELAN4_TRAP_OTHER && ours(f, &t))
            continue;
        others = true;
        last = t;
        if (t.kind != BMI_ELAN4_TRAP_OTHER)
            tell_peers(f, &t);
    }
    if (!others || (f->traps_said && now - f->traps_said < SAY_MS))
        return;
    f->traps_said = now;
    elan_log(f, RME_LOG_WARN,
             "the network interface refused DMAs or commands that are no transfers of ours, "
             "%llu refusals in all; the last is number %d, at 0x%llx",
             (unsigned long long)f->traps, last.type, (unsigned long long)last.at);
}

void elan_refused_there(struct rme_link *l, const struct elan_packet *p, const uint8_t *body)
{
    E4_Addr at = 0;
    struct elan_move *m;

    if (p->bytes != 8 || (p->arg != BMI_ELAN4_TRAP_SOURCE && p->arg != BMI_ELAN4_TRAP_SINK))
        return;
    for (unsigned i = 0; i < 8; i++)
        at |= (E4_Addr)body[i] << 8 * i;
    if ((m = find(l, (enum bmi_elan4_trap_kind)p->arg, at, false)) != NULL)
        end(l, m, at, "of the peer's");
}
