/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of a peer.
 *
 *     active (the host parsed its address)            passive (the peer connected)
 *
 *     IDLE --post--> CONNECTING --> UP                ACCEPTING --> UP
 *      ^  \             |           |                    |          |
 *      |   BACKOFF      | all parts | failure, free      |          |
 *      |      |         v failed    v                    v          v
 *      +------+------- IDLE      CLOSING --down--> IDLE  CLOSING --down--> DEAD
 *
 * Connecting.  The parts of an address are tried in turn; each gets an equal share of the rest
 * of connect_timeout_ms.  When all have failed, posted operations end with the last error, and
 * the next attempt waits at least for the back-off pause.  The pause doubles and has a random
 * part, so that many clients of a restarted server do not connect at the same time.  Operations
 * posted during the pause wait for its end.
 *
 * Losing a link.  Nothing is sent on a link after rme_peer_fail, or LINK_DOWN by the fabric.
 * Every operation of the link leaves its queue and moves to `draining`.  These operations end
 * at LINK_DOWN, when no device accesses their memory for that link.  Operations posted in
 * between belong to the next link.  A passive peer has no next link: its address is dead at
 * once, and complete unexpected messages are still delivered.  Events name links, and a link
 * that is down is freed, so no event of an old link reaches a new one.
 *
 * Liveness.  The hardware of the peer acknowledges every message.  So if a message is sent, a
 * dead host or a cut network ends the link after the retries of the fabric.  Therefore a link
 * with outstanding work and without arrivals for keepalive_ms gets a PING.  The answer, PONG,
 * needs the process of the peer to run.  A stopped or slow process is not dead, so by default a
 * missing PONG has no effect.
 *
 * With peer_timeout_ms the link ends if nothing arrives, even if there was no credit for PING:
 * a running process returns some credits by itself, unless its own are withheld (rx_account.c).
 * A peer that cannot answer for that reason is not timed out.  A fabric with a liveness
 * check of its own is asked earlier (caps.look_ms).
 *
 * One timer per peer serves all these purposes.  Without work the timer is not set on a client.
 * A server, which never sends to an idle client and would keep the resources of a dead one,
 * probes after IDLE_PROBES intervals.  With the probe the server asks for the receive buffers
 * that the client was granted in use (credit.c), so for an idle link it holds no more than at
 * first, unless its device keeps posted receives (caps.keeps_rx).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan/split.h"
#include "transport/peer.h"

/* keepalive intervals between the probes of a link without work, which wake a processor */
#define IDLE_PROBES 15u

/* ---- Errors ---- */

/* Error reported to the host for a lost link. */
static int link_error(int error)
{
    return error == -ETIMEDOUT || error == -EPROTO || error == -ENOMEM ? error : -ECONNRESET;
}

/* Hosts distinguish three errors besides those of lost links.  -EACCES: rejected by the engine
 * of the peer; -EBUSY: the request did not reach that engine. */
int rme_peer_connect_error(int error)
{
    if (error == -ECONNREFUSED || error == -EACCES || error == -EBUSY)
        return -ECONNREFUSED;
    return error == link_error(error) || error == -ENONET ? error : -EHOSTUNREACH;
}

/* ---- Connecting ---- */

/* Forbids attempts during a pause, which a random part of up to one half shortens; doubles the
 * next pause up to backoff_max_ms. */
static void back_off(struct rme_peer *peer)
{
    uint32_t ms = peer->backoff_ms;

    peer->not_before = rme_now() + ms - rme_random(peer->rme, ms / 2 + 1);
    peer->backoff_ms = (uint32_t)min_u64(2ull * ms, peer->rme->tuning.backoff_max_ms);
}

static void connect_failed(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    const char *why = peer->last_part_why != NULL ? peer->last_part_why
                                                  : rme_remedy(peer->last_part_error, NULL);
    uint64_t now = rme_now();

    back_off(peer);
    if (peer->was_busy && peer->busy_by == 0)
        peer->busy_by = now + 2 * rme->tuning.connect_ms;
    /* the connection backlog of the peer is full, but its server accepts requests: another
     * attempt, without a report to the host, until twice connect_timeout_ms is over */
    if (peer->was_busy && now < peer->busy_by) {
        rme_count(rme, RME_C_CONNECTS_AGAIN);
        rme_peer_step(peer, RME_PEER_BACKOFF);
        rme_peer_set_timer(peer, peer->not_before);
        return;
    }
    rme_count(rme, RME_C_LINK_FAILURES);
    rme_peer_step(peer, RME_PEER_IDLE);
    peer->busy_by = 0;
    rme_timer_stop(&rme->timers, &peer->timer);
    if (why == NULL || why[0] != '\0')
        rme_log_put(rme->log, RME_LOG_NOTICE, "%s: cannot connect: %s%s%s", rme_peer_name(peer),
                    strerror(-peer->last_part_error), why != NULL ? "; " : "",
                    why != NULL ? why : "");
    peer->rme->peer_ops->unreachable(peer, rme_peer_connect_error(peer->last_part_error));
    rme_wait_notify(rme, RME_WAIT_ANY);
}

