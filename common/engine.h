/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine's inside.  engine.c tells how its parts work together, who holds which lock, and in which order. */
#ifndef RME_ENGINE_H
#define RME_ENGINE_H

#include <pthread.h>

#include "fabric.h"
#include "invite.h"
#include "keep.h"
#include "base/list.h"
#include "base/log.h"
#include "match.h"
#include "memory/mreg.h"
#include "base/name.h"
#include "op.h"
#include "base/options.h"
#include "peer.h"
#include "plan/plan.h"
#include "rndv.h"
#include "base/stats.h"
#include "base/timer.h"
#include "unexp.h"
#include "memory/zone.h"

/* Options, read once. */
struct rme_tuning {
    uint32_t rx_size;
    uint64_t eager_max; /* of expected messages, if it fits */
    uint32_t window[RME_STREAMS];
    uint32_t rts_max;
    uint32_t credits, credits_max;
    uint64_t unit;
    uint64_t pack_threshold;
    uint64_t heavy_ops;
    enum rme_prefer prefer;
    bool invite;
    uint32_t xfers_peer, xfers;
    uint32_t spin_us;
    uint32_t connect_ms, backoff_min_ms, backoff_max_ms;
    uint32_t keepalive_ms, idle_keepalive_ms, peer_timeout_ms, cancel_ms;
};

/* A context: finished operations that wait for the host. */
struct rme_ctx {
    _Atomic bool open;    /* changed under the engine's lock */
    struct rme_node done; /* to be reported */
    uint64_t unexpected_seen; /* rme->unexpected_changes when a wait ended for unexpected messages */
};

struct rme {
    pthread_mutex_t lock; /* everything below, unless it says otherwise */

    /* constant while open */
    const struct rme_fabric_ops *ops;
    struct rme_fabric *fabric;
    const struct rme_caps *caps;
    struct rme_options *options;
    struct rme_tuning tuning;
    struct rme_costs costs;
    uint64_t incarnation;
    bool server;

    /* with locks of their own */
    struct rme_log *log;
    struct rme_pin pin;
    struct rme_zone *zone;
    struct rme_mreg *mreg;
    struct rme_ctx ctx[RME_MAX_CONTEXTS];

    struct rme_stats stats;
    struct rme_op_table op_table;
    struct rme_match match; /* receives, and messages that have met none */
    struct rme_match holds; /* sends that wait for one of their tag (send.c) */
    struct rme_names names;
    struct rme_keep keep;
    struct rme_timers timers;
    bool unflushed; /* something was queued at the fabric since the last flush */
    bool lingers;   /* likewise, but it may wait for the next message or the next look at the fabric */
    bool forceful;
    bool closing;
    uint32_t byes; /* BYE messages under way */

    struct rme_node peers;     /* all */
    uint32_t npeer;
    uint32_t last_serial;
    struct rme_node kicked;    /* to be pushed after this round of events */
    struct rme_node xfer_turn; /* peers that wait for the process's throttle */
    uint32_t xfers;            /* our transfers outstanding */
    struct rme_node window_turn; /* peers that wait for windows, see expose.c */
    uint32_t offered;            /* windows open for what may wait long */
    struct rme_load load;      /* what we have to move */
    uint32_t under_way;        /* rendezvous whose data moves now, whoever moves it; and invitations */
    struct rme_invite_size invite_size[RME_INVITE_SIZES];
    uint64_t jitter;           /* state of a small random generator */

    struct rme_node work;      /* units that want registering, without the lock */
    struct rme_node ended;     /* ops that end after the next rme_mreg_reap */
    bool reaping;              /* a thread is at it, with older ones */
    struct rme_pool units, moves, rndvs; /* for reuse */
    struct rme_reserve reserve[RME_RESERVES];
    size_t reserve_size;

    struct rme_node unexpected;  /* complete, to be delivered (struct rme_unexp) */
    uint64_t unexpected_changes; /* messages delivered and fetched so far */
    struct rme_node unpublished; /* likewise, behind the ops in `ended` */
    struct rme_unexp **lent;     /* buffers that the host has, hashed by address */
    uint32_t nlent, lent_mask;

    const char *ours; /* forked.c: 0 there in a child; NULL: not known */
    bool told;        /* the child has been told */

    /* waiting: wait.c */
    struct rme_waiter *leader;
    struct rme_node followers;
    bool sleeping;   /* the leader is in the fabric's wait() */
    bool wake;       /* wake it when the lock is released */
    uint32_t spin_us; /* polls so long before it sleeps: from 0 to tuning.spin_us */
    uint64_t sleeps_until;
    unsigned spins_in_vain;  /* in a row */
    unsigned spins_left_out; /* since polling stopped to pay */
    uint32_t timer_skip;
};

