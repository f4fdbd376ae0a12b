/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What every floor from the transport up shares: the network, the options, the log, counters,
 * time and the peers.  What a floor above keeps for itself is behind a pointer that only it and
 * those above it look through.
 */
#ifndef RME_CORE_H
#define RME_CORE_H

#include <pthread.h>

#include "base/list.h"
#include "base/log.h"
#include "base/options.h"
#include "base/stats.h"
#include "base/timer.h"
#include "fabric.h"
#include "memory/mreg.h"
#include "memory/pin.h"
#include "memory/zone.h"
#include "plan/plan.h"
#include "transport/credit.h"
#include "transport/keep.h"

struct rme_link_user;
struct rme_mover;
struct rme_operations;
struct rme_protocols;
struct rme_waiter;

/* The two streams of messages, which share nothing but the link. */
enum rme_stream { RME_EXPECTED, RME_UNEXPECTED_STREAM, RME_STREAMS };

/* Options, read once. */
struct rme_tuning {
    uint32_t rx_size;
    uint64_t eager_max; /* of expected messages, if it fits */
    uint32_t window[RME_STREAMS];
    uint32_t rts_max;
    uint32_t credits, credits_max, credits_pool;
    uint64_t unit;
    uint64_t pack_threshold;
    uint64_t zone_bytes, regcache_bytes; /* bounds */
    uint64_t heavy_ops;
    enum rme_prefer prefer;
    enum rme_lists lists;
    bool invite;
    uint32_t fast_bytes; /* delegated to one peer; 0: none is, nor used */
    uint64_t fast_pool;  /* and to all */
    uint32_t idle_ms;    /* what was not used for so long is asked for again; 0: never */
    uint32_t xfers_peer, xfers;
    uint64_t xfer_bytes; /* of a peer */
    uint32_t spin_us;
    uint32_t connect_ms, busy_ms, backoff_min_ms, backoff_max_ms;
    uint32_t keepalive_ms, idle_keepalive_ms, peer_timeout_ms, cancel_ms;
};

/* Work that is pending until the lock is released: code that leaves work sets a bit, and each
 * call tests one word. */
enum {
    RME_PENDING_FLUSH = 1, /* something was queued at the fabric since the last flush */
    RME_PENDING_SETTLE =
        2, /* a peer was kicked, or one of the rings of rme_settle has a member */
    RME_PENDING_UNLOCK = 4, /* `wake` or keep.trim is set */
};

struct rme {
    pthread_mutex_t lock; /* everything below, unless it says otherwise */

    /* constant while open */
    const struct rme_fabric_ops *ops;
    struct rme_fabric *fabric;
    const struct rme_caps *caps;
    const struct rme_link_user *user; /* of the links: who is told what becomes of them */
    struct rme_options *options;
    char *ignored; /* the first key of them that nobody takes; NULL: none */
    struct rme_tuning tuning;
    struct rme_costs costs;
    uint64_t incarnation;
    bool server;

    /* with locks of their own */
    struct rme_log *log;
    struct rme_pin pin;
    struct rme_zone *zone;
    struct rme_mreg *mreg;

    struct rme_stats stats;
    struct rme_keep keep;
    struct rme_credit_pool credit_pool; /* receive buffers beyond the first ones of each link */
    struct rme_node answers; /* peers whose credits wait for an answer of the host: grant.c */
    uint32_t answer_calls;   /* that had something for the host since these last went */
    struct rme_timers timers;
    uint32_t pending; /* RME_PENDING_*: what a call does before it releases the lock */
    /* something is queued at the fabric that may wait for the next flush, or the next look */
    bool lingers;
    bool closing;
    uint32_t byes; /* BYE messages under way */

    struct rme_node peers; /* all */
    uint32_t npeer, nlink; /* how many, and those with a link */
    uint32_t last_serial;
    struct rme_node kicked;      /* to be pushed after this round of events */
    struct rme_node xfer_turn;   /* peers that wait for the process's throttle */
    uint32_t xfers;              /* our transfers outstanding */
    struct rme_node window_turn; /* peers that wait for windows, see expose.c */
    uint32_t windows;            /* open for messages that are moved */
    uint32_t offered;            /* and for what may wait long */
    struct rme_load load;        /* what we have to move */
    /* rendezvous whose data moves now, whoever moves it; and invitations */
    uint32_t under_way;
    uint64_t jitter; /* state of a small random generator */

    /* who sleeps: waiter.h */
    struct rme_waiter *leader;
    struct rme_node followers;
    bool sleeping; /* the leader is in the fabric's wait() */
    bool wake;     /* wake it when the lock is released (RME_PENDING_UNLOCK) */
    uint64_t sleeps_until;

    /* of the floors above */
    struct rme_operations *operations;
    struct rme_mover *mover;
    struct rme_protocols *protocols;
};

static inline void rme_count(struct rme *rme, enum rme_counter_id id)
{
    rme->stats.value[id]++;
}

static inline void rme_count_add(struct rme *rme, enum rme_counter_id id, uint64_t n)
{
    rme->stats.value[id] += n;
}

/* Anything from 0 to below `bound`, so that processes do not do the same at the same time. */
static inline uint32_t rme_random(struct rme *rme, uint32_t bound)
{
    rme->jitter = rme->jitter * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)((rme->jitter >> 33) % bound);
}

static inline void rme_lock(struct rme *rme)
{
    pthread_mutex_lock(&rme->lock);
}

#endif
