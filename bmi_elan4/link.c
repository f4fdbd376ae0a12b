/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * link.c - the life of a link.
 *
 * A link of the active side begins FINDING or GREETING, one of the passive side REQUESTED; both
 * are UP until somebody ends it. Then it is ENDING: what was given to the interface comes to
 * its end, BYE says to the peer that nothing more is under way to its memory, and the peer's
 * BYE says the same to us. Only then is it DOWN, for nothing touches the host's memory any
 * more.
 *
 * A DMA that the interface refused is over, but what was to follow it never does: neither the
 * notification nor the packet to ourselves. Its number makes a gap in what the peer gets, so
 * BREAK says the same as BYE without waiting for its turn.
 *
 * A peer that is dead says no BYE, and DMAs to it never end. One that is merely silent says
 * none either, and when it goes on it may write where it was once told to: nothing here can
 * forbid that. So after drain_timeout_ms the link is `kept`: the host is not told that it is
 * DOWN, and keeps its memory, until the peer says BYE, is known to be dead, or quarantine_ms
 * are over.
 *
 * What our interface has in hand for a dead peer goes nowhere as long as nobody has the peer's
 * context; its packets, events and chains are nobody's before it has landed. They are counted,
 * and when there are too many no new links are made: those that there are need no more than
 * their own.
 *
 * Who gives a link up before it could say BYE says LEFT, out of turn: the peer ends its side,
 * too, but what it has opened may still be written to, as with one that is silent.
 *
 * Links are known to peers by a number, of which each use of a place in the table has another.
 * A peer that makes links and leaves them, each of which is kept for a while, takes no more
 * than its share of the table, so that others find places.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bmi_elan4/compat.h"
#include "bmi_elan4/elan.h"

struct rme_link *elan_link_new(struct rme_fabric *f)
{
    uint32_t index = 0, tries;

    for (tries = 0; tries < ELAN_LINKS; tries++) {
        index = (f->next_index + tries) % ELAN_LINKS;
        if (!f->table[index])
            break;
    }
    struct rme_link *l = tries < ELAN_LINKS ? calloc(1, sizeof(*l)) : NULL;
    if (!l)
        return NULL;
    f->next_index = index + 1;
    f->nonce[index] = (f->nonce[index] + 1) & 0xfffff;
    if (!f->nonce[index])
        f->nonce[index] = 1;
    l->f = f;
    l->number = f->nonce[index] * ELAN_LINKS + index;
    f->table[index] = l;
    TAILQ_INIT(&l->lent);
    TAILQ_INIT(&l->queued);
    TAILQ_INIT(&l->sent);
    TAILQ_INIT(&l->moves);
    LIST_INIT(&l->rx_lent);
    TAILQ_INSERT_TAIL(&f->links, l, all);
    return l;
}

struct rme_link *elan_link_of(struct rme_fabric *f, uint32_t number)
{
    struct rme_link *l = f->table[number % ELAN_LINKS];

    return l && l->number == number ? l : NULL;
}

void elan_link_eventful(struct rme_link *l)
{
    if (l->eventful)
        return;
    l->eventful = true;
    TAILQ_INSERT_TAIL(&l->f->eventful, l, eventful_next);
}

void elan_link_dirty(struct rme_link *l)
{
    if (l->dirty)
        return;
    l->dirty = true;
    TAILQ_INSERT_TAIL(&l->f->dirty, l, dirty_next);
}

void elan_link_up(struct rme_link *l)
{
    l->state = ELAN_UP_STATE;
    l->tell_up = true;
    elan_link_eventful(l);
    elan_refusals_tell(l);
}

/* Among those that end, in one of two lists. */
static void list_ending(struct rme_link *l, bool rest)
{
    l->rest = rest;
    if (rest)
        TAILQ_INSERT_TAIL(&l->f->resting, l, ending_next);
    else
        TAILQ_INSERT_TAIL(&l->f->ending, l, ending_next);
}

static void unlist_ending(struct rme_link *l)
{
    if (l->rest)
        TAILQ_REMOVE(&l->f->resting, l, ending_next);
    else
        TAILQ_REMOVE(&l->f->ending, l, ending_next);
}