static inline void rme_count(struct rme *rme, enum rme_counter_id id)
{
    rme->stats.value[id]++;
}

static inline void rme_count_add(struct rme *rme, enum rme_counter_id id, uint64_t n)
{
    rme->stats.value[id] += n;
}

/* ---- engine.c ---------------------------------------------------------------------------------------------------- */

/* Marks an engine as this process's; ends that; says once in a child's log that it cannot be used. */
void rme_forked_mark(struct rme *rme);
void rme_forked_unmark(struct rme *rme);
void rme_forked_explain(struct rme *rme);

/* Is this a child of the process that opened the engine?  It must not touch it.  First in every call of the host. */
static inline bool rme_forked(struct rme *rme)
{
    if (__builtin_expect(rme->ours == NULL || *rme->ours != 0, 1))
        return false;
    rme_forked_explain(rme);
    return true;
}

static inline void rme_lock(struct rme *rme)
{
    pthread_mutex_lock(&rme->lock);
}

/*
 * Rings doorbells and does what must be done without the lock: registering, deregistering, trimming.  Called with the
 * lock, returns with it; releases it meanwhile if there is such work.  Then completions are visible.
 */
void rme_settle(struct rme *rme);
/* Settles, releases the lock, wakes the leader if it should see something, hands log lines to the host. */
void rme_unlock(struct rme *rme);

/* Logs a step that the table of op.c does not have. */
void rme_op_misstep(struct rme *rme, const struct rme_op *op, enum rme_op_state state);
/* Moves an op to another state. */
static inline void rme_op_step(struct rme *rme, struct rme_op *op, enum rme_op_state state)
{
    if (!rme_op_may_step(op->state, state))
        rme_op_misstep(rme, op, state);
    op->state = (uint8_t)state;
}
/* The outcome is known: 0 or a negative errno.  It is reported when nobody uses its memory any more. */
void rme_op_end(struct rme *rme, struct rme_op *op, int error);
/* One user of its memory less. */
void rme_op_unpin(struct rme *rme, struct rme_op *op);

/* Are there ops that have ended and are not visible yet? */
static inline bool rme_is_ending(const struct rme *rme)
{
    return rme->reaping || !rme_node_alone(&rme->ended);
}

/* ---- refuse.c ---------------------------------------------------------------------------------------------------- */

/* The eager message at that place is too large for the receive: its sender is told. */
void rme_refuse(struct rme_op *op, uint32_t place);
/* Sends what rme_refuse queued.  False: no credit or buffer. */
bool rme_refusal_send(struct rme_peer *peer, struct rme_control *control);
void rme_refusal_free(struct rme_peer *peer, struct rme_control *control);
void rme_refused_arrived(struct rme_peer *peer, const struct rme_wire_message *message);

/* ---- test.c ------------------------------------------------------------------------------------------------------ */

/* Queues a completion for the host.  Engine's lock held. */
void rme_ctx_publish(struct rme *rme, struct rme_op *op);

/* ---- wait.c ------------------------------------------------------------------------------------------------------ */

/* What a call of the host waits for; in its stack frame. */
struct rme_waiter {
    struct rme_node link; /* in rme->followers */
    pthread_cond_t cond;  /* while it is there */
    int ctx;              /* RME_WAIT_*, or a context */
    bool hopeless;        /* ready(): it never will be */
    int (*ready)(struct rme *rme, struct rme_waiter *waiter); /* engine's lock held: take what is ready; how many? */
};

#define RME_WAIT_ANY (-1)        /* a completion of any context */
#define RME_WAIT_UNEXPECTED (-2) /* an unexpected message */

static inline void rme_waiter_init(struct rme_waiter *waiter, int ctx, int (*ready)(struct rme *, struct rme_waiter *))
{
    waiter->ctx = ctx;
    waiter->hopeless = false;
    waiter->ready = ready;
}

/* Makes progress until waiter->ready() says more than 0 or wait_ms is over.  Called without the lock. */
int rme_wait(struct rme *rme, struct rme_waiter *waiter, int wait_ms);
/* Something is ready for those who wait for `ctx`. */
void rme_wait_notify(struct rme *rme, int ctx);
/* A deadline may have come nearer than the leader knows. */
void rme_wait_deadline(struct rme *rme);

/* ---- progress.c -------------------------------------------------------------------------------------------------- */

/* One round: events, pushes, timers.  How many events there were. */
int rme_progress(struct rme *rme, bool timers);

/* A message or an immediate of a peer that came. */
struct rme_arrival {
    bool is_immediate;
    uint32_t imm;
    void *rx; /* the message's buffer: ours until it is taken */
    size_t length;
    struct rme_wire_message message; /* its header has been taken note of */
};