/* Tries the parts of the address from peer->part on, until an attempt is in progress or all
 * parts have failed. */
static void connect_part(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    uint8_t hello[RME_HELLO_SIZE];
    int parts = rme_addr_parts(peer->addr), cancels;

    rme_peer_hello(rme, rme_grant_ask(rme), hello);
    for (; peer->part < parts; peer->part++) {
        uint64_t now = rme_now();
        uint64_t left = peer->connect_by > now ? peer->connect_by - now : 1;
        int error;

        /* disables cancellation, because a thread cancelled in a system call here would keep
         * the lock */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
        error = rme->ops->link_connect(rme->fabric, peer->addr, peer->part, hello,
                                       sizeof(hello), rme_grant_ask(rme), peer, &peer->link);
        pthread_setcancelstate(cancels, NULL);
        if (error == 0) {
            rme->nlink++;
            rme_wait_link(rme);
            peer->error = 0;
            rme_peer_set_timer(peer, now + left / (uint64_t)(parts - peer->part) + 1);
            return;
        }
        peer->link = NULL;
        peer->last_part_error = error;
        peer->last_part_why = NULL;
    }
    connect_failed(peer);
}

static void connect_start(struct rme_peer *peer, uint64_t now)
{
    rme_peer_step(peer, RME_PEER_CONNECTING);
    peer->part = 0;
    peer->was_busy = false;
    peer->connect_by = now + peer->rme->tuning.connect_ms;
    connect_part(peer);
}

/* Restarts the measurement of silence, after an arrival or at the begin of work. */
static void silence_begins(struct rme_peer *peer, uint64_t now)
{
    peer->heard_at = now;
    peer->ping_sent = false;
}

/* Returns the time of the next check of a silent link, whose probe is due after `period`.  A
 * fabric with a liveness check of its own is asked after look_ms, and whenever the silence has
 * doubled. */
static uint64_t next_probe(const struct rme_peer *peer, uint64_t now, uint32_t period)
{
    uint64_t silence = now - peer->heard_at, look_ms = peer->rme->caps->look_ms;

    if (look_ms == 0 || list_empty(&peer->ops) || silence >= period)
        return now + period;
    return peer->heard_at + min_u64(period, 2 * silence > look_ms ? 2 * silence : look_ms);
}

void rme_peer_begin(struct rme_peer *peer)
{
    uint32_t keepalive_ms = peer->rme->tuning.keepalive_ms;
    bool watch = peer->state == RME_PEER_UP && keepalive_ms != 0 && !list_empty(&peer->ops);
    uint64_t now;

    if (!watch && peer->state != RME_PEER_IDLE)
        return;
    now = rme_now();
    if (watch) {
        peer->timer_rests = false;
        silence_begins(peer, now);
        rme_peer_set_timer(peer, next_probe(peer, now, keepalive_ms));
    } else if (now >= peer->not_before) {
        connect_start(peer, now);
    } else {
        rme_peer_step(peer, RME_PEER_BACKOFF);
        rme_peer_set_timer(peer, peer->not_before);
    }
}

/* ---- Up ---- */

/* Silence in ms after which a probe is due; 0: never. */
static uint32_t probe_ms(const struct rme_peer *peer)
{
    const struct rme_tuning *tuning = &peer->rme->tuning;

    if (!list_empty(&peer->ops))
        return tuning->keepalive_ms;
    return peer->passive ? IDLE_PROBES * tuning->keepalive_ms : 0;
}