void elan_link_down(struct rme_link *l, int error)
{
    struct rme_fabric *f = l->f;
    enum elan_state was = l->state;

    if (was == ELAN_DOWN_STATE)
        return;
    if (was == ELAN_ENDING_STATE)
        unlist_ending(l);
    if (l->call) {
        bmi_elan4_call_end(l->call);
        l->call = NULL;
        f->callings--;
    }
    if (l->question) {
        bmi_elan4_call_end(l->question);
        l->question = NULL;
        f->callings--;
    }
    if (l->kept) {
        l->kept = false;
        f->config.stats->value[RME_C_QUARANTINED]--;
    }
    l->state = ELAN_DOWN_STATE;
    if (!l->error)
        l->error = error;
    f->table[l->number % ELAN_LINKS] = NULL;
    if (l->placed)
        elan_share_give(&f->places, l->vp);
    l->placed = false;
    elan_tx_drop(l, true);
    elan_move_forget(l);
    elan_rx_close(l);
    if (l->reads) /* what is not yet asked for is not asked for any more */
        elan4_free_cmdq(f->nic->ctx, l->reads);
    compat_free_main(f->nic->alloc, (void *)l->read_mark);
    l->reads = NULL;
    l->read_mark = NULL;
    l->tell_up = l->tell_room = false;
    if (l->tell_request) { /* the host has never seen it */
        l->tell_request = false;
        elan_op_free(l);
        return;
    }
    l->tell_down = true;
    elan_link_eventful(l);
}

void elan_link_end(struct rme_link *l, int error)
{
    if (l->state != ELAN_UP_STATE)
        return;
    l->error = error;
    l->state = ELAN_ENDING_STATE;
    l->until = elan_now() + l->f->drain_ms;
    list_ending(l, false);
    elan_tx_drop(l, false);
    elan_rx_rest(l);
}

void elan_link_silent(struct rme_link *l, int64_t now)
{
    if (l->state != ELAN_UP_STATE)
        return;
    elan_link_end(l, -ETIMEDOUT);
    l->until = now; /* it has had its time */
}

void elan_link_bye(struct rme_link *l)
{
    l->bye_in = true;
    if (l->state == ELAN_ENDING_STATE && l->rest) { /* it goes on */
        unlist_ending(l);
        list_ending(l, false);
    }
    if (l->state == ELAN_GREETING_STATE) /* BREAK has overtaken ACCEPT */
        elan_link_down(l, -ECONNRESET);
    else
        elan_link_end(l, -ECONNRESET);
}

void elan_link_left(struct rme_link *l)
{
    if (l->state == ELAN_GREETING_STATE) /* LEFT has overtaken ACCEPT */
        elan_link_down(l, -ECONNRESET);
    else
        elan_link_end(l, -ECONNRESET);
}

void elan_link_broken(struct rme_link *l, const char *why)
{
    if (l->state == ELAN_ENDING_STATE) /* and may still write to us */
        return;
    elan_log(l->f, RME_LOG_WARN, "%s: %s; the connection is given up", l->name, why);
    if (l->state == ELAN_UP_STATE)
        elan_link_end(l, -EPROTO);
    else
        elan_link_down(l, -EPROTO);
}

void elan_link_dead(struct rme_link *l)
{
    l->dead = true;
    elan_owner_died(l->f, l->vp, l->generation);
    elan_link_down(l, l->state == ELAN_ENDING_STATE ? l->error : -ECONNRESET);
}

/* Whether anything but ACCEPT went over it. */
static bool was_used(const struct rme_link *l)
{
    return l->expected || l->next_seq > 1 || l->nmoves || l->state == ELAN_ENDING_STATE;
}

void elan_link_nobody(struct rme_link *l)
{
    if (was_used(l))
        elan_link_left(l);
    else
        elan_link_down(l, -ECONNRESET);
}

/* Whether the log of this node says that the peer's context has another owner, or none. */
bool elan_link_orphaned(struct rme_link *l)
{
    struct bmi_elan4_nic *nic = l->f->nic;
    struct bmi_elan4_owner owner;
    int node, context;

    if (bmi_elan4_place(&nic->range, (int)l->vp, &node, &context) < 0 || node != nic->node)
        return false;
    int rc = bmi_elan4_log_owner(nic->log, context, &owner);
    return rc == 0 || (rc > 0 && owner.generation != l->generation);
}

/* All messages have landed but those that never will, behind what was refused. */
static bool all_landed(const struct rme_link *l)
{
    const struct elan_tx *tx;

    TAILQ_FOREACH(tx, &l->sent, next)
        if (!elan_tx_over(l->f, tx))
            return false;
    return TAILQ_EMPTY(&l->queued);
}

/* Outside of the order, in which it would never have its turn. */
static int say_break(struct rme_link *l)
{
    struct elan_packet p = {.kind = ELAN_BREAK, .link = l->peer_number, .to = l->generation};

    return elan_tx_alone(l->f, l->vp, l->queue, &p, NULL, NULL, 0);
}

