/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * leave.c - LEFT packets, and waiting for them at close.
 *
 * A side that gives up a link before its BYE has landed sends LEFT; otherwise a living peer
 * would keep its end forever, because packets to a link that is gone are not answered.  Without
 * a buffer LEFT is owed, and sent later.
 *
 * Packets that have not landed are lost with the context.  On close the process waits until
 * each LEFT and BREAK has landed, or its receiver is known to be dead or replaced, or none of
 * the receiver's packets has landed for ELAN_LEAVE_MS, or for elan_dead_ms if less.  Time
 * before the close counts, because nothing else shows the death of a process on another node.
 * A peer that got no LEFT detects the end by its probes.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "bmi_elan4/elan.h"

#define ELAN_LEAVE_MS 5000

void elan_send_left(struct rme_link *l)
{
    struct elan_owed *later;

    if (elan_tx_alone(l->f, &l->peer, ELAN_LEFT, 0, NULL, NULL, 0) == 0 ||
        !(later = malloc(sizeof(*later))))
        return;
    later->to = l->peer;
    TAILQ_INSERT_TAIL(&l->f->owed, later, next);
}

void elan_links_tell(struct rme_fabric *f)
{
    struct elan_owed *owed, *after;
    int rc = 0;

    for (owed = TAILQ_FIRST(&f->owed); owed && rc != -ENOMEM; owed = after) {
        after = TAILQ_NEXT(owed, next);
        rc = elan_tx_alone(f, &owed->to, ELAN_LEFT, 0, NULL, NULL, 0);
        if (rc < 0)
            continue; /* there may be room for later ones */
        TAILQ_REMOVE(&f->owed, owed, next);
        free(owed);
    }
}

/* Returns true if a packet to that process is in flight since `then`, and the process may be
 * alive. */
static bool may_live(struct rme_fabric *f, unsigned vp, uint64_t generation, int64_t then)
{
    const struct elan_account *o = &f->account[vp];
    int64_t most = f->dead_ms < ELAN_LEAVE_MS ? f->dead_ms : ELAN_LEAVE_MS;

    if (generation == o->generation && o->stalled && o->stalled < then)
        then = o->stalled;
    return elan_now() - then < most && !elan_account_gone(f, vp, generation) &&
           !(generation && o->seen && o->seen != generation);
}

/* Returns true if a LEFT or BREAK has not landed whose receiver may be alive.  Owed ones wait
 * since `begun`. */
static bool unheard(struct rme_fabric *f, int64_t begun)
{
    const struct elan_dma *d;
    const struct elan_owed *owed;

    TAILQ_FOREACH(d, &f->orphans, next) {
        const struct elan_tx *tx = (const struct elan_tx *)d;
        if (!d->is_move && (tx->kind == ELAN_LEFT || tx->kind == ELAN_BREAK) &&
            !elan_tx_over(f, tx) && may_live(f, d->vp, d->generation, d->since))
            return true;
    }
    TAILQ_FOREACH(owed, &f->owed, next)
        if (may_live(f, owed->to.vp, owed->to.generation, begun))
            return true;
    return false;
}

void elan_leave(struct rme_fabric *f)
{
    int64_t begun = elan_now();

    for (int ms = ELAN_RESTLESS_MS; unheard(f, begun) && elan_now() - begun < ELAN_LEAVE_MS;
         ms = ms < ELAN_LOOK_MS ? ms + 1 : ms) {
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
        elan_sweep(f, elan_now()); /* frees buffers that an owed LEFT may need */
        elan_links_tell(f);
    }
}
