/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Creation and destruction of peers, and the end of their links.  link.c describes the life of
 * a peer. */
#include <errno.h>
#include <stdlib.h>

#include "transport/peer.h"

/* ---- Making and freeing ---- */

struct rme_peer *rme_peer_new(struct rme *rme, struct rme_addr *addr)
{
    struct rme_peer *peer = calloc(1, sizeof(*peer) + rme->peer_ops->proto_size);
    bool passive = addr->nparts == 0;

    if (peer != NULL)
        peer->host = rme_host_get(rme, passive ? addr->name : NULL);
    if (peer == NULL || peer->host == NULL) {
        free(peer);
        return NULL;
    }
    peer->passive = passive;
    peer->rme = rme;
    peer->proto = (void *)(peer + 1);
    peer->addr = addr;
    rme_addr_get(addr);
    addr->peer = peer;
    atomic_store(&addr->engine, rme);
    peer->serial = ++rme->last_serial;
    peer->reported = !passive;
    peer->backoff_ms = rme->tuning.backoff_min_ms;
    peer->cancel_by = UINT64_MAX;
    list_init(&peer->scheduled);
    list_init(&peer->ops);
    list_init(&peer->draining);
    list_init(&peer->control);
    list_init(&peer->endings);
    list_init(&peer->rdma_queue);
    list_init(&peer->moving);
    list_init(&peer->mover);
    list_init(&peer->throttled);
    list_init(&peer->mw_waitq);
    list_init(&peer->invalidating);
    list_init(&peer->deferred_recvs);
    list_init(&peer->failed);
    rme->peer_ops->created(peer);
    list_add_tail(&peer->of_engine, &rme->peers);
    rme->npeer++;
    return peer;
}

struct rme_peer *rme_peer_find(struct rme *rme, struct rme_addr *addr, int *error)
{
    struct rme *engine = atomic_load(&addr->engine);

    if (engine != NULL && engine != rme) {
        *error = -EINVAL;
        return NULL;
    }
    if (atomic_load(&addr->dead)) {
        *error = -ECONNRESET;
        return NULL;
    }
    *error = -ENOMEM;
    return rme_peer_new(rme, addr);
}

void rme_peer_destroy(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    struct rme_addr *addr = peer->addr;

    rme_timer_stop(&rme->timers, &peer->timer);
    list_del_init(&peer->of_engine);
    list_del_init(&peer->scheduled);
    list_del_init(&peer->throttled);
    rme_host_put(rme, peer->host);
    list_del_init(&peer->mw_waitq);
    rme->npeer--;
    addr->peer = NULL;
    atomic_store(&addr->engine, NULL);
    if (peer->passive) {
        atomic_store(&addr->dead, true);
        if (!peer->reported)
            rme_addr_put(addr); /* reference of the host, to which addr was never reported */
    }
    rme_addr_put(addr);
    for (int i = 0; i < RME_C_PEER; i++)
        rme->stats.value[i] += peer->count[i];
    free(peer);
}

void rme_peer_release(struct rme_peer *peer)
{
    bool addr_freed = peer->addr_freed || (peer->state == RME_PEER_DEAD && !peer->reported);

    if (addr_freed && !peer->rme->closing && peer->link == NULL && peer->refcount == 0 &&
        !peer->rme->peer_ops->has_messages(peer))
        rme_peer_destroy(peer);
}

void rme_peer_set_timer(struct rme_peer *peer, uint64_t when)
{
    struct rme *rme = peer->rme;

    rme_timer_set(&rme->timers, &peer->timer, when);
    if (rme->sleeping && rme_timers_next(&rme->timers) < rme->sleeps_until)
        rme->pending |= RME_PENDING_WAKE;
}

/* Here, because the end of a link needs it, and grant.c needs that end. */
void rme_grant_send_waiting(struct rme *rme)
{
    struct rme_peer *peer;

    rme->credit_wait_calls = 0;
    while ((peer = rme->credit_waiting) != NULL) {
        rme_grant_waited(peer);
        if (rme_credit_due(&peer->credit))
            rme_peer_schedule(peer);
    }
}

/* ---- The end of a link ---- */

void rme_peer_leave(struct rme_peer *peer, int error)
{
    struct rme *rme = peer->rme;

    rme->peer_ops->disconnected(peer, error);
    rme_timer_stop(&rme->timers, &peer->timer);
    peer->busy_by = 0;
    if (peer->credit_waits) /* its place in the stack is not known */
        rme_grant_send_waiting(rme);
    list_del_init(&peer->mw_waitq);
    if (peer->state == RME_PEER_UP)
        rme->stats.value[RME_C_PEERS]--;
    if (peer->passive)
        atomic_store(&peer->addr->dead, true);
    rme_peer_step(peer, RME_PEER_CLOSING);
    peer->error = error;
}

void rme_peer_disconnect(struct rme_peer *peer, int error)
{
    int cancels;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    peer->rme->ops->link_disconnect(peer->link, error);
    pthread_setcancelstate(cancels, NULL);
    rme_wait_link(peer->rme);
}

void rme_peer_fail(struct rme_peer *peer, int error, const char *why)
{
    struct rme *rme = peer->rme;

    if (peer->link == NULL || peer->state == RME_PEER_CLOSING)
        return;
    if (why != NULL) {
        rme_log_put(rme->log, RME_LOG_WARN, "%s: disconnecting: %s", rme_peer_name(peer), why);
        rme_count(rme, RME_C_LINK_FAILURES);
    }
    rme_peer_leave(peer, error);
    rme_peer_disconnect(peer, error);
}

void rme_peer_protocol_error(struct rme_peer *peer, const char *why)
{
    rme_count(peer->rme, RME_C_PROTOCOL_ERRORS);
    rme_peer_fail(peer, -EPROTO, why);
}
