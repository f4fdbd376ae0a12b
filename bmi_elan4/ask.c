/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ask.c - queries by TCP whether a server is still the same process.
 *
 * The bootstrap server of a server (exchange.h) shows whether an unresponsive server is gone:
 * no process listens, or a process of another generation answers.  Either side of a link
 * queries the server of a node; a client has no bootstrap server.  A refused connection is
 * significant only if the bootstrap server was open before.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "bmi_elan4/elan.h"

/* Returns the generation that the peer should have. */
static uint64_t whom(const struct rme_link *l)
{
    return l->met ? l->met : l->peer.generation;
}

static void gone(struct rme_link *l)
{
    if (!l->met) {
        elan_link_dead(l);
        return;
    }
    elan_account_died(l->f, l->peer.vp, l->met);
    elan_link_down(l, -ECONNREFUSED);
}

static bool had_bootstrap(const struct rme_link *l)
{
    return !l->passive || l->f->account[l->peer.vp].bootstrap;
}

int elan_call(struct rme_link *l, const struct bmi_elan4_where *where)
{
    int rc = bmi_elan4_query_begin((const struct sockaddr *)&where->tcp, where->tcp_length,
                                   &l->call);

    if (rc < 0)
        return rc;
    l->f->callings++;
    return elan_watch(l->f, bmi_elan4_query_fd(l->call), EPOLLIN | EPOLLET);
}

void elan_answered(struct rme_link *l, int rc, const struct bmi_elan4_conn_info *theirs,
                   int64_t now)
{
    if (rc == -ECONNREFUSED && had_bootstrap(l)) {
        gone(l);
    } else if (rc == 0 && theirs->vp == l->peer.vp) {
        l->f->account[l->peer.vp].bootstrap = true;
        elan_see(l->f, l->peer.vp, theirs->generation);
        if (theirs->generation != whom(l)) {
            elan_accounts_before(l->f, l->peer.vp, theirs->generation);
            gone(l);
            return;
        }
        l->answers++;
        l->asked = now;
    }
}

void elan_ask(struct rme_link *l, int64_t now)
{
    struct rme_fabric *f = l->f;
    struct bmi_elan4_where where;
    int node, context;

    if (l->call || (l->asked && now - l->asked < ELAN_ASK_MS) ||
        bmi_elan4_place(&f->nic->range, (int)l->peer.vp, &node, &context) < 0 ||
        (l->passive && context != f->nic->range.low_context) ||
        (node == f->nic->node && !l->met) || /* the context log shows this */
        bmi_elan4_servers_find(f->servers, &f->nic->range, node, context, &where) < 0 ||
        where.queue)
        return;
    l->asked = now;
    int rc = elan_call(l, &where);
    if (rc == -ECONNREFUSED && had_bootstrap(l))
        gone(l);
    else if ((rc == -EMFILE || rc == -ENFILE) && l->state == ELAN_HANDSHAKE_STATE)
        elan_link_down(l, rc); /* under emuelan4 the peer's memory needs a descriptor, too */
}

/* Sends a packet without effect, an ACCEPT without connection data, if nothing is in flight:
 * a dead peer never accepts the packet, which check.c detects. */
static void send_nothing(struct rme_link *l)
{
    if (TAILQ_EMPTY(&l->sent) && TAILQ_EMPTY(&l->queued) &&
        !elan_account_full(l->f, l->peer.vp, l->peer.generation))
        (void)elan_tx_control(l, ELAN_ACCEPT, 0, NULL, NULL, 0);
}

/* Probes the peer.  All packets may have landed before the peer died, and the host may lack
 * credits for more. */
void elan_op_probe(struct rme_link *l)
{
    int64_t now = elan_now();

    if (l->state != ELAN_UP_STATE)
        return;
    if (elan_account_gone(l->f, l->peer.vp, l->peer.generation))
        elan_link_dead(l);
    else
        elan_ask(l, now);
    if (l->state == ELAN_UP_STATE)
        send_nothing(l);
}
