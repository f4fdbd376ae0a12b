/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * greet.c - connection setup.
 *
 * The active side needs the address of the server's input queue: the table of servers
 * (servers.h) has the address, or names the server's desk, which is queried over TCP.  HELLO,
 * with the own card, is sent to that queue; the server's host gets a request, and ACCEPT or
 * REJECT is sent to the queue in the card.  An answer to an abandoned request is answered by
 * ELAN_NOBODY.
 *
 * A HELLO to a dead process never lands and is an orphan like any other packet (link.c).  HELLO
 * has the generation reported by the desk, or by this node's log, so that a successor in the
 * context is detected.  Without either the generation is unknown; then no other HELLO is sent
 * while an earlier packet waits, so that only a few are in flight.
 */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "bmi_elan4/elan.h"

static void name_of(struct rme_link *l)
{
    int node = -1, context = -1;

    bmi_elan4_place(&l->f->nic->range, (int)l->vp, &node, &context);
    snprintf(l->name, sizeof(l->name), "%d:%d", node, context);
}

static void link_up(struct rme_link *l)
{
    elan_link_step(l, ELAN_UP_STATE);
    l->tell_up = true;
    elan_link_eventful(l);
    elan_refusals_tell(l);
}

/* ---- The active side ---- */

/* Sends HELLO to the queue of that generation; 0: unknown. */
static void say_hello(struct rme_link *l, uint64_t generation)
{
    struct elan_packet p = {.kind = ELAN_HELLO, .arg = l->number, .to = generation};
    struct bmi_elan4_card card = l->f->card;

    card.wanted = l->vp;
    elan_link_step(l, ELAN_GREETING_STATE);
    /* a known generation shows the death of its process; otherwise the packet would never be
     * over */
    if (generation == 0 && elan_tx_waits(l->f, l->vp, l->queue, elan_now())) {
        l->why = "the server's input queue accepts no messages";
        elan_link_down(l, -ETIMEDOUT);
        return;
    }
    int rc = elan_owner_dead(l->f, l->vp, generation)
                 ? -ECONNREFUSED
                 : elan_tx_alone(l->f, l->vp, l->queue, &p, &card, l->hello, l->hello_length);
    if (rc < 0)
        elan_link_down(l, rc);
}

static int verdict_error(uint32_t verdict)
{
    return verdict == BMI_ELAN4_OTHER  ? -ECONNREFUSED
           : verdict == BMI_ELAN4_FULL ? -EBUSY
                                       : -EPROTO;
}

static void refused(struct rme_link *l, uint32_t verdict)
{
    if (verdict != BMI_ELAN4_OTHER)
        l->why = bmi_elan4_verdict_text(verdict);
    elan_link_down(l, verdict_error(verdict));
}

static void greet_now(struct rme_link *l)
{
    l->unsaid = false;
    l->pause = ELAN_ASK_MS;
    l->due = elan_now() + l->pause;
    say_hello(l, l->met);
}

/* Starts the handshake with a server known from its desk.  A packet that waits at the queue
 * already replaces HELLO, so that only a few never land. */
static void greet(struct rme_link *l, uint64_t generation)
{
    l->met = generation;
    l->f->greetings++;
    l->answers = 0;
    l->unsaid = elan_tx_waits(l->f, l->vp, l->queue, elan_now());
    elan_link_step(l, ELAN_GREETING_STATE);
    if (!l->unsaid)
        greet_now(l);
}

/* Handles the result of the query for the card. */
static void found(struct rme_link *l, int rc, const struct bmi_elan4_card *theirs)
{
    enum bmi_elan4_verdict verdict;

    if (rc < 0) {
        elan_link_down(l, rc);
        return;
    }
    verdict = bmi_elan4_card_judge(&l->f->card, theirs);
    if (verdict != BMI_ELAN4_WELCOME || theirs->vp != l->vp) {
        refused(l, verdict ? verdict : BMI_ELAN4_OTHER);
        return;
    }
    l->queue = theirs->queue;
    l->f->owner[l->vp].desk = true;
    elan_see(l->f, l->vp, theirs->generation);
    greet(l, theirs->generation);
}

