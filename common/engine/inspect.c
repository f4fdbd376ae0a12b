/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queries of the host: addresses, memory, counters, options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

/* ---- Addresses ---- */

void rme_addr_free(struct rme_addr *addr)
{
    struct rme *rme = atomic_load(&addr->engine);

    if (rme != NULL && rme_enter(rme)) {
        if (addr->peer != NULL)
            rme_peer_addr_freed(addr->peer);
        rme_unlock(rme);
    }
    rme_addr_put(addr);
}

/* A dead peer that is not in state DEAD yet has a link that is not down. */
bool rme_addr_is_over(const struct rme_addr *addr)
{
    struct rme *rme = atomic_load(&addr->engine);
    const struct rme_peer *peer;
    bool over;

    if (!rme_addr_is_dead(addr))
        return false;
    if (rme == NULL || !rme_enter(rme))
        return true;
    peer = addr->peer;
    over =
        addr->held == 0 &&
        (peer == NULL || (peer->state == RME_PEER_DEAD && !rme->peer_ops->has_messages(peer)));
    rme_unlock(rme);
    return over;
}

struct reach_wait {
    struct rme_waiter waiter; /* found: the outcome */
    struct rme_peer *peer;
};

/* Returns true as soon as the outcome is known.  A peer is IDLE here only after a failed
 * attempt to connect. */
static bool reach_ready(struct rme *rme, struct rme_waiter *waiter)
{
    const struct rme_peer *peer = container_of(waiter, struct reach_wait, waiter)->peer;

    (void)rme;
    if (peer->state == RME_PEER_DEAD || peer->addr_freed)
        waiter->found = -ECONNRESET;
    else if (peer->state == RME_PEER_UP)
        waiter->found = 0;
    else if (peer->state == RME_PEER_IDLE)
        waiter->found = rme_peer_connect_error(peer->last_part_error);
    return waiter->found != -EINPROGRESS;
}

int rme_addr_reach(struct rme *rme, struct rme_addr *addr, int wait_ms)
{
    struct reach_wait wait = {
        .waiter = {.ctx = RME_WAIT_ANY, .found = -EINPROGRESS, .ready = reach_ready}};
    int error = 0;

    if (!rme_enter(rme))
        return -ENODEV;
    wait.peer = rme_peer_of(rme, addr, &error);
    if (wait.peer != NULL) {
        wait.peer->refcount++;
        wait.peer->reaching++;
        rme_peer_work(wait.peer);
    }
    rme_unlock(rme);
    if (wait.peer == NULL)
        return error;
    rme_wait(rme, &wait.waiter, wait_ms);
    rme_lock(rme);
    wait.peer->reaching--;
    rme_peer_put(wait.peer);
    rme_unlock(rme);
    return wait.waiter.found;
}

/* ---- Memory ---- */

void *rme_memory_alloc(struct rme *rme, size_t size)
{
    void *memory;

    if (rme_forked(rme))
        return NULL;
    memory = rme_zone_alloc(rme->zone, size, true);
    if (memory != NULL)
        /*
         * Clears the memory, so that a peer cannot read another peer's data, for instance after
         * falsely reporting a write.  BMI_memalloc of OrangeFS clears, too, but not that of
         * PVFS 2.8.0 to 2.8.2.
         */
        memset(memory, 0, size);
    rme_log_drain(rme->log);
    return memory;
}

int rme_memory_free(struct rme *rme, void *memory)
{
    return rme_forked(rme) ? -ENODEV : rme_zone_release(rme->zone, memory);
}

void rme_memory_hint(struct rme *rme, const void *memory, size_t size,
                     enum rme_direction direction)
{
    if (!rme_forked(rme))
        rme_mreg_hint(rme->mreg, (void *)(uintptr_t)memory, size,
                      direction == RME_TO_SEND ? RME_ACCESS_REMOTE_READ
                                               : RME_ACCESS_REMOTE_WRITE);
}

