/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * handshake.c - connection setup.
 *
 * The active side needs the address of the server's input queue: the table of servers
 * (servers.h) has the address, or names the server's bootstrap server, which is queried over
 * TCP.  HELLO, with the own connection data, is sent to that queue; the server's host gets a
 * request, and ACCEPT or REJECT is sent to the queue in the connection data.  An answer to an
 * abandoned request is also answered by REJECT.
 *
 * A HELLO to a dead process never lands and is an orphan like any other packet (link.c).  HELLO
 * has the generation reported by the bootstrap server, or by this node's log, so that a
 * successor in the context is detected.  Without either the generation is unknown; then no
 * other HELLO is sent while an earlier packet waits, so that only a few are in flight.
 *
 * The bootstrap server of a server (conn_info.h) shows whether an unresponsive server is gone:
 * no process listens, or a process of another generation answers.  Either side of a link
 * queries the server of a node; a client has no bootstrap server.  A refused connection is
 * significant only if the bootstrap server was open before.
 */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "bmi_elan4/elan.h"

/* Keeps what the peer says of itself. */
static void take_hello(struct rme_link *l, const struct elan_peer *from, const uint8_t *data,
                       size_t length)
{
    l->peer = *from;
    l->has_hello = true;
    memcpy(l->hello, data, length);
    l->hello_length = length;
}

static void link_up(struct rme_link *l)
{
    elan_link_step(l, ELAN_UP_STATE);
    elan_report_later(l, ELAN_REPORT_UP);
}

/* ---- Queries ---- */

static int call(struct rme_link *l, const struct bmi_elan4_where *where)
{
    int rc = bmi_elan4_query_begin((const struct sockaddr *)&where->tcp, where->tcp_length,
                                   &l->call);

    if (rc < 0)
        return rc;
    l->f->asking = true;
    return elan_watch(l->f, l->call.fd, EPOLLIN | EPOLLET);
}

void elan_ask(struct rme_link *l, int64_t now)
{
    struct rme_fabric *f = l->f;
    struct bmi_elan4_where where;
    int node, context, rc;

    if (l->call.fd >= 0 || (l->asked && now - l->asked < ELAN_ASK_MS) ||
        bmi_elan4_place(&f->nic->range, (int)l->peer.vp, &node, &context) < 0 ||
        (l->passive && context != f->nic->range.low_context) ||
        (node == f->nic->node && !l->pause) || /* the context log shows this */
        bmi_elan4_servers_find(f->servers, &f->nic->range, node, context, &where) < 0 ||
        where.queue)
        return;
    l->asked = now;
    rc = call(l, &where);
    if (rc == -ECONNREFUSED && f->account[l->peer.vp].bootstrap)
        elan_link_dead(l);
    else if ((rc == -EMFILE || rc == -ENFILE) && l->state == ELAN_HANDSHAKE_STATE)
        elan_link_down(l, rc); /* under emuelan4 the peer's memory also needs a descriptor */
}

/* ---- The active side ---- */

static void send_hello(struct rme_link *l)
{
    const struct elan_peer *to = &l->peer;
    int rc;

    /* with a generation the death of the process is detected; without, the packet would never
     * end */
    if (to->generation == 0 && elan_tx_waits(l->f, to, (int64_t)rme_now() - ELAN_ASK_MS)) {
        l->why = "the server's input queue accepts no messages";
        elan_link_down(l, -ETIMEDOUT);
        return;
    }
    rc = elan_tx_alone(l->f, to, ELAN_HELLO, l->number, l->hello, l->hello_length);
    if (rc < 0)
        elan_link_down(l, rc);
}

static void refused(struct rme_link *l, uint32_t verdict)
{
    if (verdict != BMI_ELAN4_OTHER)
        l->why = bmi_elan4_verdict_text(verdict);
    elan_link_down(l, verdict == BMI_ELAN4_OTHER  ? -ECONNREFUSED
                      : verdict == BMI_ELAN4_FULL ? -EBUSY
                                                  : -EPROTO);
}