/* Continues a query. */
static void call_step(struct rme_link *l, int64_t now)
{
    struct bmi_elan4_card theirs;
    int rc = bmi_elan4_call_step(l->call, &theirs);

    if (rc == -EAGAIN && (l->state == ELAN_FINDING_STATE || now - l->asked < ELAN_CALL_MS))
        return;
    elan_call_end(l);
    if (l->state == ELAN_FINDING_STATE)
        found(l, rc, &theirs);
    else
        elan_answered(l, rc, &theirs, now);
}

/*
 * Advances a handshake whose packets may not arrive at the queue, or not be answered.
 *
 * The desk is reached over another network than the queue.  If the queue accepts nothing for a
 * while, the desk is queried, and once more half a second after its answer: a server that
 * answers is running and empties its queue, so packets that do not land within half a second
 * from then on have no route.  A stopped or slow server does not answer, and is waited for.
 *
 * If the queue accepted HELLO and no answer comes, the desk is queried, too, with exponential
 * back-off: the server may have died meanwhile, which no packet in flight would show.
 */
static void greet_step(struct rme_link *l, int64_t now)
{
    if (!elan_tx_waits(l->f, l->vp, l->queue, now)) {
        l->answers = 0;
        if (l->unsaid) {
            greet_now(l);
        } else if (now >= l->due) {
            l->pause *= 2;
            l->due = now + l->pause;
            elan_ask(l, now);
        }
    } else if (l->answers < ELAN_ANSWERS) {
        elan_ask(l, now);
    } else if (now - l->asked >= ELAN_ASK_MS) {
        l->why =
            "the server answers by TCP, but its input queue accepts no messages; check the "
            "network's routes from this node to the server and, with the software Elan4, that "
            "both run under emuelan4 with the same EMUELAN4_DIR";
        elan_link_down(l, -EHOSTUNREACH);
    }
}

void elan_greet_calls(struct rme_fabric *f, int64_t now)
{
    struct rme_link *l, *after;

    if (f->desk)
        bmi_elan4_desk_serve(f->desk);
    for (l = TAILQ_FIRST(&f->links); l && f->callings + f->greetings; l = after) {
        after = TAILQ_NEXT(l, all);
        if (l->call)
            call_step(l, now);
        else if (l->met)
            greet_step(l, now);
    }
}

static int decimal(const char *text)
{
    char *end;
    long v = strtol(text, &end, 10);

    return *text < '0' || *text > '9' || *end || v > 65535 ? -1 : (int)v;
}

/* Returns true if the log of this node shows no owner of the context; else *generation: that of
 * the owner, 0 if unknown. */
static bool nobody_there(struct rme_fabric *f, int node, int context, uint64_t *generation)
{
    *generation = 0;
    return node == f->nic->node && bmi_elan4_log_owner(f->nic->log, context, generation) == 0;
}

/* Finds the server's queue.  Returns 0 if the request is in progress. */
static int find(struct rme_link *l, const struct rme_addr_part *at)
{
    struct rme_fabric *f = l->f;
    struct bmi_elan4_where where;
    int node = decimal(at->host), context = decimal(at->port);
    int rc = bmi_elan4_servers_find(f->servers, &f->nic->range, node, context, &where);

    snprintf(l->name, sizeof(l->name), "%d:%d", node, context);
    if (rc < 0) {
        switch (rc) {
        case -ENOENT:
            l->why = "no entry of elan_servers for this server; set the option "
                     "elan_servers or " BMI_ELAN4_SERVER_ENV;
            break;
        case -EINVAL:
            l->why = node < 0 || context < 0
                         ? "expected elan4://NODE:CONTEXT, both numbers"
                         : "outside elan_nodes and elan_contexts; check the address, or set "
                           "these options alike for all processes";
            break;
        default:
            l->why = bmi_elan4_servers_why(f->servers);
        }
        return -EHOSTUNREACH;
    }
    l->vp = (unsigned)bmi_elan4_vp(&f->nic->range, node, context);
    if (where.queue) {
        uint64_t generation;
        if (nobody_there(f, node, context, &generation))
            return -ECONNREFUSED;
        l->queue = where.queue;
        say_hello(l, generation);
        return 0;
    }
    return elan_call(l, &where);
}

