/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * peer.c - clients (peers) and their hosts.
 *
 * A peer exists from its first request on.  Each has a posted receive that cannot match
 * (`watch`): BMI completes it with an error when the connection is lost, and all transfers of
 * the peer are closed.  The peer is freed with its last request and transfer, which may use the
 * peer until then; `gone` shows that the connection is lost.
 *
 * A client could get more by making more connections.  The server's resources (open objects,
 * memory of requests and replies, buffers) are therefore shared by host, with one rule: a host
 * may take more while it holds less than is left.  One host gets at most a half, two get a
 * third each, and a host that holds nothing always gets some.  A host is a numeric source
 * address, or its equivalent in a peer's name.  A host is kept for a while after its last peer,
 * so that its log lines stay limited.
 */
#include "config.h"
#include "embedded/iod/server_impl.h"
#include "embedded/iod/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tag that no message of the protocol has: data tags of clients are lower. */
#define WATCH_TAG INT32_MAX

#define HOST_KEEP_MS  10000 /* ms; time for which a host without peers is kept */
#define HOST_KEEP_MAX 1000  /* hosts; beyond, those without peers are freed immediately */
#define HOST_LINES    100   /* log lines per second and host */
#define REFUSED_LINES 10    /* log lines about hosts that are not admitted, together, ... */
#define REFUSED_MS    10000 /* ... in this time */

/* ---- hosts ---- */

static unsigned hash_text(const char *text)
{
    unsigned hash = 2166136261u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash % SERVER_BUCKETS;
}

/* Finds or adds a host and counts a peer; NULL: no memory. */
static struct host *host_get(struct server *server, const char *name)
{
    struct host **bucket = &server->hosts[hash_text(name)];
    struct host *host = *bucket;

    while (host && strcmp(host->name, name) != 0)
        host = host->next;
    if (!host) {
        host = calloc(1, sizeof *host);
        if (!host)
            return NULL;
        snprintf(host->name, sizeof host->name, "%s", name);
        host->admitted = !server->allow || access_admits(server->allow, name);
        host->next = *bucket;
        *bucket = host;
        server->host_count++;
    }
    host->peers++;
    return host;
}

static void host_put(struct host *host)
{
    host->peers--;
    host->left_at = clock_ms();
}

void hosts_expire(struct server *server, int64_t now)
{
    for (int i = 0; i < SERVER_BUCKETS && server->host_count; i++) {
        for (struct host **at = &server->hosts[i], *host; (host = *at);) {
            if (host->peers ||
                (server->host_count <= HOST_KEEP_MAX && now - host->left_at < HOST_KEEP_MS)) {
                at = &host->next;
                continue;
            }
            *at = host->next;
            free(host);
            server->host_count--;
        }
    }
}

bool host_may(uint64_t held, uint64_t more, uint64_t all, uint64_t most)
{
    return all + more <= most && held + more <= most - all;
}

/* ---- log lines of a peer ---- */

/* Returns true if another line may be logged: `most` in `ms`.  Reports the number of lines
 * about `whom` that were omitted. */
static bool may_log(struct line_limit *limit, unsigned most, int64_t ms, const char *whom)
{
    int64_t now = clock_ms();

    if (!limit->begin || now - limit->begin >= ms) {
        if (limit->omitted)
            log_line(LOG_DECISIONS, "%s: %u lines were left out", whom, limit->omitted);
        *limit = (struct line_limit){.begin = now};
    }
    if (limit->written == most) {
        limit->omitted++;
        return false;
    }
    limit->written++;
    return true;
}

void peer_log(struct peer *peer, enum log_level level, const char *format, ...)
{
    struct host *host = peer->host;
    char text[1024];
    va_list args;

    if (!log_wanted(level) ||
        !(host->admitted ? may_log(&host->lines, HOST_LINES, 1000, host->name)
                         : may_log(&peer->server->refused, REFUSED_LINES, REFUSED_MS,
                                   "hosts that --allow does not admit")))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_line(level, "%s: %s", peer->name, text);
}

/* ---- peers ---- */

static unsigned hash_addr(BMI_addr_t addr)
{
    return (unsigned)(((uint64_t)addr * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % SERVER_BUCKETS;
}

void peer_use(struct peer *peer)
{
    peer->uses++;
}

void peer_put(struct peer *peer)
{
    struct peer **at = &peer->server->peer_of[hash_addr(peer->addr)];

    if (--peer->uses > 0)
        return;
    while (*at != peer)
        at = &(*at)->of_bucket;
    *at = peer->of_bucket;
    *peer->at = peer->next;
    if (peer->next)
        peer->next->at = peer->at;
    BMI_set_info(peer->addr, BMI_DEC_ADDR_REF, NULL);
    host_put(peer->host);
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
    struct iovec piece = {NULL, 0};
    struct net_memory memory = {.type = BMI_EXT_ALLOC, .pieces = 1, .piece = &piece};
    int64_t actual = 0;
    int result = net_recv(peer->server->context, peer->addr, &memory, 0, WATCH_TAG,
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
    struct peer **bucket = &server->peer_of[hash_addr(addr)];
    const char *name = BMI_addr_rev_lookup_unexpected(addr);
    char host[sizeof peer->host->name];

    if (!peer)
        return NULL;
    snprintf(peer->name, sizeof peer->name, "%s", name ? name : "?");
    peer->host = host_get(server, access_host_of(peer->name, host, sizeof host) ? host : "?");
    if (!peer->host) {
        free(peer);
        return NULL;
    }
    peer->server = server;
    peer->uses = 1;
    peer->addr = addr;
    peer->watch.done = watch_done;
    BMI_set_info(addr, BMI_INC_ADDR_REF, NULL);
    peer->of_bucket = *bucket;
    *bucket = peer;
    peer->next = server->peers;
    peer->at = &server->peers;
    if (peer->next)
        peer->next->at = &peer->next;
    server->peers = peer;
    return peer;
}

struct peer *peer_get(struct server *server, BMI_addr_t addr)
{
    struct peer *peer = server->peer_of[hash_addr(addr)];

    while (peer && (peer->addr != addr || peer->gone))
        peer = peer->of_bucket;
    if (peer) {
        peer_use(peer);
        return peer;
    }
    peer = peer_new(server, addr);
    if (!peer)
        return NULL;
    peer_log(peer, LOG_DECISIONS, "new client%s",
             peer->host->admitted ? "" : ", which --allow does not admit");
    peer_watch(peer);
    return peer;
}
