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

static int tell_left(struct rme_fabric *f, const struct elan_owed *to)
{
    struct elan_packet p = {.kind = ELAN_LEFT, .link = to->number, .to = to->generation};

    return elan_tx_alone(f, to->vp, to->queue, &p, NULL, NULL, 0);
}

void elan_say_left(struct rme_link *l)
{
    struct elan_owed to = {
        .vp = l->vp, .queue = l->queue, .generation = l->generation, .number = l->peer_number};
    struct elan_owed *later;

    if (tell_left(l->f, &to) == 0 || !(later = malloc(sizeof(*later))))
        return;
    *later = to;
    TAILQ_INSERT_TAIL(&l->f->owed, later, next);
}

void elan_links_tell(struct rme_fabric *f)
{
    struct elan_owed *to, *after;
    int rc = 0;

    for (to = TAILQ_FIRST(&f->owed); to && rc != -ENOMEM; to = after) {
        after = TAILQ_NEXT(to, next);
        rc = tell_left(f, to);
        if (rc < 0)
            continue; /* there may be room for later ones */
        TAILQ_REMOVE(&f->owed, to, next);
        free(to);
    }
}

/* Returns true if a packet to that process is in flight since `then`, and the process may be
 * alive. */
static bool may_live(struct rme_fabric *f, unsigned vp, uint64_t generation, int64_t then)
{
    int64_t most = f->dead_ms < ELAN_LEAVE_MS ? f->dead_ms : ELAN_LEAVE_MS;

    return elan_now() - elan_owner_stalled_since(f, vp, generation, then) < most &&
           !elan_owner_gone(f, vp, generation) && !elan_owner_replaced(f, vp, generation);
}

/* Returns true if a LEFT or BREAK has not landed whose receiver may be alive.  Owed ones wait
 * since `begun`. */
static bool unheard(struct rme_fabric *f, int64_t begun)
{
    const struct elan_tx *tx;
    const struct elan_owed *to;

    TAILQ_FOREACH(tx, &f->orphans, next)
        if ((tx->kind == ELAN_LEFT || tx->kind == ELAN_BREAK) && !elan_tx_over(f, tx) &&
            may_live(f, tx->vp, tx->generation, tx->since))
            return true;
    TAILQ_FOREACH(to, &f->owed, next)
        if (may_live(f, to->vp, to->generation, begun))
            return true;
    return false;
}

void elan_leave(struct rme_fabric *f)
{
    int64_t begun = elan_now();

    for (int ms = ELAN_RESTLESS_MS; unheard(f, begun) && elan_now() - begun < ELAN_LEAVE_MS;
         ms = ms < ELAN_LOOK_MS ? ms + 1 : ms) {
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
        elan_tx_sweep(f, elan_now()); /* frees buffers that an owed LEFT may need */
        elan_links_tell(f);
    }
}