static int tell_left(struct rme_fabric *f, const struct elan_owed *to)
{
    struct elan_packet p = {.kind = ELAN_LEFT, .link = to->number, .to = to->generation};

    return elan_tx_alone(f, to->vp, to->queue, &p, NULL, NULL, 0);
}

/* Without that a peer that lives would keep its end for ever: what it says to a link that is
 * gone is not answered. Where there is no buffer it is told later. */
static void say_left(struct rme_link *l)
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
            continue; /* those behind it may have room */
        TAILQ_REMOVE(&f->owed, to, next);
        free(to);
    }
}

bool elan_kept_full(struct rme_fabric *f, const struct bmi_elan4_card *theirs)
{
    int64_t now = elan_now();
    bool all = f->norphans + f->kept_moves >= f->kept_most;

    if (!all && !(theirs && (elan_place_full(f, theirs->vp) ||
                             elan_owner_full(f, theirs->vp, theirs->generation))))
        return false;
    if (f->kept_said && now - f->kept_said < 1000)
        return true;
    f->kept_said = now;
    if (all)
        elan_log(f, RME_LOG_ERROR,
                 "no new connections: %u buffers wait for DMAs, most likely to processes that "
                 "are gone; start this process anew, or raise elan_tx_buffers",
                 f->norphans + f->kept_moves);
    else
        elan_log(f, RME_LOG_WARN,
                 "no connection with process %u: it, and those that had its context before, "
                 "take no messages",
                 theirs->vp);
    return true;
}

/* The time of a link that is ending is over. True: the host may have its memory. */
static bool given_up(struct rme_link *l, int64_t now)
{
    if (now < l->until + l->f->quarantine_ms) {
        if (!l->kept) {
            l->kept = true;
            l->f->config.stats->value[RME_C_QUARANTINED]++;
            elan_log(l->f, RME_LOG_INFO,
                     "%s: it is silent, and may live; what it can write to is kept", l->name);
        }
        elan_greet_ask(l, now);
        if (l->state == ELAN_DOWN_STATE)
            return true;
        if (!l->rest && !l->bye_in) {
            unlist_ending(l);
            list_ending(l, true);
        }
        return false;
    }
    elan_log(l->f, RME_LOG_INFO, "%s: it does not say that it is over; given up", l->name);
    if (!l->bye_sent || !TAILQ_EMPTY(&l->queued))
        say_left(l);
    elan_link_down(l, -ETIMEDOUT);
    return true;
}

/* One step towards the end of a link that is ending. */
static void check(struct rme_link *l, int64_t now)
{
    if (now != l->looked && elan_link_orphaned(l)) { /* what it had under way died with it */
        elan_link_dead(l);
        return;
    }
    l->looked = now;
    if (now >= l->until && given_up(l, now))
        return;
    if (!l->bye_sent && elan_moves_over(l) && TAILQ_EMPTY(&l->queued)) {
        /* with no buffer for it, at the next look */
        l->bye_sent =
            (l->gap ? say_break(l) : elan_tx_control(l, ELAN_BYE, 0, NULL, NULL, 0)) == 0;
        return;
    }
    if (l->bye_sent && l->bye_in && all_landed(l))
        elan_link_down(l, l->error);
}

void elan_links_check(struct rme_fabric *f, int64_t now)
{
    struct rme_link *l, *after;

    for (l = TAILQ_FIRST(&f->ending); l; l = after) {
        after = TAILQ_NEXT(l, ending_next);
        check(l, now);
    }
    if (TAILQ_EMPTY(&f->resting) || now - f->rested < ELAN_LOOK_MS)
        return;
    f->rested = now;
    for (l = TAILQ_FIRST(&f->resting); l; l = after) {
        after = TAILQ_NEXT(l, ending_next);
        check(l, now);
    }
}

void elan_op_disconnect(struct rme_link *l, int error)
{
    switch (l->state) {
    case ELAN_FINDING_STATE:
    case ELAN_GREETING_STATE: /* a late answer finds nobody */
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

/* All that was sent may have landed before the peer died. */
void elan_op_probe(struct rme_link *l)
{
    int64_t now = elan_now();

    if (l->state != ELAN_UP_STATE)
        return;
    if (elan_link_orphaned(l))
        elan_link_dead(l);
    else
        elan_greet_ask(l, now);
}

void elan_op_free(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->lent)) != NULL) {
        TAILQ_REMOVE(&l->lent, tx, next);
        elan_tx_give(f, tx);
    }
    elan_rx_forget(l);
    if (l->eventful)
        TAILQ_REMOVE(&f->eventful, l, eventful_next);
    if (l->dirty)
        TAILQ_REMOVE(&f->dirty, l, dirty_next);
    TAILQ_REMOVE(&f->links, l, all);
    free(l);
}