/* ---- Counters and options ---- */

static const struct rme_counter counters[RME_C_COUNT] = {
#define RME_COUNTER_ROW(id, name, unit, text)                                                  \
    [RME_C_##id] = {name, unit, text, 0, RME_C_##id >= RME_C_GAUGES},
    RME_COUNTERS(RME_COUNTER_ROW)
#undef RME_COUNTER_ROW
};

int rme_counter_get(struct rme *rme, int index, struct rme_counter *out)
{
    struct rme_peer *peer;

    if (index < 0 || index >= RME_C_COUNT)
        return -ENOENT;
    *out = counters[index];
    if (!rme_enter(rme))
        return 0;
    rme->stats.value[RME_C_OPS_LIVE] = rme->operations->table.live;
    out->value =
        rme->stats.value[index] + rme_pin_counted(&rme->pin, (enum rme_counter_id)index);
    if (index < RME_C_PEER)
        list_for_each(peer, &rme->peers, of_engine)
            out->value += peer->count[index];
    rme_unlock(rme);
    return 0;
}

uint64_t rme_counter_value(struct rme *rme, const char *name)
{
    struct rme_counter counter;

    for (int i = 0; i < RME_C_COUNT; i++)
        if (strcmp(counters[i].name, name) == 0)
            return rme_counter_get(rme, i, &counter) == 0 ? counter.value : 0;
    return 0;
}

/* Reads a parameter agreed with a peer, a limit of its resources, or one of its counters. */
static int read_attribute(const struct rme_peer *peer, int index, struct rme_counter *out)
{
    struct rme *rme = peer->rme;
    const uint64_t caches = rme_mreg_caches(rme->mreg);
    const struct rme_counter own[] = {
        {"eager_bytes", "bytes", "largest expected message sent whole in one buffer",
         peer->eager_max[RME_EXPECTED], true},
        {"unexpected_bytes", "bytes", "largest unexpected message", RME_UNEXPECTED_MAX, true},
        {"packed", "bytes", "bounce buffers in use for messages from and to the peer",
         peer->quota[RME_QUOTA_BOUNCE], true},
        {"credits_granted", "buffers", "receive buffers granted by the peer",
         peer->credit.granted, true},
        {"credits_free", "buffers", "of credits_granted: not in use", peer->credit.have, true},
        {"credits_promised", "buffers", "receive buffers granted to the peer",
         peer->credit.advertised, true},
        {"unit_bytes", "bytes",
         "large messages are registered and transferred in fragments of this size",
         rme->tuning.frag_size, true},
        {"pack_bytes", "bytes",
         "lists with less payload are packed; 0: by size (--explain); 2^64-1: all",
         rme->tuning.lists == RME_LISTS_AUTO   ? 0
         : rme->tuning.lists == RME_LISTS_PACK ? UINT64_MAX
                                               : 1,
         true},
        {"segments", "segments", "limit of segments per work request", rme->caps->max_sge,
         true},
        {"transfer_bytes", "bytes", "limit of rendezvous bytes given to the device at a time",
         rme->tuning.rdma_bytes, true},
        {"cache_bytes", "bytes", "limit of user memory that stays registered; 0: none",
         caches * rme_mreg_bound(rme->mreg), true},
        {"zone_bytes", "bytes",
         "limit of registered engine memory (BMI_memalloc, bounce buffers)",
         rme->quota[RME_QUOTA_BOUNCE].limit, true},
        {"polls_us", "us",
         "time that a waiting call of this process polls now before it sleeps, by recent "
         "success",
         rme_wait_polls_us(rme), true},
        {"cache_entries", "pieces",
         "limit of cached registrations, each of at most unit_bytes; 0: none",
         caches * (uint64_t)rme_option(rme->options, "regcache_entries"), true},
        {"piece_bytes", "bytes",
         "contiguous payloads from this size on are used in place and stay registered; 0: by "
         "the limit of --explain",
         caches * rme->tuning.pack_threshold, true},
    };
    const int count = sizeof(own) / sizeof(own[0]);

    if (index < 0 || index >= count + RME_C_PEER)
        return -ENOENT;
    *out = index < count ? own[index] : counters[index - count];
    if (index >= count)
        out->value = peer->count[index - count];
    return 0;
}

int rme_session_get(struct rme *rme, struct rme_addr *addr, int index, struct rme_counter *out)
{
    int error = -ENOTCONN;

    if (atomic_load(&addr->engine) != rme || !rme_enter(rme))
        return error;
    if (addr->peer != NULL && addr->peer->state == RME_PEER_UP)
        error = read_attribute(addr->peer, index, out);
    rme_unlock(rme);
    return error;
}

int rme_option_get(struct rme *rme, const char *name, int64_t *value)
{
    return rme_option_find(rme->options, name, value);
}

const char *rme_key_opens(const struct rme *rme)
{
    if (rme->caps->register_each)
        return "the bytes of one operation, to every peer, until the operation ends";
    if (rme->caps->mws == 0)
        return "all of a registration, to every peer, for as long as it is kept";
    return "the bytes of one operation, to one peer, until the operation ends";
}

static const char *const state_names[] = {
#define RME_PEER_NAME(id, name, text) name,
    RME_PEER_STATES(RME_PEER_NAME)
#undef RME_PEER_NAME
};

static void print_peer(const struct rme_peer *peer, FILE *out)
{
    void (*path)(const struct rme_link *, char *, size_t) = peer->rme->ops->link_path;
    char by[RME_PATH_TEXT] = "";

    if (peer->state == RME_PEER_UP && path != NULL)
        path(peer->link, by, sizeof(by));
    fprintf(out,
            "%s: %s, credits %u to send, %u granted (%u unreturned), %u operations, %llu bytes "
            "buffered, %u transfers, %llu bytes sent, %llu received%s%s\n",
            rme_peer_name(peer), state_names[peer->state], peer->credit.have,
            peer->credit.advertised, peer->credit.unreturned, peer->refcount,
            (unsigned long long)peer->quota[RME_QUOTA_RX], peer->rdma_ops,
            (unsigned long long)peer->count[RME_C_BYTES_SENT],
            (unsigned long long)peer->count[RME_C_BYTES_RECEIVED], by[0] ? ", by " : "", by);
}

void rme_print_peers(struct rme *rme, void (*write)(void *arg, const char *line), void *arg)
{
    const struct rme_peer *peer;
    char *text = NULL, *rest;
    size_t size = 0;
    FILE *out;

    if (rme_forked(rme) || (out = open_memstream(&text, &size)) == NULL)
        return;
    rme_lock(rme);
    list_for_each(peer, &rme->peers, of_engine)
        print_peer(peer, out);
    rme_unlock(rme);
    if (fclose(out) == 0)
        for (char *line = strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest))
            write(arg, line);
    free(text);
}

/* ---- The planner ---- */

/* Assumes an idle peer with the same configuration but the other role. */
void rme_explain(struct rme *rme, uint64_t bytes, uint64_t segments, FILE *out)
{
    struct rme_plan_in send, recv;

    if (!rme_enter(rme))
        return;
    send = rme_rndv_plan_in_send(rme, bytes, rme_rndv_side(rme, segments, false));
    recv = rme_rndv_plan_in(rme, bytes);
    send.eager_max = recv.eager_max =
        rme_plan_eager_max(rme->tuning.rx_size - RME_WIRE_HEADER_SIZE, rme->tuning.eager_max);
    send.ring_max = rme_ring_msg_max(rme, RME_EXPECTED, segments);
    send.recv.server = !rme->server;
    recv.recv = rme_rndv_side(rme, 1, false);
    recv.recv.server = !rme->server;
    recv.send = (struct rme_plan_side){.server = rme->server};
    rme_unlock(rme);
    rme_plan_explain(out, &send, &recv);
}