/* What it says is done, and its buffer given back.  The peer is listened to. */
void rme_take_message(struct rme_peer *peer, const struct rme_arrival *arrival);
void rme_take_immediate(struct rme_peer *peer, uint32_t imm);

/* ---- defer.c ----------------------------------------------------------------------------------------------------- */

/* How much of ours the peer had taken at most when it sent an immediate; of a message its header has said it. */
uint32_t rme_defer_told(struct rme_peer *peer, uint32_t imm);
/* Must what has just come from the peer wait, if so much was told? */
bool rme_defer_must(const struct rme_peer *peer, uint32_t told);
/* Keeps it, or gives the link up. */
void rme_defer(struct rme_peer *peer, const struct rme_arrival *arrival, uint32_t told);
/* A transfer of ours to the peer is complete: takes what needs to wait no longer. */
void rme_defer_run(struct rme_peer *peer);
/* The link is down and no device works for it: takes everything that waits, in order. */
void rme_defer_end(struct rme_peer *peer);
/* Forgets what waits: the link is given up. */
void rme_defer_drop(struct rme_peer *peer);

/* ---- eager.c ----------------------------------------------------------------------------------------------------- */

/* May this go eagerly (size, window)?  Credits are another matter. */
bool rme_eager_fits(const struct rme_peer *peer, enum rme_stream stream, uint64_t size);
/* Sends it; false: no credit or buffer. */
bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg, uint32_t nseg,
                    uint64_t size, int32_t tag);

/* A message that came before its receive; also, for a moment, one that meets its receive at once. */
struct rme_message {
    struct rme_node link;    /* in its slot */
    struct rme_node of_peer; /* in peer->messages */
    struct rme_control control; /* when its sender gave it up */
    struct rme_slot *slot;      /* NULL: in none */
    struct rme_name name;       /* of an RTS that no receive has met */
    struct rme_unexp *unexp;    /* of an unexpected message; NULL: expected */
    struct rme_peer *peer;
    int32_t tag;
    bool is_rts;
    uint8_t flags;               /* of its header */
    uint32_t from;               /* RTS: the sender's handle; eager: the message's place (refuse.c) */
    uint32_t shape;
    uint32_t load_ops;
    uint64_t load_bytes;
    uint64_t total;              /* bytes of the message */
    struct rme_opening *opening; /* what the RTS offered; may be NULL */
    bool shortened;              /* its offer was forgotten, so it cannot be read */
    size_t kept;                 /* bytes in the account of the peer */
    uint8_t data[];              /* eager: the payload */
};

void rme_eager_arrived(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_rts_arrived(struct rme_peer *peer, const struct rme_wire_message *message);
/* An RTS as a message in no slot; NULL: no memory. */
struct rme_message *rme_message_from_rts(struct rme_peer *peer, const struct rme_wire_message *message);
/* A receive was posted: gives it the message that waits for it, if any. */
void rme_recv_match(struct rme *rme, struct rme_op *op, struct rme_slot *slot);
/* An RTS that waits can be found by what its sender calls it; NULL: there is none such. */
void rme_message_name(struct rme_message *message);
struct rme_message *rme_message_find(struct rme_peer *peer, uint32_t from);
/* It has to wait: its offer is kept if there is room for it. */
void rme_message_shorten(struct rme_message *message);
/* Takes it out of its slot; frees it. */
void rme_message_unlink(struct rme *rme, struct rme_message *message);
void rme_message_free(struct rme_message *message);

/* ---- unexp.c ----------------------------------------------------------------------------------------------------- */

void rme_unexp_arrived(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_unexp_rts(struct rme_peer *peer, const struct rme_wire_message *message);
/* What waited for ops that had ended before it is delivered. */
void rme_unexp_publish(struct rme *rme);
/* A pull ended. */
void rme_unexp_pulled(struct rme *rme, struct rme_op *op);
/* The sender gives up an RTS that was not pulled yet; the message is the caller's now. */
void rme_unexp_cancel(struct rme_message *rts);
/* Drops messages of a peer that cannot be completed; with `all`, also those that could be delivered. */
void rme_unexp_drop(struct rme_peer *peer, bool all);
void rme_unexp_clear(struct rme *rme);

/* ---- cancel.c ---------------------------------------------------------------------------------------------------- */

void rme_cancel_op(struct rme *rme, struct rme_op *op);
void rme_cancel_arrived(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_cancel_acked(struct rme_peer *peer, const struct rme_wire_message *message);
/* Takes a receive out of where it waits for its message. */
void rme_op_leave_slot(struct rme *rme, struct rme_op *op);
/* Takes an op out of whatever it waits in, for the link is gone. */
void rme_op_detach(struct rme *rme, struct rme_op *op);

#endif
