/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * peer.c - clients (peers).
 *
 * A peer exists from its first request on.  Each has a posted receive that cannot match
 * (`watch`): BMI completes it with an error when the connection is lost, and all transfers of
 * the peer are closed.  The peer is freed with its last request and transfer, which may use the
 * peer until then; `gone` shows that the connection is lost.
 */
#include "config.h"
#include "embedded/iod/server_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tag that no message of the protocol has: data tags of clients are lower. */
#define WATCH_TAG INT32_MAX

void peer_log(struct peer *peer, enum log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;

    if (!peer->admitted && level == LOG_DECISIONS)
        level = LOG_DETAILS;
    if (!log_wanted(level))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_line(level, "%s: %s", peer->name, text);
}

void peer_use(struct peer *peer)
{
    peer->uses++;
}

void peer_put(struct peer *peer)
{
    if (--peer->uses > 0)
        return;
    *peer->at = peer->next;
    if (peer->next != NULL)
        peer->next->at = peer->at;
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
    if (error == -ECONNRESET && peer->transfer_count == 0)
        peer_log(peer, LOG_DECISIONS, "disconnected");
    else
        peer_log(peer, LOG_DECISIONS, "gone (%s), %u transfers open",
                 strerror(error ? -error : EPROTO), peer->transfer_count);
    for (struct transfer *t = peer->transfers; t; t = t->next)
        transfer_close(t, NULL, ECONNRESET);
    peer_put(peer);
    pthread_mutex_unlock(&server->lock);
}

/* Posts the receive without memory that no message matches. */
static void peer_watch(struct peer *peer)
{
    int64_t actual = 0;
    int result = net_recv(peer->server->context, peer->addr, NULL, 0, BMI_EXT_ALLOC, WATCH_TAG,
                          &peer->watch, &actual);

    if (result == 0) {
        peer_use(peer);
        return;
    }
    peer->gone = true; /* freed with the request that created it */
    peer_log(peer, LOG_DECISIONS, "gone already (%s)", strerror(result > 0 ? EPROTO : -result));
}

static struct peer *peer_new(struct server *server, BMI_addr_t addr)
{
    struct peer *peer = calloc(1, sizeof *peer);
    const char *name = BMI_addr_rev_lookup_unexpected(addr);
    char host[sizeof peer->name];

    if (peer == NULL)
        return NULL;
    snprintf(peer->name, sizeof peer->name, "%s", name != NULL ? name : "?");
    peer->admitted = server->allow == NULL || (access_host_of(peer->name, host, sizeof host) &&
                                               access_admits(server->allow, host));
    peer->server = server;
    peer->uses = 1;
    peer->addr = addr;
    peer->watch.done = watch_done;
    BMI_set_info(addr, BMI_INC_ADDR_REF, NULL);
    peer->next = server->peers;
    peer->at = &server->peers;
    if (peer->next != NULL)
        peer->next->at = &peer->next;
    server->peers = peer;
    return peer;
}

struct peer *peer_get(struct server *server, BMI_addr_t addr)
{
    struct peer *peer = server->peers;

    while (peer != NULL && (peer->addr != addr || peer->gone))
        peer = peer->next;
    if (peer != NULL) {
        peer_use(peer);
        return peer;
    }
    peer = peer_new(server, addr);
    if (peer == NULL)
        return NULL;
    peer_log(peer, peer->admitted ? LOG_DECISIONS : LOG_ERRORS, "new client%s",
             peer->admitted ? "" : ", which --allow does not admit");
    peer_watch(peer);
    return peer;
}
