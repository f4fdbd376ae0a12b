/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine as a whole.
 *
 * Parts.  post.c accepts the host's posts, test.c reports completions, and wait.c lets threads
 * wait.  progress.c passes events of the fabric to the layers: links to transport/, messages to
 * the protocols (proto/), transfers to rndv/.  op/end.c describes how an operation ends.
 *
 * Locks, in the order in which they are taken:
 *
 *   1. rme->lock: all state of the engine, and every call of the fabric but wait, wake, reg and
 *      dereg;
 *   2. locks inside zone, mreg, pin and log, which call no function of the engine.
 *
 * The engine's lock is never held while sleeping, while registering or deregistering memory of
 * an operation, or in a callback of the host.  (A fabric allocates resources of a link and
 * registers message buffers under the lock: fabric.h.)  Such work is queued under the lock and
 * done by rme_run_pending, which every call runs before releasing the lock:
 *
 *   - scheduled peers send queued messages; then doorbells are rung;
 *   - fragments that need registration (rme->rndv_state->work) are registered, one by one, with
 *     the lock released (mem.c);
 *   - ended operations (rme->operations->ended) become visible after rme_mreg_dereg_flush(),
 *     when their memory is no longer registered (mreg.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/table.h"
#include "engine/engine.h"

/* limit on locked memory below which message buffers are smaller */
#define TIGHT_BYTES   (1u << 20)
#define TIGHT_RX_SIZE 1024u
#define CHAINS_FIRST  64u /* first size of the table */
#define RING_SHARE    16u /* fraction of lockable memory delegated to peers at most */
/* maximum fraction of a shared queue for the pool of credits */
#define POOL_PART     4u
#define CLOSE_WAIT_MS 10000 /* time for the fabric to end all links */
/* time for BYE, and all earlier messages, to reach the peers' hardware */
#define BYE_WAIT_MS 1000
#define WINDOW_MIN  (64u << 10) /* bytes of unexpected messages that a peer may send */
#define RTS_BYTES   16u         /* of the eager window, for each RTS without a receive */
/* receive buffers of a busy connection: a stream returns half of them with each CREDIT, one
 * message of 32 (doc/design/credits.md) */
#define CREDITS_MAX 64u
/* outstanding transfers of the process; the bytes of each are limited, too */
#define XFERS      256u
#define XFER_PEERS 16u /* divisor of that limit: the limit of a peer */
/* divisor of connect_timeout_ms: a connected peer answers CANCEL sooner than a request */
#define CANCEL_PART 10u
/* Registrations evicted together, whose watches then end in one call: an eviction takes 1.6 us
 * instead of 4.1 (doc/design/optimizations.md). */
#define EVICT_BATCH 16u
/* cost of a registration and of each of its pages (bench/registration): segments of a list up
 * to 40 pages apart are registered together */
#define REG_CALL_NS 10000
#define REG_PAGE_NS 250

/* ---- Opening ---- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void read_tuning(struct rme_tuning *t, const struct rme_options *o)
{
    t->rx_size = (uint32_t)rme_option(o, "rx_size") + RME_WIRE_HEADER_SIZE;
    t->eager_max = (uint64_t)rme_option(o, "eager_max");
    t->eager_window[RME_EXPECTED] = (uint32_t)rme_option(o, "eager_window");
    t->eager_window[RME_UNEXPECTED_STREAM] =
        larger(t->eager_window[RME_EXPECTED] / 4, WINDOW_MIN);
    t->rts_max = t->eager_window[RME_EXPECTED] / RTS_BYTES;
    t->credits = (uint32_t)rme_option(o, "credits");
    t->credits_max = larger(t->credits, CREDITS_MAX);
    t->frag_size = (uint64_t)rme_option(o, "fragment_bytes");
    t->prefer = (enum rme_prefer)rme_option(o, "rndv");
    t->lists = (enum rme_lists)rme_option(o, "list_mode");
    t->early_cts = rme_option(o, "early_cts") != 0;
    t->ring_bytes = (uint32_t)rme_option(o, "eager_ring_bytes");
    t->idle_ms = (uint32_t)rme_option(o, "pool_idle_ms");
    t->rdma_ops = XFERS;
    t->rdma_ops_peer = XFERS / XFER_PEERS;
    t->rdma_bytes = (uint64_t)rme_option(o, "rdma_inflight_bytes");
    t->poll_us = (uint32_t)rme_option(o, "poll_us");
    t->connect_ms = (uint32_t)rme_option(o, "connect_timeout_ms");
    t->backoff_max_ms = (uint32_t)rme_option(o, "backoff_max_ms");
    t->backoff_min_ms = larger(t->backoff_max_ms / 100, 1);
    t->keepalive_ms = (uint32_t)rme_option(o, "keepalive_ms");
    t->peer_timeout_ms = (uint32_t)rme_option(o, "peer_timeout_ms");
    t->cancel_ms = larger(t->connect_ms / CANCEL_PART, 1);
}

/*
 * Returns a share of the memory that this process may lock.  Zones get half, the cache of user
 * memory a quarter; the rest is for the buffers of connections.  Where little memory may be
 * locked, connections need nearly all of that memory, so the shares are halved.
 */
static uint64_t share(unsigned part)
{
    uint64_t budget = rme_pin_budget();

    return budget >= TIGHT_BYTES ? budget / part : budget / (part * 2);
}

/* Limits an option to `most` for lack of memory that may be locked; warns if the user set
 * more. */
static void cap(struct rme *rme, const char *name, uint64_t most, const char *cause)
{
    long long asked = (long long)rme_option(rme->options, name);

    if (rme_option_cap(rme->options, name, (int64_t)most))
        rme_log_put(rme->log, RME_LOG_WARN,
                    "option %s=%lld: %s, so %llu is used; raise the memlock limit (ulimit -l)",
                    name, asked, cause, (unsigned long long)most);
}

/* Limits message buffers and the pool of rings by the memory that may be locked. */
static void cap_by_budget(struct rme *rme)
{
    uint64_t budget = rme_pin_budget();

    if (budget < TIGHT_BYTES)
        cap(rme, "rx_size", TIGHT_RX_SIZE - RME_WIRE_HEADER_SIZE,
            "this process may lock less than 1 MiB");
    cap(rme, "eager_ring_pool", budget / RING_SHARE,
        "more than a sixteenth of the memory that this process may lock");
}

static int open_options(struct rme *rme, const struct rme_config *config)
{
    const struct rme_option_row *tables[] = {rme_engine_options, config->fabric->options};
    char why[256];
    int64_t zones;
    int error;

    rme->options = rme_options_new(tables, 2);
    if (rme->options == NULL)
        return -ENOMEM;
    error = rme_options_parse(rme->options, config->options, why, sizeof(why));
    zones = rme_option(rme->options, "pool_bytes");
    if (error == 0 && zones >= 0 && zones < RME_RESERVES_MIN) {
        snprintf(why, sizeof(why),
                 "option pool_bytes=%d: the engine itself needs %u bytes; set this value or "
                 "more, or -1",
                 (int)zones, RME_RESERVES_MIN);
        error = -EINVAL;
    }
    if (error != 0) {
        rme_log_put(rme->log, RME_LOG_ERROR, "%s", why);
        return error;
    }
    if (why[0] != '\0')
        rme_log_put(rme->log, RME_LOG_WARN,
                    "options: old names, accepted in this release only: %s", why);
    cap_by_budget(rme);
    read_tuning(&rme->tuning, rme->options);
    rme->quota[RME_QUOTA_RX].limit = (uint64_t)rme_option(rme->options, "rx_buffered_bytes");
    rme->quota[RME_QUOTA_RINGS].limit = (uint64_t)rme_option(rme->options, "eager_ring_pool");
    rme->quota[RME_QUOTA_STAGING].limit = rme->quota[RME_QUOTA_RINGS].limit;
    return 0;
}

/* Derives the sizes that depend on the device. */
static void set_sizes(struct rme *rme)
{
    const struct rme_plan_in in = rme_rndv_plan_in(rme, 0);
    const struct rme_plan_sizes sizes = rme_plan_sizes(&in);
    int64_t threshold = rme_option(rme->options, "pack_threshold");

    rme->tuning.ring_msg_max = sizes.ring;
    rme->tuning.pack_threshold = threshold >= 0 ? (uint64_t)threshold : sizes.cached;
}

static int open_fabric(struct rme *rme, const struct rme_config *config)
{
    const struct rme_fabric_config fabric = {
        .listen = config->listen,
        .bind_specific = config->bind_specific,
        .rx_size = rme->tuning.rx_size,
        .budget = rme_pin_budget(),
        .options = rme->options,
        .stats = &rme->stats,
        .log = rme_log_put,
        .log_arg = rme->log,
    };
    int error = rme->ops->open(&fabric, &rme->fabric);
    uint64_t shared, pool;

    if (error != 0)
        return error;
    rme->caps = rme->ops->caps(rme->fabric);
    rme->limits = rme->caps->limits != NULL ? rme->caps->limits : &rme_limits_adapter;
    set_sizes(rme);
    shared = rme->caps->shared_rx;
    pool = (uint64_t)rme_option(rme->options, "credits_pool");
    rme->quota[RME_QUOTA_MWS].limit = rme->caps->mws;
    rme->quota[RME_QUOTA_CREDITS].limit = shared != 0 ? min_u64(pool, shared / POOL_PART)
                                          : rme->caps->keeps_rx ? pool
                                                                : UINT32_MAX;
    return 0;
}

/* Checks that the fabric is of the same build.  With two method libraries in a process, the
 * functions of one of them serve both callers. */
static int check_release(struct rme *rme)
{
    bool same = strcmp(rme->ops->release, RME_RELEASE) == 0;

    if (same && rme->ops->size == sizeof(*rme->ops))
        return 0;
    rme_log_put(rme->log, RME_LOG_ERROR,
                "engine: the fabric is of %srelease %s, the engine of %s; install both method "
                "libraries of the same build",
                same ? "another build of " : "", rme->ops->release, RME_RELEASE);
    return -EINVAL;
}

static int open_memory(struct rme *rme)
{
    int64_t zones = rme_option(rme->options, "pool_bytes");
    uint64_t most = zones >= 0 ? (uint64_t)zones : share(2);
    struct rme_mreg_config mreg = {
        .pin = &rme->pin,
        .max_entries = (uint64_t)rme_option(rme->options, "regcache_entries"),
        .max_bytes = share(4),
        .batch = EVICT_BATCH,
        .call_ns = REG_CALL_NS,
        .page_ns = REG_PAGE_NS,
    };
    int error;

    rme_pin_init(&rme->pin, rme->ops, rme->fabric, rme->log);
    rme->quota[RME_QUOTA_BOUNCE].limit = most;
    error = rme_zone_new(&rme->pin, most, rme->tuning.idle_ms, &rme->zone);
    if (error != 0)
        return error;
    mreg.zone = rme->zone;
    error = rme_mreg_new(&mreg, &rme->mreg);
    if (error != 0)
        return error;
    return rme_reserve_open(rme);
}

/* Frees the engine's memory and closes the fabric. */
static void close_fabric(struct rme *rme)
{
    rme_mreg_free(rme->mreg);
    rme_zone_free(rme->zone);
    rme->ops->close(rme->fabric);
}

/* Frees the rest of an engine, which may be only partly open. */
static void free_engine(struct rme *rme)
{
    rme_op_table_clear(&rme->operations->table);
    rme_table_clear(&rme->table);
    rme_options_free(rme->options);
    rme_log_free(rme->log);
    pthread_mutex_destroy(&rme->lock);
    free(rme_engine(rme));
}

/* Opens tables, options, fabric and memory, in this order. */
static int open_parts(struct rme *rme, const struct rme_config *config)
{
    int error;

    rme->log = rme_log_new(config->log, config->log_arg);
    if (rme->log == NULL || rme_table_init(&rme->table, CHAINS_FIRST) != 0)
        return -ENOMEM;
    error = rme_forked_mark(rme);
    if (error == 0)
        error = check_release(rme);
    if (error == 0)
        error = open_options(rme, config);
    if (error == 0)
        error = open_fabric(rme, config);
    if (error != 0)
        return error;
    error = open_memory(rme);
    if (error != 0) {
        rme_log_put(rme->log, RME_LOG_ERROR, "engine: no memory can be registered: %s",
                    strerror(-error));
        close_fabric(rme);
    }
    return error;
}

static void init_lists(struct rme *rme)
{
    list_init(&rme->peers);
    list_init(&rme->scheduled);
    list_init(&rme->movers);
    list_init(&rme->mw_waitq);
    list_init(&rme->throttled);
    list_init(&rme->operations->ended);
    list_init(&rme->protocols->unexpected);
    list_init(&rme->rings->granted);
    list_init(&rme->protocols->unpublished);
    list_init(&rme->protocols->spare);
    list_init(&rme->followers);
    rme_rndv_init(rme->rndv_state);
    for (int i = 0; i < RME_MAX_CONTEXTS; i++)
        list_init(&rme->operations->ctx[i].done);
}

int rme_listen_port(const struct rme *rme)
{
    int port = rme->ops->listen_port != NULL ? rme->ops->listen_port(rme->fabric) : 0;

    return port != 0 ? port : -ENOTCONN;
}

int rme_open(const struct rme_config *config, struct rme **out)
{
    struct rme_engine *engine = calloc(1, sizeof(*engine));
    struct rme *rme;
    int error;

    if (engine == NULL)
        return -ENOMEM;
    rme = &engine->rme;
    rme->operations = &engine->operations;
    rme->rings = &engine->rings;
    rme->rndv_state = &engine->rndv_state;
    rme->protocols = &engine->protocols;
    pthread_mutex_init(&rme->lock, NULL);
    init_lists(rme);
    rme_op_table_init(&rme->operations->table, config->op_template, config->op_size);
    rme->ops = config->fabric;
    rme->peer_ops = &rme_proto_peer_ops;
    rme->op_ops = &rme_rndv_op_ops;
    rme->server = config->listen != NULL;
    rme->incarnation = rme_draw();
    rme->jitter = rme->incarnation;
    error = open_parts(rme, config);
    if (error != 0) {
        free_engine(rme);
        return error;
    }
    rme_log_drain(rme->log);
    *out = rme;
    return 0;
}

/* ---- Closing ---- */

struct zero_wait {
    struct rme_waiter waiter;
    const uint32_t *count;
};

static bool is_zero(struct rme *rme, struct rme_waiter *waiter)
{
    (void)rme;
    return *container_of(waiter, struct zero_wait, waiter)->count == 0;
}

/* Makes progress until a count is 0, at most for `ms`.  Called with the lock held and returns
 * with it. */
static void wait_for_zero(struct rme *rme, const uint32_t *count, int ms)
{
    struct zero_wait wait = {.waiter = {.ctx = RME_WAIT_ANY, .ready = is_zero}, .count = count};

    rme_unlock(rme);
    rme_wait(rme, &wait.waiter, ms);
    rme_lock(rme);
}

void rme_close(struct rme *rme)
{
    struct rme_peer *peer;

    /* a child owns no resource of the engine; its end frees its copy of the memory */
    if (!rme_enter(rme))
        return;
    rme->closing = true;
    rme_grant_count_call(rme, true);
    /*
     * Sends BYE to all peers and waits for its arrival, so that all earlier messages arrive
     * before the links end.  The acknowledgement by the peer's hardware suffices.  BYE may have
     * to wait for a credit, which the peer returns after taking earlier messages.
     */
    list_for_each(peer, &rme->peers, of_engine)
        rme_peer_bye(peer);
    wait_for_zero(rme, &rme->byes, BYE_WAIT_MS);
    list_for_each(peer, &rme->peers, of_engine)
        rme_peer_fail(peer, -ESHUTDOWN, NULL);
    wait_for_zero(rme, &rme->nlink, CLOSE_WAIT_MS);
    while ((peer = list_first(&rme->peers, struct rme_peer, of_engine)) != NULL) {
        if (peer->link != NULL)
            rme_log_put(rme->log, RME_LOG_ERROR, "%s: link still up at close",
                        rme_peer_name(peer));
        rme_peer_shutdown(peer);
        rme_run_pending(rme);
        rme_peer_destroy(peer);
    }
    rme_run_pending(rme);
    pthread_mutex_unlock(&rme->lock);

    rme_unexp_clear(rme);
    rme_message_clear(rme);
    rme_reserve_close(rme);
    close_fabric(rme);
    free_engine(rme);
}