/*
 * Advances a handshake whose packets may not arrive at the queue, or not be answered.
 *
 * HELLO waits while the queue does not accept an earlier packet, so that only a few packets
 * never land; the earlier packet shows whether the queue accepts any.
 *
 * The bootstrap server is reached over another network than the queue.  If the queue accepts
 * nothing for a while, the bootstrap server is queried, and once more half a second after its
 * answer: a server that answers is running and empties its queue, so packets that do not land
 * within half a second from then on have no route.  A stopped or slow server does not answer;
 * then the handshake waits.
 *
 * If the queue accepted HELLO and no answer arrives, the bootstrap server is also queried, with
 * exponential back-off: the server may have died meanwhile, which no packet in flight would
 * show.
 */
static void handshake_step(struct rme_link *l, int64_t now)
{
    if (!elan_tx_waits(l->f, &l->peer, now - ELAN_ASK_MS)) {
        l->answers = 0;
        if (!l->due) {
            l->due = now + l->pause;
            send_hello(l);
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

/* Continues a query: the first one, for the connection data, or a later one, whether the
 * process is the same. */
static void query_step(struct rme_link *l, int64_t now)
{
    struct elan_account *o = &l->f->account[l->peer.vp];
    struct bmi_elan4_conn_info theirs;
    bool first = !l->peer.queue;
    int rc = bmi_elan4_query_step(&l->call, &theirs);
    enum bmi_elan4_verdict verdict;
    struct elan_peer there;

    if (rc == -EAGAIN && (first || now - l->asked < ELAN_CALL_MS))
        return;
    bmi_elan4_query_end(&l->call);
    if (rc < 0) {
        if (first)
            elan_link_down(l, rc);
        else if (rc == -ECONNREFUSED && o->bootstrap)
            elan_link_dead(l);
        return;
    }
    verdict = bmi_elan4_conn_info_judge(&l->f->conn_info, &theirs);
    if (theirs.vp != l->peer.vp || (first && verdict != BMI_ELAN4_WELCOME)) {
        if (first)
            refused(l, verdict ? verdict : BMI_ELAN4_OTHER);
        return;
    }
    there = (struct elan_peer){theirs.vp, theirs.queue, theirs.generation, 0};
    o->bootstrap = true;
    elan_see(l->f, &there);
    if (!first) {
        l->answers++;
        l->asked = now;
        return;
    }
    l->peer = there;
    l->pause = ELAN_ASK_MS;
    l->f->asking = true;
    handshake_step(l, now);
}

void elan_handshake_calls(struct rme_fabric *f, int64_t now)
{
    struct rme_link *l, *after;

    if (f->bootstrap.listener >= 0)
        bmi_elan4_bootstrap_serve(&f->bootstrap);
    if (!f->asking)
        return;
    f->asking = false;
    list_for_each_safe(l, &f->links, all, after) {
        f->asking |= l->call.fd >= 0 || l->pause;
        if (l->call.fd >= 0)
            query_step(l, now);
        else if (l->pause)
            handshake_step(l, now);
    }
}

/* Finds the server's queue.  Returns 0 if the request is in progress. */
static int find(struct rme_link *l, const struct rme_addr_part *at)
{
    struct rme_fabric *f = l->f;
    struct bmi_elan4_where where;
    int node = bmi_elan4_decimal(at->host, NULL), context = bmi_elan4_decimal(at->port, NULL);
    int rc = bmi_elan4_servers_find(f->servers, &f->nic->range, node, context, &where);

    snprintf(l->name, sizeof(l->name), "%d:%d", node, context);
    if (rc < 0) {
        l->why = rc == -ENOENT   ? "no entry of elan_servers for this server; set the option "
                                   "elan_servers or " BMI_ELAN4_SERVER_ENV
                 : rc != -EINVAL ? bmi_elan4_servers_why(f->servers)
                 : node < 0 || context < 0
                     ? "expected elan4://NODE:CONTEXT, both numbers"
                     : "outside elan_nodes and elan_contexts; check the address, or set "
                       "these options alike for all processes";
        return rc == -EAGAIN ? -ENONET : -EHOSTUNREACH; /* -EAGAIN: a name is looked up */
    }
    l->peer.vp = (unsigned)bmi_elan4_vp(&f->nic->range, node, context);
    if (where.queue) {
        if (node == f->nic->node &&
            bmi_elan4_log_owner(f->nic->log, context, &l->peer.generation) == 0)
            return -ECONNREFUSED; /* this node's log shows no owner */
        l->peer.queue = where.queue;
        if (l->peer.generation)
            elan_see(f, &l->peer);
        send_hello(l);
        return 0;
    }
    return call(l, &where);
}

int elan_op_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out)
{
    const struct rme_addr_part *at = rme_addr_part(addr, part);
    struct rme_link *l;
    int rc;

    if (at == NULL || length > ELAN_HELLO_MAX)
        return -EINVAL;
    if (elan_kept_full(f, bmi_elan4_decimal(at->host, NULL), NULL))
        return -ENOBUFS;
    l = elan_link_new(f);
    if (l == NULL)
        return -ENOMEM;
    l->owner = owner;
    elan_link_step(l, ELAN_HANDSHAKE_STATE);
    memcpy(l->hello, hello, length);
    l->hello_length = length;
    rc = elan_op_rx_reserve(l, rx);
    if (rc < 0) {
        l->reports |= ELAN_REPORT_REQUEST; /* not reported to the host */
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

static void hello(struct rme_fabric *f, const struct elan_peer *from,
                  enum bmi_elan4_verdict verdict, const uint8_t *data, size_t length)
{
    struct rme_link *l = NULL;
    int node = -1, context = -1;

    if (verdict == BMI_ELAN4_VERSION || verdict == BMI_ELAN4_RANGE) {
        elan_log(f, RME_LOG_WARN, "connection request cannot be answered: %s",
                 bmi_elan4_verdict_text(verdict)); /* the address of the peer's queue is
                                                    * unknown */
        return;
    }
    if (verdict == BMI_ELAN4_WELCOME && f->config.listen == NULL)
        verdict = BMI_ELAN4_OTHER;
    if (verdict == BMI_ELAN4_WELCOME) {
        elan_see(f, from);
        (void)bmi_elan4_place(&f->nic->range, (int)from->vp, &node, &context);
        l = elan_kept_full(f, node, from) ? NULL : elan_link_new(f);
        verdict = BMI_ELAN4_FULL;
    }
    if (l == NULL) {
        elan_tx_alone(f, from, ELAN_REJECT, verdict, NULL, 0);
        return;
    }
    l->passive = true;
    elan_link_step(l, ELAN_REQUESTED_STATE);
    take_hello(l, from, data, length);
    snprintf(l->name, sizeof(l->name), "%d:%d", node, context);
    elan_report_later(l, ELAN_REPORT_REQUEST);
}

int elan_op_accept(struct rme_link *l, const void *data, size_t length, uint32_t rx,
                   void *owner)
{
    int rc;
    if (length > ELAN_HELLO_MAX)
        return -EINVAL;
    if (l->state != ELAN_REQUESTED_STATE)
        return -ENOTCONN;
    if (!elan_share_left(&l->f->places, l->peer.vp))
        return -ENOBUFS;
    rc = elan_op_rx_reserve(l, rx);
    if (rc == 0)
        rc = elan_tx_control(l, ELAN_ACCEPT, l->number, data, length);
    if (rc < 0)
        return rc;
    elan_share_take(&l->f->places, l->peer.vp);
    l->owner = owner;
    link_up(l);
    return 0;
}

void elan_op_reject(struct rme_link *l, const void *data, size_t length)
{
    if (l->state == ELAN_DOWN_STATE) { /* nor is a pending LINK_DOWN reported */
        elan_op_free(l);
        return;
    }
    elan_tx_alone(l->f, &l->peer, ELAN_REJECT, 0, data,
                  length < ELAN_HELLO_MAX ? length : ELAN_HELLO_MAX);
    l->reports |= ELAN_REPORT_REQUEST; /* ends without LINK_DOWN */
    elan_link_down(l, -EACCES);
}

/* ---- The host's calls ---- */

/* Returns true if a packet to the peer's process is in flight, whose age poll.c watches. */
static bool is_watched(const struct rme_link *l)
{
    const struct rme_link *other;

    list_for_each(other, &l->f->links, all)
        if (elan_same(&other->peer, &l->peer) && elan_tx_flying(other) != NULL)
            return true;
    return false;
}

/* Probes the peer.  All packets may have landed before the peer died, and the host may lack
 * credits for more. */
void elan_op_probe(struct rme_link *l)
{
    if (l->state != ELAN_UP_STATE)
        return;
    if (elan_account_dead(l->f, &l->peer))
        elan_link_dead(l);
    else
        elan_ask(l, (int64_t)rme_now());
    /* without a packet in flight one without effect, a report of no refusals: a dead peer never
     * accepts the packet, which poll.c detects.  The queue may wait for a transfer.  A full
     * account may consist of transfers and queued messages, so that nothing else shows it. */
    if (l->state == ELAN_UP_STATE && elan_tx_flying(l) == NULL &&
        !(elan_account_full(l->f, &l->peer) && is_watched(l)))
        (void)elan_tx_control(l, ELAN_REFUSED, 0, NULL, 0);
}

/* Queues a transfer. */
void elan_op_rdma(struct rme_link *l, struct rme_rdma_op *x)
{
    struct elan_tx *tx = x->notify == RME_NOTIFY_MSG ? elan_tx_of(l, x->tx, x->tx_length)
                                                     : calloc(1, sizeof(*tx));

    if (tx == NULL) {
        elan_link_broken(l, "no memory for a transfer");
        return;
    }
    tx->x = x;
    tx->piece = tx->seg = 0;
    tx->ahead = 0;
    elan_tx_queue(l, tx);
}

/* ---- Answers ---- */

static void accepted(struct rme_link *l, const struct elan_peer *from, const uint8_t *data,
                     size_t length)
{
    if (l->state != ELAN_HANDSHAKE_STATE || from->vp != l->peer.vp) {
        elan_link_broken(l, "an unsolicited answer");
        return;
    }
    l->pause = 0;
    take_hello(l, from, data, length);
    elan_see(l->f, from);
    link_up(l);
}

static void rejected(struct rme_link *l, const struct elan_packet *p, const uint8_t *data)
{
    if (p->arg) {
        refused(l, p->arg);
        return;
    }
    take_hello(l, &l->peer, data, p->bytes < ELAN_HELLO_MAX ? p->bytes : ELAN_HELLO_MAX);
    elan_link_down(l, -EACCES);
}

/* Handles LEFT, or REJECT of a peer that does not know the link.  A peer that has used the
 * link, or has given the link up, may still write. */
static void left(struct rme_link *l, uint8_t kind)
{
    if (kind == ELAN_LEFT || l->expected || l->next_seq > 1 || !list_empty(&l->moves))
        elan_link_end(l, -ECONNRESET);
    else if (l->state != ELAN_ENDING_STATE)
        elan_link_down(l, -ECONNRESET);
}

void elan_handshake_packet(struct rme_fabric *f, struct rme_link *l,
                           const struct elan_packet *p, const uint8_t *body)
{
    enum bmi_elan4_verdict verdict = BMI_ELAN4_WELCOME;
    struct bmi_elan4_conn_info theirs;
    struct elan_peer from = {0};
    size_t length = 0;

    if (p->kind == ELAN_HELLO || p->kind == ELAN_ACCEPT) {
        length = p->bytes - sizeof(theirs);
        if (p->bytes < sizeof(theirs) || length > ELAN_HELLO_MAX ||
            bmi_elan4_conn_info_decode(body, &theirs) < 0 || theirs.vp != p->from)
            return;
        body += sizeof(theirs);
        from = (struct elan_peer){theirs.vp, theirs.queue, theirs.generation, p->arg};
        verdict = bmi_elan4_conn_info_judge(&f->conn_info, &theirs);
    }
    if (p->kind == ELAN_HELLO)
        hello(f, &from, verdict, body, length);
    else if (p->kind == ELAN_ACCEPT && l == NULL && verdict == BMI_ELAN4_WELCOME)
        elan_tx_alone(f, &from, ELAN_REJECT, 0, NULL, 0); /* the link is gone */
    else if (l == NULL)
        return;
    else if (p->kind == ELAN_ACCEPT && verdict != BMI_ELAN4_WELCOME)
        elan_link_broken(l, "an answer of another version");
    else if (p->kind == ELAN_ACCEPT)
        accepted(l, &from, body, length);
    else if (p->kind == ELAN_REJECT && l->state == ELAN_HANDSHAKE_STATE)
        rejected(l, p, body);
    else if (p->kind == ELAN_REFUSED)
        elan_refused_there(l, p, body);
    else if (p->kind == ELAN_REJECT || p->kind == ELAN_LEFT)
        left(l, p->kind);
}
