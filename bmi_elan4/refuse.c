/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * refuse.c - DMAs that an interface refused.
 *
 * A DMA to an address without memory ends without setting its events, and the interface of that
 * address raises a trap, on either side.  The trap has only the address, so the transfer is
 * found by its addresses.  A transfer of this process ends its link, because nothing else
 * reports to the host that the transfer will not complete.  Otherwise the DMA was a peer's, or
 * one that a peer requested: the address is reported to all peers, and the owner of the
 * transfer ends the link.
 *
 * A transfer counts its refusals.  When as many of its DMAs are outstanding as were refused,
 * nothing of the transfer is in flight: this process does the missing sets, with BREAK instead
 * of the notification, and the link ends in order (link.c).  A peer's report may be false, and
 * a late set must not count for another transfer: the transfer is an orphan then (account.c).
 */
#include <errno.h>
#include <string.h>

#include "bmi_elan4/elan.h"

/* Returns true if the address is in the transfer's memory here, or at the peer. */
static bool touches(struct rme_fabric *f, const struct rme_rdma_op *x, E4_Addr at, bool here)
{
    for (uint32_t i = 0; i < x->npiece; i++) {
        const struct rme_rdma_seg *p = &x->piece[i];
        E4_Addr there = p->raddr + p->rkey;
        for (uint32_t s = 0; s < p->nseg; there += p->seg[s++].length)
            if (at - (here ? bmi_elan4_at(f->nic, p->seg[s].base) : there) < p->seg[s].length)
                return true;
    }
    return false;
}

/* Finds the link's transfer of a refusal; NULL: none.  The source is local for a write and
 * remote for a read; the destination is the opposite. */
static struct elan_move *find(struct rme_link *l, enum compat_trap kind, E4_Addr at, bool here)
{
    bool read = here == (kind == COMPAT_TRAP_SINK);
    struct elan_move *m;

    list_for_each(m, &l->moves, next)
        if (m->x->read == read && !elan_move_stuck(m) && touches(l->f, m->x, at, here))
            break;
    return m;
}

/* Ends the transfer with this address: here on any link, or at the peer on a link with the
 * process of `of`.  Returns false if there is none. */
static bool end_transfer(struct rme_fabric *f, const struct rme_link *of, enum compat_trap kind,
                         E4_Addr at)
{
    struct elan_move *m = NULL;
    struct rme_link *l;

    list_for_each(l, &f->links, all)
        if ((of == NULL || elan_same(&l->peer, &of->peer)) &&
            (m = find(l, kind, at, of == NULL)) != NULL)
            break;
    if (m == NULL)
        return false;
    m->refused++;
    m->reported |= of != NULL;
    if (l->state != ELAN_UP_STATE)
        return true;
    elan_link_log(l, RME_LOG_WARN,
                  "connection aborted: a transfer met an address of %s without memory, 0x%llx; "
                  "memory must stay mapped until its operation has ended",
                  of != NULL ? "the peer" : "this process", (unsigned long long)at);
    elan_link_end(l, -EFAULT);
    return true;
}

/* Reports refusals to all peers, one of which may own the transfer.  Many malicious traps must
 * not cause as many packets; a transfer whose refusal is not reported waits until its host
 * gives it up. */
static void report(struct rme_fabric *f, enum compat_trap kind, const E4_Addr *at, uint32_t n)
{
    struct rme_link *l;

    list_for_each(l, &f->links, all)
        if ((l->state == ELAN_UP_STATE || l->state == ELAN_ENDING_STATE) && n &&
            f->norphans < f->tx_max / 2)
            (void)elan_tx_alone(f, &l->peer, ELAN_REFUSED, kind, at, n * sizeof(*at));
}

_Static_assert(BMI_ELAN4_TRAPS * sizeof(E4_Addr) <= ELAN_BODY, "all pending traps in a packet");

void elan_refusals(struct rme_fabric *f)
{
    struct bmi_elan4_trap trap[BMI_ELAN4_TRAPS];
    E4_Addr at[COMPAT_TRAP_OTHER][BMI_ELAN4_TRAPS];
    uint32_t n[COMPAT_TRAP_OTHER] = {0};
    unsigned count;

    f->traps = atomic_load(&f->nic->traps);
    count = bmi_elan4_traps_take(f->nic, trap);
    for (const struct bmi_elan4_trap *t = trap; t < trap + count; t++) {
        if (t->kind != COMPAT_TRAP_OTHER && end_transfer(f, NULL, t->kind, t->at))
            continue;
        if (t->kind != COMPAT_TRAP_OTHER)
            at[t->kind][n[t->kind]++] = t->at;
        elan_log(f, RME_LOG_DEBUG,
                 "the network interface refused a DMA or a command that belongs to no transfer "
                 "of this process: type %d, at 0x%llx",
                 t->type, (unsigned long long)t->at);
    }
    report(f, COMPAT_TRAP_SOURCE, at[COMPAT_TRAP_SOURCE], n[COMPAT_TRAP_SOURCE]);
    report(f, COMPAT_TRAP_SINK, at[COMPAT_TRAP_SINK], n[COMPAT_TRAP_SINK]);
}

/* Ends a link with a refused read request.  The command queue continued after the request, so
 * no side will complete the transfer.  The request is not repeated, because the behaviour of
 * the peer's interface is not known then. */
bool elan_unasked(struct rme_link *l)
{
    struct elan_move *m;

    list_for_each(m, &l->moves, next)
        if (elan4_load64(m->unasked) != 0) {
            elan_link_log(
                l, RME_LOG_WARN,
                "connection aborted: the peer's network interface refused a request for data");
            elan_link_end(l, -ETIMEDOUT);
            return true;
        }
    return false;
}

void elan_refused_there(struct rme_link *l, const struct elan_packet *p, const uint8_t *body)
{
    if (!p->bytes || p->bytes % 8 ||
        (p->arg != COMPAT_TRAP_SOURCE && p->arg != COMPAT_TRAP_SINK))
        return;
    for (unsigned n = 0; n < p->bytes; n += 8) {
        enum compat_trap kind = (enum compat_trap)p->arg;
        E4_Addr at;
        memcpy(&at, body + n, sizeof(at));
        (void)end_transfer(l->f, l, kind, at);
    }
}