int elan_op_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out)
{
    const struct rme_addr_part *at = rme_addr_part(addr, part);

    if (!at || length > ELAN_HELLO_MAX)
        return -EINVAL;
    if (elan_kept_full(f, decimal(at->host), NULL))
        return -ENOBUFS;
    struct rme_link *l = elan_link_new(f);
    if (!l)
        return -ENOMEM;
    l->owner = owner;
    elan_link_step(l, ELAN_FINDING_STATE);
    memcpy(l->hello, hello, length);
    l->hello_length = length;
    int rc = elan_op_rx_reserve(l, rx);
    if (rc < 0) {
        l->tell_request = true; /* not reported to the host */
        elan_link_down(l, rc);
        return rc;
    }
    *out = l;
    rc = find(l, at);
    if (rc < 0)
        elan_link_down(l, rc);
    return 0;
}

/* ---- The passive side ---- */

static void reject(struct rme_fabric *f, const struct bmi_elan4_card *theirs, uint32_t number,
                   uint32_t verdict)
{
    struct elan_packet p = {
        .kind = ELAN_REJECT, .link = number, .to = theirs->generation, .arg = verdict};

    elan_tx_answer(f, theirs->vp, theirs->queue, &p, NULL, 0);
}

static void hello(struct rme_fabric *f, const struct elan_packet *p,
                  const struct bmi_elan4_card *theirs, const uint8_t *data, size_t length)
{
    enum bmi_elan4_verdict verdict = bmi_elan4_card_judge(&f->card, theirs);
    struct rme_link *l;
    int node = -1, context;

    if (verdict == BMI_ELAN4_VERSION || verdict == BMI_ELAN4_RANGE) {
        elan_log(f, RME_LOG_WARN, "connection request cannot be answered: %s",
                 bmi_elan4_verdict_text(verdict)); /* the address of the peer's queue is
                                                    * unknown */
        return;
    }
    elan_see(f, theirs->vp, theirs->generation);
    if (verdict == BMI_ELAN4_WELCOME && !f->config.listen)
        verdict = BMI_ELAN4_OTHER;
    if (verdict != BMI_ELAN4_WELCOME) {
        reject(f, theirs, p->arg, verdict);
        return;
    }
    elan_owners_before(f, theirs->vp, theirs->generation);
    (void)bmi_elan4_place(&f->nic->range, (int)theirs->vp, &node, &context);
    l = elan_kept_full(f, node, theirs) ? NULL : elan_link_new(f);
    if (!l) {
        reject(f, theirs, p->arg, BMI_ELAN4_FULL);
        return;
    }
    l->passive = true;
    elan_link_step(l, ELAN_REQUESTED_STATE);
    l->vp = theirs->vp;
    l->queue = theirs->queue;
    l->generation = theirs->generation;
    l->peer_number = p->arg;
    l->heard = true;
    memcpy(l->hello, data, length);
    l->hello_length = length;
    name_of(l);
    l->tell_request = true;
    elan_link_eventful(l);
}

int elan_op_accept(struct rme_link *l, const void *data, size_t length, uint32_t rx,
                   void *owner)
{
    if (length > ELAN_HELLO_MAX)
        return -EINVAL;
    if (l->state != ELAN_REQUESTED_STATE)
        return -ENOTCONN;
    l->placed = l->placed || elan_share_take(&l->f->places, l->vp);
    if (!l->placed)
        return -ENOBUFS;
    int rc = elan_op_rx_reserve(l, rx);
    if (rc < 0)
        return rc;
    rc = elan_tx_control(l, ELAN_ACCEPT, l->number, &l->f->card, data, length);
    if (rc < 0) {
        elan_op_rx_release(l, rx);
        return rc;
    }
    l->owner = owner;
    link_up(l);
    return 0;
}

