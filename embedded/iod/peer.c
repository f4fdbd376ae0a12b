/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Peers: those who sent us something.
 *
 * A peer is known from its first request on.  Each has a receive posted that can never match
 * (`watch`): BMI ends it with an error when the connection is lost, and with that everything
 * the peer had open is closed.  The peer itself goes with the last request and transfer; until
 * then they may use it, and see by `gone` that nobody listens.
 */
#include "config.h"
#include "embedded/iod/server_impl.h"
#include "embedded/iod/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No message of the protocol has this tag: data tags of clients stay below. */
#define WATCH_TAG INT32_MAX

void peer_use(struct peer *peer)
{
    peer->uses++;
}

void peer_put(struct peer *peer)
{
    struct peer **at = &peer->server->peers;

    if (--peer->uses > 0)
        return;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    BMI_set_info(peer->addr, BMI_DEC_ADDR_REF, NULL);
    free(peer);
}

static void watch_done(struct net_op *op, int error, int64_t actual)
{
    struct peer *peer = (struct peer *)((char *)op - offsetof(struct peer, watch));
    struct server *server = peer->server;

    (void)actual;
    pthread_mutex_lock(&server->lock);
    op->id = 0;
    peer->gone = true;
    log_line(LOG_DECISIONS, "%s: gone (%s), %u transfers open", peer->name,
             strerror(error ? -error : EPROTO), peer->transfer_count);
    for (struct transfer *t = peer->transfers; t; t = t->next)
        transfer_close(t, NULL, ECONNRESET);
    peer_put(peer);
    pthread_mutex_unlock(&server->lock);
}

/* A receive without memory, which nothing is ever sent to. */
static void peer_watch(struct peer *peer)
{
    struct iovec piece = {NULL, 0};
    struct net_memory memory = {.type = BMI_EXT_ALLOC, .pieces = 1, .piece = &piece};
    int64_t actual = 0;
    int result = net_recv(peer->server->context, peer->addr, &memory, 0, WATCH_TAG,
                          &peer->watch, &actual);

    if (result == 0) {
        peer_use(peer);
        return;
    }
    peer->gone = true; /* goes with the request that brought it here */
    log_line(LOG_DECISIONS, "%s: gone already (%s)", peer->name,
             strerror(result > 0 ? EPROTO : -result));
}

static bool is_admitted(const struct peer *peer)
{
    const struct access *allow = peer->server->allow;
    char host[128];

    return !allow ||
           (access_host_of(peer->name, host, sizeof host) && access_admits(allow, host));
}

struct peer *peer_get(struct server *server, BMI_addr_t addr)
{
    struct peer *peer = server->peers;
    const char *name;

    while (peer && (peer->addr != addr || peer->gone))
        peer = peer->next;
    if (peer) {
        peer_use(peer);
        return peer;
    }
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    name = BMI_addr_rev_lookup_unexpected(addr);
    snprintf(peer->name, sizeof peer->name, "%s", name ? name : "?");
    peer->server = server;
    peer->uses = 1;
    peer->addr = addr;
    peer->watch.done = watch_done;
    BMI_set_info(addr, BMI_INC_ADDR_REF, NULL);
    peer->next = server->peers;
    server->peers = peer;
    peer->admitted = is_admitted(peer);
    log_line(LOG_DECISIONS, "%s: new client%s", peer->name,
             peer->admitted ? "" : ", which --allow does not admit");
    peer_watch(peer);
    return peer;
}
