/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * check.c - links that wait for time: those that end, and those whose peers take nothing. What
 * becomes of them is said in link.c.
 */
#include <errno.h>

#include "bmi_elan4/elan.h"

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

/* The time of a link that is ending is over. True: the host may have its memory. */
static bool given_up(struct rme_link *l, int64_t now)
{
    if (now < l->until + l->f->quarantine_ms) {
        if (!l->kept) {
            l->kept = true;
            l->f->config.stats->value[RME_C_QUARANTINED]++;
            elan_log(l->f, RME_LOG_INFO,
                     "%s: peer not responding; memory that the peer can write to stays mapped",
                     l->name);
        }
        elan_ask(l, now);
        if (l->state == ELAN_DOWN_STATE)
            return true;
        if (!l->rest && !l->bye_in) {
            elan_link_rest(l);
        }
        return false;
    }
    elan_log(l->f, RME_LOG_INFO, "%s: peer did not confirm the end of the connection; aborted",
             l->name);
    if (!l->bye_sent || !all_landed(l))
        elan_say_left(l);
    elan_link_down(l, -ETIMEDOUT);
    return true;
}

/* Nothing more is under way to the peer's memory. A process may have thousands of links that
 * end at once, and take nothing: their BYEs wait for each other, so that what they leave behind
 * does not keep others from connecting (elan_kept_full). */
static bool say_bye(struct rme_link *l)
{
    if (l->gap)
        return say_break(l) == 0;
    return !elan_place_full(l->f, l->vp) && elan_tx_control(l, ELAN_BYE, 0, NULL, NULL, 0) == 0;
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
        l->bye_sent = say_bye(l); /* else at the next look */
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

/*
 * All links with the process have had their time: it has one queue for all of them. One by one
 * they might never be found, for when the process's account is full (owner.c) nothing is sent
 * by those that have nothing under way. A link without a message may be in no list but that of
 * all.
 */
static void silent(struct rme_link *found, int64_t now)
{
    struct rme_link *l;

    TAILQ_FOREACH(l, &found->f->links, all)
        if (l->vp == found->vp && l->generation == found->generation)
            elan_link_silent(l, now);
}

/*
 * A message lands when the peer's interface has it, whatever the peer's process does. So one
 * that does not land is one to a process that is not there, or whose queue stays full. A
 * transfer may take its time, and no time says that it will not end; if the peer is on this
 * node, the log does, else the host finds out when the peer answers no message.
 *
 * Ages are of the time that was watched: whoever was stopped himself, or not asked for long,
 * has not seen the peer take nothing meanwhile.
 */
static bool overdue(struct rme_link *l, int64_t now)
{
    struct elan_move *m = TAILQ_FIRST(&l->moves);
    struct elan_tx *tx;
    int64_t watched = l->f->watched, age = 0, move_age = 0;

    TAILQ_FOREACH(tx, &l->sent, next)
        if (!tx->x && !elan_tx_over(l->f, tx))
            break;
    if (tx && !tx->since)
        tx->since = watched;
    if (tx)
        age = watched - tx->since;
    if (m && !m->since)
        m->since = watched;
    if (m)
        move_age = watched - m->since;
    if ((age < ELAN_LOOK_MS && move_age < ELAN_LOOK_MS) || now - l->looked < ELAN_LOOK_MS)
        return false;
    l->looked = now;
    if (elan_link_orphaned(l)) {
        elan_link_dead(l);
    } else if (l->state == ELAN_UP_STATE && elan_unasked(l)) {
        return true;
    } else if (age >= l->f->dead_ms && l->state == ELAN_UP_STATE) {
        silent(l, now);
        return true;
    } else if (age >= ELAN_ASK_MS || move_age >= ELAN_ASK_MS) {
        elan_ask(l, now);
    }
    return false;
}

void elan_links_overdue(struct rme_fabric *f, int64_t now)
{
    struct rme_link *l, *after;
    int64_t step = now - f->watched_at;

    f->watched_at = now;
    f->watched += step < ELAN_ASK_MS ? step : ELAN_ASK_MS;
    for (l = TAILQ_FIRST(&f->sending); l; l = after) {
        after = TAILQ_NEXT(l, sending_next);
        if (overdue(l, now))
            after = TAILQ_FIRST(&f->sending); /* others have left the list */
    }
}
