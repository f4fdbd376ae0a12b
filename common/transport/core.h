/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* State that the transport and all higher layers share: network, options, log, counters, time
 * and peers.  The state of a higher layer is behind an opaque pointer. */
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
#include "transport/quota.h"

struct rme_op_ops;
struct rme_operations;
struct rme_peer_ops;
struct rme_protocols;
struct rme_rings;
struct rme_rndv_state;
struct rme_waiter;

/* The two streams of messages, independent but for the link. */
enum rme_stream { RME_EXPECTED, RME_UNEXPECTED_STREAM, RME_STREAMS };

/* Options, read once. */
struct rme_tuning {
    uint32_t rx_size;
    uint64_t eager_max; /* limit for expected messages, reduced to the message buffer */
    uint32_t eager_window[RME_STREAMS];
    uint32_t rts_max;
    uint32_t credits, credits_max;
    uint64_t frag_size;
    uint64_t pack_threshold;
    uint64_t ring_msg_max; /* bytes of the largest message for a ring, wherever it lies */
    enum rme_prefer prefer;
    enum rme_lists lists;
    bool early_cts;
    /* size of a ring of one peer; 0: rings are neither granted nor
     * used */
    uint32_t ring_bytes;
    /* milliseconds without use after which memory is taken back; 0: never */
    uint32_t idle_ms;
    uint32_t rdma_ops_peer, rdma_ops;
    uint64_t rdma_bytes; /* of one peer */
    uint32_t poll_us;
    uint32_t connect_ms, backoff_min_ms, backoff_max_ms;
    uint32_t keepalive_ms, peer_timeout_ms, cancel_ms;
};

/* Work that is pending until the lock is released.  Code that queues work sets a bit, so that
 * each call tests one word. */
enum {
    RME_PENDING_FLUSH = 1, /* work was queued at the fabric since the last flush */
    RME_PENDING_RUN =
        2, /* a peer was scheduled, or one of the lists of rme_run_pending has a member */
    RME_PENDING_WAKE = 4, /* wake the leader when the lock is released */
};

/* Kinds of keys in rme->table. */
enum rme_key_kind {
    /* operations and messages, by rme_handle_key() of a handle: */
    RME_HANDLE_OWN,     /* of an operation of this side (struct rme_rndv, own) */
    RME_HANDLE_THEIRS,  /* of the peer's operation that is matched with one here (theirs) */
    RME_HANDLE_MESSAGE, /* of an unmatched send of the peer (struct rme_message) */
    /* the oldest one, by rme_match_key(): */
    RME_BY_TAG,         /* of receives, or of unmatched messages */
    RME_BY_BLOCKED_TAG, /* of sends, which blocks the tag while it waits (send.c) */
    RME_BY_REQUEST_TAG, /* of unexpected sends that are not finished (op/end.c) */
    RME_BY_BUFFER,      /* unexpected messages that the host has fetched, by their buffer */
    RME_BY_HOST,        /* hosts of the peers that connected to this side (quota.c) */
};

struct rme {
    pthread_mutex_t lock; /* protects all fields below that have no lock of their own */

    /* constant while open */
    const struct rme_fabric_ops *ops;
    const struct rme_peer_ops *peer_ops; /* of the protocols (transport/peer.h) */
    const struct rme_op_ops *op_ops;     /* of rendezvous (op/operations.h) */
    struct rme_fabric *fabric;
    const struct rme_caps *caps;
    struct rme_options *options;
    struct rme_tuning tuning;
    const struct rme_limits *limits; /* of the fabric */
    uint64_t incarnation;
    bool server;

    /* with locks of their own */
    struct rme_log *log;
    struct rme_pin pin;
    struct rme_zone *zone;
    struct rme_mreg *mreg;

    struct rme_stats stats;
    struct rme_quota quota[RME_QUOTAS];
    struct rme_table table;     /* objects of enum rme_key_kind */
    struct list_head throttled; /* peers whose credits are withheld (rx_account.c) */
    /* peers whose CREDIT message waits for a reply of the host: grant.c */
    struct rme_peer *credit_waiting;
    /* calls that returned something to the host since those CREDIT messages were sent */
    uint32_t credit_wait_calls;
    struct rme_timers timers;
    uint32_t pending; /* RME_PENDING_*: work to do before the lock is released */
    /* work is queued at the fabric that may wait for the next flush or progress call */
    bool lingers;
    bool closing;
    uint32_t byes; /* BYE messages due or in flight */

    struct list_head peers; /* all peers */
    uint32_t npeer, nlink;  /* number of peers, and of peers with a link */
    uint32_t last_serial;
    struct list_head scheduled; /* peers whose queues run after this batch of events */
    uint32_t rdma_ops;          /* outstanding transfers of this side */
    struct list_head movers;    /* peers that wait for the limit of rdma_ops, see xfer.c */
    struct list_head mw_waitq;  /* peers that wait for memory windows, see window.c */
    /* memory windows bound for offers, early CTS and rings, which may last long */
    uint32_t offered;
    struct rme_load load; /* load of this process */
    uint64_t jitter;      /* state of rme_random() */

    /* waiting threads */
    struct rme_waiter *leader;
    struct list_head followers;
    bool sleeping; /* the leader is in the fabric's wait() */
    uint64_t sleeps_until;

    /* state of the higher layers */
    struct rme_operations *operations;
    struct rme_rings *rings;
    struct rme_rndv_state *rndv_state;
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

/* Random number in [0, bound): keeps processes from acting in step. */
static inline uint32_t rme_random(struct rme *rme, uint32_t bound)
{
    rme->jitter = rme->jitter * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)((rme->jitter >> 33) % bound);
}

static inline void rme_lock(struct rme *rme)
{
    pthread_mutex_lock(&rme->lock);
}

/* ---- Threads that wait in a call of the host, and their notification (engine/wait.c) ---- */

/* A waiting call of the host; in its stack frame. */
struct rme_waiter {
    struct list_head link; /* in rme->followers */
    pthread_cond_t cond;   /* valid while in rme->followers */
    int ctx;               /* RME_WAIT_*, or a context */
    int found;             /* completions taken by ready() */
    uint64_t until;        /* end of the wait, as rme_now() */
    /* takes what is ready and counts it in `found`; true: the call shall return.  The engine's
     * lock is held. */
    bool (*ready)(struct rme *rme, struct rme_waiter *waiter);
};

#define RME_WAIT_ANY        (-1) /* a completion of any context */
#define RME_WAIT_UNEXPECTED (-2) /* an unexpected message */

/* Wakes the sleeping threads that wait for `what`. */
void rme_wait_wake(struct rme *rme, int what);
/* Reports that `what`, a context or RME_WAIT_*, is ready. */
static inline void rme_wait_notify(struct rme *rme, int what)
{
    if (rme->sleeping || !list_empty(&rme->followers))
        rme_wait_wake(rme, what);
}
/* Wakes the leader after a link was requested or disconnected, because the fabric may report
 * the result without an event that ends the sleep. */
static inline void rme_wait_link(struct rme *rme)
{
    if (rme->sleeping)
        rme->pending |= RME_PENDING_WAKE;
}

#endif
