/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* host.c - the host's calls on an existing link. */
#include <stdlib.h>

#include "bmi_elan4/elan.h"

void elan_op_xfer(struct rme_link *l, struct rme_xfer *x)
{
    struct elan_tx *place = calloc(1, sizeof(*place));
    struct elan_tx *note = x->notify == RME_NOTIFY_MSG ? elan_tx_of(l, x->tx) : NULL;

    if (note)
        TAILQ_REMOVE(&l->lent, note, next);
    if (!place || l->state != ELAN_UP_STATE || (x->notify == RME_NOTIFY_MSG && !note)) {
        if (note) {
            elan_tx_give(l->f, note);
            l->tx_used--;
        }
        if (!place)
            elan_link_broken(l, "no memory for a transfer");
        free(place);
        return;
    }
    place->link = l;
    place->x = x;
    if (note) {
        note->kind = ELAN_MESSAGE;
        note->length = note->arg = (uint32_t)x->tx_length;
        note->x = NULL;
    }
    place->note = note;
    TAILQ_INSERT_TAIL(&l->queued, place, next);
    elan_link_dirty(l);
}

void elan_op_disconnect(struct rme_link *l, int error)
{
    switch (l->state) {
    case ELAN_FINDING_STATE:
    case ELAN_GREETING_STATE: /* a late answer finds no link */
        elan_link_down(l, error);
        break;
    case ELAN_REQUESTED_STATE: {
        struct elan_packet p = {
            .kind = ELAN_REJECT, .link = l->peer_number, .to = l->generation};
        elan_tx_answer(l->f, l->vp, l->queue, &p, NULL, 0);
        elan_link_down(l, error);
        break;
    }
    case ELAN_UP_STATE:
        elan_link_end(l, error);
        break;
    case ELAN_ENDING_STATE:
    case ELAN_DOWN_STATE:
        break;
    }
}

/* Sends a packet without effect, an ACCEPT without a card, if nothing is in flight: a dead peer
 * never accepts the packet, which check.c detects. */
static void say_nothing(struct rme_link *l)
{
    if (TAILQ_EMPTY(&l->sent) && TAILQ_EMPTY(&l->queued) &&
        !elan_owner_full(l->f, l->vp, l->generation))
        (void)elan_tx_control(l, ELAN_ACCEPT, 0, NULL, NULL, 0);
}

/* Probes the peer.  All packets may have landed before the peer died, and the host may lack
 * credits for more. */
void elan_op_probe(struct rme_link *l)
{
    int64_t now = elan_now();

    if (l->state != ELAN_UP_STATE)
        return;
    if (elan_link_orphaned(l))
        elan_link_dead(l);
    else
        elan_ask(l, now);
    if (l->state == ELAN_UP_STATE)
        say_nothing(l);
}