void elan_op_reject(struct rme_link *l, const void *data, size_t length)
{
    struct elan_packet p = {.kind = ELAN_REJECT, .link = l->peer_number, .to = l->generation};

    if (l->state == ELAN_DOWN_STATE) { /* nor is a pending LINK_DOWN reported */
        elan_op_free(l);
        return;
    }
    if (l->state == ELAN_REQUESTED_STATE)
        elan_tx_answer(l->f, l->vp, l->queue, &p, data,
                       length < ELAN_HELLO_MAX ? length : ELAN_HELLO_MAX);
    l->tell_request = true; /* ends without LINK_DOWN */
    elan_link_down(l, -EACCES);
}

/* ---- Answers ---- */

static void accepted(struct rme_link *l, const struct elan_packet *p,
                     const struct bmi_elan4_card *theirs, const uint8_t *data, size_t length)
{
    if (l->state != ELAN_GREETING_STATE || theirs->vp != l->vp) {
        elan_link_broken(l, "an unsolicited answer");
        return;
    }
    elan_greeted(l);
    elan_see(l->f, theirs->vp, theirs->generation);
    elan_owners_before(l->f, theirs->vp, theirs->generation);
    l->queue = theirs->queue;
    l->generation = theirs->generation;
    l->peer_number = p->arg;
    l->heard = true;
    memcpy(l->hello, data, length);
    l->hello_length = length;
    link_up(l);
}

static void rejected(struct rme_link *l, const struct elan_packet *p, const uint8_t *data)
{
    if (l->state != ELAN_GREETING_STATE)
        return;
    if (p->arg) {
        refused(l, p->arg);
        return;
    }
    l->heard = true;
    l->hello_length = p->bytes < ELAN_HELLO_MAX ? p->bytes : ELAN_HELLO_MAX;
    memcpy(l->hello, data, l->hello_length);
    elan_link_down(l, -EACCES);
}

/* Answers an ACCEPT for a link that is gone. */
static void nobody(struct rme_fabric *f, const struct bmi_elan4_card *theirs, uint32_t number)
{
    struct elan_packet p = {.kind = ELAN_NOBODY, .link = number, .to = theirs->generation};

    if (bmi_elan4_card_judge(&f->card, theirs) == BMI_ELAN4_WELCOME)
        elan_tx_answer(f, theirs->vp, theirs->queue, &p, NULL, 0);
}

void elan_greet_packet(struct rme_fabric *f, struct rme_link *l, const struct elan_packet *p,
                       const uint8_t *body)
{
    struct bmi_elan4_card theirs;
    uint8_t card[BMI_ELAN4_CARD_BYTES];
    size_t length = 0;

    if (p->kind == ELAN_HELLO || p->kind == ELAN_ACCEPT) {
        if (p->bytes < sizeof(card) || p->bytes - sizeof(card) > ELAN_HELLO_MAX)
            return;
        memcpy(card, body, sizeof(card));
        length = p->bytes - sizeof(card);
        body += sizeof(card);
        if (bmi_elan4_card_decode(card, &theirs) < 0 || theirs.vp != p->from)
            return;
    }
    if (p->kind == ELAN_HELLO)
        hello(f, p, &theirs, body, length);
    else if (p->kind == ELAN_ACCEPT && !l)
        nobody(f, &theirs, p->arg);
    else if (p->kind == ELAN_ACCEPT)
        accepted(l, p, &theirs, body, length);
    else if (p->kind == ELAN_REJECT && l)
        rejected(l, p, body);
    else if (p->kind == ELAN_REFUSED && l)
        elan_refused_there(l, p, body);
    else if (p->kind == ELAN_BREAK && l)
        elan_link_bye(l);
    else if (p->kind == ELAN_LEFT && l)
        elan_link_left(l);
    else if (p->kind == ELAN_NOBODY && l)
        elan_link_nobody(l);
}