void rme_peer_up(struct rme_peer *peer, const struct rme_event *event)
{
    struct rme *rme = peer->rme;
    struct rme_reject why;
    struct rme_hello hello;

    if (peer->state == RME_PEER_CONNECTING && peer->error == 0) {
        if (rme_hello_decode(event->hello, event->hello_length, &hello, &why) != 0) {
            rme_peer_fail(peer, -EPROTO, rme_reject_text(why.reason));
            return;
        }
        rme_peer_agree(peer, &hello, rme_grant_ask(rme));
    } else if (peer->state != RME_PEER_ACCEPTING) {
        return;
    }
    rme_peer_step(peer, RME_PEER_UP);
    peer->backoff_ms = rme->tuning.backoff_min_ms;
    peer->not_before = peer->busy_by = 0;
    peer->silent = false;
    rme_timer_stop(&rme->timers, &peer->timer);
    rme_count(rme, RME_C_CONNECTS);
    rme_count(rme, RME_C_PEERS);
    rme_log_put(rme->log, RME_LOG_DEBUG, "%s: connected with %s", rme_peer_name(peer),
                rme->ops->link_peer(peer->link));
    rme_wait_notify(rme, RME_WAIT_ANY);
    rme_peer_schedule(peer);
    peer->timer_rests = false;
    rme_peer_work(peer);
    (void)rme_peer_timer_rest(peer);
}

/* ---- Down ---- */

/* Ends the operations of a link for which no device accesses memory any more. */
static void end_link(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;

    rme_peer_bye_done(peer);
    peer->bye_in = false;
    peer->rme->peer_ops->link_down(peer);
    rme->ops->link_free(peer->link);
    peer->link = NULL;
    rme->nlink--;
    rme_quota_add(peer, RME_QUOTA_CREDITS, -peer->quota[RME_QUOTA_CREDITS]);
    rme_peer_step(peer, peer->passive ? RME_PEER_DEAD : RME_PEER_IDLE);
    if (peer->passive || peer->addr_freed)
        rme_peer_release(peer);
    else if ((!list_empty(&peer->ops) || peer->reaching != 0) && !rme->closing)
        rme_peer_work(peer);
}

void rme_peer_shutdown(struct rme_peer *peer)
{
    if (peer->link != NULL)
        end_link(peer);
    peer->rme->peer_ops->unreachable(peer, -ESHUTDOWN);
    peer->rme->peer_ops->discard(peer);
}

/* Continues with the next part of the address after a failure. */
static void part_failed(struct rme_peer *peer, const struct rme_event *event)
{
    struct rme *rme = peer->rme;
    char accepts[32] = "";
    struct rme_reject why;

    peer->last_part_error = peer->error != 0 ? peer->error : event->error;
    peer->last_part_why = peer->error != 0 ? NULL : event->why;
    if (event->hello != NULL &&
        rme_reject_decode(event->hello, event->hello_length, &why) == 0) {
        peer->last_part_why = "";
        if (why.acceptable != 0)
            snprintf(accepts, sizeof(accepts), "; it accepts %" PRIu32, why.acceptable);
        rme_log_put(rme->log, RME_LOG_WARN, "%s: refused by the peer: %s%s",
                    rme_peer_name(peer), rme_reject_text(why.reason), accepts);
    }
    rme->ops->link_free(peer->link);
    peer->link = NULL;
    rme->nlink--;
    peer->was_busy |= peer->last_part_error == -EBUSY;
    peer->part++;
    connect_part(peer);
}

void rme_peer_down(struct rme_peer *peer, const struct rme_event *event)
{
    if (peer->state == RME_PEER_CONNECTING) {
        part_failed(peer, event);
        return;
    }
    if (peer->state != RME_PEER_CLOSING) {
        if (!peer->bye_in) {
            rme_log_put(peer->rme->log, RME_LOG_INFO, "%s: connection lost: %s",
                        rme_peer_name(peer), strerror(-event->error));
            rme_count(peer->rme, RME_C_LINK_FAILURES);
        }
        rme_peer_leave(peer, link_error(event->error));
    }
    end_link(peer);
}

void rme_peer_addr_freed(struct rme_peer *peer)
{
    peer->refcount++;
    peer->addr_freed = true;
    peer->rme->peer_ops->discard(peer);
    rme_peer_fail(peer, -ECONNRESET, NULL);
    peer->rme->peer_ops->unreachable(peer,
                                     -ECONNRESET); /* operations posted for the next link */
    /* no attempt follows the pause, also while a call or a thread holds the peer */
    if (peer->state == RME_PEER_BACKOFF) {
        rme_timer_stop(&peer->rme->timers, &peer->timer);
        rme_peer_step(peer, RME_PEER_IDLE);
    }
    rme_peer_put(peer);
}

/* ---- Time ---- */

void rme_peer_watch_cancel(struct rme_peer *peer)
{
    peer->cancel_by = min_u64(peer->cancel_by, rme_now() + peer->rme->tuning.cancel_ms);
    if (!rme_timer_is_set(&peer->timer) || peer->timer.node.start > peer->cancel_by)
        rme_peer_set_timer(peer, peer->cancel_by);
}

/* True if the peer has credits for an answer.  A peer whose credits are withheld (rx_account.c)
 * may have used all of them, so silence does not mean that the peer is dead. */
static bool can_answer(struct rme_peer *peer)
{
    rme_rx_account_check(peer);
    return peer->credit.unreturned == 0 ||
           peer->credit.advertised - peer->credit.unreturned >= RME_CREDIT_CONTROL ||
           !peer->credit.throttled;
}

/* Notes that no answer to a probe arrived while work waits: one line for each silence. */
static void probe_missed(struct rme_peer *peer, uint64_t now)
{
    if (!peer->ping_sent || peer->silent || list_empty(&peer->ops) || !can_answer(peer))
        return;
    peer->silent = true;
    rme_log_put(peer->rme->log, RME_LOG_WARN,
                "%s: no answer for %" PRIu64
                " ms, and operations wait for the peer; its process is stopped or busy, or the "
                "network is down",
                rme_peer_name(peer), now - peer->heard_at);
}

/* Ends a silence after an arrival. */
static void silence_ends(struct rme_peer *peer, uint64_t now)
{
    if (peer->silent)
        rme_log_put(peer->rme->log, RME_LOG_WARN, "%s: answers again after %" PRIu64 " ms",
                    rme_peer_name(peer), now - peer->heard_at);
    peer->silent = peer->heard = false;
    silence_begins(peer, now);
}

/* Checks a link when its timer expires. */
static void keep_alive(struct rme_peer *peer, uint64_t now)
{
    struct rme *rme = peer->rme;
    uint64_t next = peer->cancel_by;
    uint32_t period = probe_ms(peer);

    peer->timer_rests = list_empty(&peer->ops);
    if (period != 0) {
        if (peer->heard) {
            silence_ends(peer, now);
        } else if (peer->ping_sent && rme->tuning.peer_timeout_ms != 0 &&
                   now - peer->heard_at >= rme->tuning.peer_timeout_ms && can_answer(peer)) {
            rme_peer_fail(peer, -ETIMEDOUT, "no answer");
            return;
        } else if (now - peer->heard_at >= period) {
            probe_missed(peer, now);
            if (!can_answer(peer))
                peer->heard_at = now; /* allow the full timeout after credits are available */
            /* Without a credit for PING, the peer owes enough credits that a live peer must
             * send anyway (rme_credit_due); link_probe finds a dead one. */
            rme_peer_send_header(peer, RME_WIRE_PING, RME_CREDIT_DATA);
            peer->ping_sent = true;
            if (rme->ops->link_probe != NULL)
                rme->ops->link_probe(peer->link);
        } else if (rme->caps->look_ms != 0 && !peer->timer_rests) {
            rme->ops->link_probe(peer->link);
        }
        next = min_u64(next, next_probe(peer, now, period));
    }
    if (next != UINT64_MAX)
        rme_peer_set_timer(peer, next);
}

bool rme_peer_timer_rest(struct rme_peer *peer)
{
    uint32_t period = probe_ms(peer);

    if (peer->state != RME_PEER_UP || !list_empty(&peer->ops) || peer->timer_rests)
        return false;
    rme_timer_stop(&peer->rme->timers, &peer->timer);
    peer->timer_rests = period != 0;
    peer->ping_sent = false;
    if (period != 0)
        rme_peer_set_timer(peer, rme_now() + period);
    return true;
}

void rme_peer_timer(struct rme_peer *peer, uint64_t now)
{
    if (peer->state == RME_PEER_UP) {
        keep_alive(peer, now);
    } else if (peer->state == RME_PEER_CONNECTING) {
        peer->error = -ETIMEDOUT;
        rme_peer_disconnect(peer, -ETIMEDOUT);
    } else if (peer->state == RME_PEER_ACCEPTING) {
        rme_peer_fail(peer, -ETIMEDOUT, "connection request not completed");
    } else if (peer->state == RME_PEER_BACKOFF && !peer->rme->closing) {
        connect_start(peer, now);
    }
}
