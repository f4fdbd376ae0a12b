/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Peers: one for each address in use, with at most one link at a time.  See link.c for their
 * life. */
#ifndef RME_PEER_H
#define RME_PEER_H

#include "base/addr_int.h"
#include "base/list.h"
#include "base/timer.h"
#include "fabric.h"
#include "transport/core.h"
#include "transport/credit.h"
#include "wire/wire.h"

struct rme_control;
struct rme_talk;

/* id, name, what it means */
#define RME_PEER_STATES(X)                                                                     \
    X(IDLE, "idle", "no link, nothing to do; the next post connects")                          \
    X(BACKOFF, "backoff", "no link; work waits for the end of the pause between attempts")     \
    X(CONNECTING, "connecting", "a link to one part of the address is being established")      \
    X(ACCEPTING, "accepting", "the peer requested a link and was accepted")                    \
    X(UP, "up", "messages flow")                                                               \
    X(CLOSING, "closing", "a link is being closed; the fabric reports when the link is down")  \
    X(DEAD, "dead", "an accepted peer is gone and cannot return")

enum rme_peer_state {
#define RME_PEER_ENUM(id, name, text) RME_PEER_##id,
    RME_PEER_STATES(RME_PEER_ENUM)
#undef RME_PEER_ENUM
};

struct rme_peer {
    struct rme *rme;
    struct rme_talk *talk; /* what the protocols have going on with it */
    struct rme_addr *addr; /* one reference is ours */
    struct rme_link *link; /* NULL in IDLE, BACKOFF and DEAD */
    uint32_t serial;       /* its name in tables; never used again */
    uint32_t last_handle;  /* the last name that an op of ours got on the wire */
    uint8_t state;
    bool passive;    /* it came to us; cannot be connected */
    bool introduced; /* the host has seen addr */
    bool dropped;    /* the host has freed addr */
    bool tx_wait;    /* out of send buffers until RME_EV_TX_ROOM */
    bool starved;    /* something lacked a credit since the last push */
    bool heard;      /* something arrived since the timer was set */
    bool pong_due;
    bool ping_due;
    bool grew; /* our promise, since the peer last asked for what we hold of its own */
    bool ping_sent;
    bool timer_rests; /* the timer is set for the next probe of an idle link, if it is */
    bool was_up;      /* it had a link before */
    bool bye_due;     /* it is to be said, when there is a credit for it */
    bool bye_out;     /* `bye` is under way */
    bool bye_in;      /* the peer said it; the link goes down by its will */
    int error;        /* why the link is being closed */

    struct rme_node of_engine; /* in rme->peers */
    struct rme_node kick;      /* in rme->kicked */
    struct rme_node ops;       /* all ops that belong to this link or wait for one */
    struct rme_node dying;     /* ops that end when the link is down */
    uint32_t pins;             /* ops that are not through with it, and calls */
    uint32_t reaching;         /* calls that wait for a link, for which nothing is posted */
    struct rme_node control;   /* control messages that wait, in order (struct rme_control) */
    /* likewise, that end operations: before those, which may wait for windows of them */
    struct rme_node endings;
    struct rme_node xferq;       /* transfers that wait, in order (struct rme_move) */
    struct rme_node moving;      /* transfers that the fabric has, in the order of posting */
    struct rme_host *host;       /* where it comes from, for what is kept (keep.c) */
    uint64_t kept;               /* bytes kept for it */
    struct rme_inode keep_wait;  /* in host->waiting: gets no credits */
    struct rme_node answer;      /* in rme->answers: its credits wait for an answer */
    struct rme_node xfer_turn;   /* in rme->xfer_turn: waits for the process's throttle */
    struct rme_node window_turn; /* in rme->window_turn: waits for windows */
    struct rme_node closing;     /* units of which something is being closed */
    uint32_t shutting;           /* sends that end when it is; see expose.c */
    uint32_t windows;            /* of rme->windows, open to it */

    struct rme_credit credit;
    /* messages and immediates of the peer that have arrived and are not taken yet */
    uint32_t aside;
    uint32_t lent; /* buffers of the pool that the link has */
    /* of those, given up when credit.taken was spare_from, and there still (caps.keeps_rx) */
    uint32_t spare, spare_from;
    uint32_t asked;   /* credits that the peer would have us give up */
    uint32_t used_at; /* a link that we made is in use when credit.taken gets there */
    struct rme_window window[RME_STREAMS];
    struct rme_holding holding[RME_STREAMS];
    uint32_t xfers;                  /* our transfers outstanding */
    uint64_t xfer_bytes;             /* and their bytes */
    uint64_t packed;                 /* bytes of zones that it has (move/ration.c) */
    struct rme_load load;            /* what it has to move for us, as far as we know */
    struct rme_hello hello;          /* the peer's */
    uint32_t tx_size;                /* largest message that both sides take */
    uint64_t eager_max[RME_STREAMS]; /* largest payload sent eagerly */

    struct rme_timer timer; /* what for: see rme_peer_timer */
    int part;               /* part of the address being tried */
    int last_part_error;
    bool last_part_told;       /* and the log has it */
    bool was_busy;             /* one of the parts was, in this attempt */
    const char *last_part_why; /* what else the fabric knows, or NULL; constant */
    uint64_t connect_by;       /* all parts must be done by then */
    uint64_t not_before;       /* no attempt before */
    uint64_t busy_by;          /* a peer that is busy is asked again until then; 0: it is not */
    uint32_t backoff_ms;
    uint32_t look_ms;           /* after so much silence the fabric looks next (caps.look_ms) */
    uint64_t heard_at;          /* when the timer last saw `heard` */
    uint64_t cancel_by;         /* the earliest deadline of a cancel, or UINT64_MAX */
    uint64_t count[RME_C_PEER]; /* what stats counts of it */
    struct rme_xfer bye;        /* see rme_peer_bye */
};

/* Counts for the process and for the peer. */
static inline void rme_peer_count(struct rme_peer *peer, enum rme_counter_id id, uint64_t n)
{
    rme_count_add(peer->rme, id, n);
    peer->count[id] += n;
}

/* Must it wait for its credits, but for a few?  See rme_keep_judge. */
static inline void rme_keep_look(struct rme_peer *peer)
{
    if (rme_keep_is_tight(&peer->rme->keep) || peer->credit.withholds)
        rme_keep_judge(peer);
}

const char *rme_peer_state_name(enum rme_peer_state state);
const char *rme_peer_name(const struct rme_peer *peer);

/*
 * The peer of an address, made if need be.  NULL with *error set: -ECONNRESET dead, -EINVAL
 * another engine's, -ENOMEM.
 */
struct rme_peer *rme_peer_find(struct rme *rme, struct rme_addr *addr, int *error);
static inline struct rme_peer *rme_peer_of(struct rme *rme, struct rme_addr *addr, int *error)
{
    if (atomic_load_explicit(&addr->engine, memory_order_relaxed) == rme &&
        !atomic_load_explicit(&addr->dead, memory_order_relaxed) && addr->peer != NULL)
        return addr->peer;
    return rme_peer_find(rme, addr, error);
}

/* An op was put on the peer: connects or watches it as needed.  For one that has something to
 * send, kick the peer. */
void rme_peer_begin(struct rme_peer *peer);
static inline void rme_peer_work(struct rme_peer *peer)
{
    if (peer->state != RME_PEER_UP || peer->timer.place == 0 || peer->timer_rests)
        rme_peer_begin(peer);
}

/* Asks for a push at the end of this round of events. */
static inline void rme_peer_kick(struct rme_peer *peer)
{
    if (rme_node_alone(&peer->kick))
        rme_node_append(&peer->rme->kicked, &peer->kick);
    peer->rme->pending |= RME_PENDING_SETTLE;
}
/*
 * The link is given up for `error`: all its ops end with it, as soon as the link is down.
 * `why` goes to the log unless it is NULL.  Does nothing when there is no link or it is closing
 * already.
 */
void rme_peer_fail(struct rme_peer *peer, int error, const char *why);
/* Asks the fabric to end the link; somebody polls for LINK_DOWN. */
void rme_peer_disconnect(struct rme_peer *peer, int error);
/* The same as rme_peer_fail for a peer that broke the protocol. */
void rme_peer_protocol_error(struct rme_peer *peer, const char *why);

/* A cancel waits for the peer: bounds the time. */
void rme_peer_watch_cancel(struct rme_peer *peer);

/* Its timer watches work that is done: it is stopped, or set for the next probe of an idle
 * link.  False: it is right as it is. */
bool rme_peer_timer_rest(struct rme_peer *peer);
/* Its timer is due. */
void rme_peer_timer(struct rme_peer *peer, uint64_t now);

/* It asks whether anybody is there, and for buffers that we do not need; it has given so many
 * up. */
void rme_peer_pinged(struct rme_peer *peer, uint32_t asked);
void rme_peer_yielded(struct rme_peer *peer, uint32_t count);

/* BYE is to be said as soon as there is a credit for it; when it has arrived, or cannot,
 * rme->byes counts it no longer. */
void rme_peer_bye(struct rme_peer *peer);
/* It is due: says it, if it can go now. */
void rme_peer_say_bye(struct rme_peer *peer);
void rme_peer_bye_done(struct rme_peer *peer);

/* Events. */
void rme_peer_request(struct rme *rme, const struct rme_event *event);
void rme_peer_up(struct rme_peer *peer, const struct rme_event *event);
void rme_peer_down(struct rme_peer *peer, const struct rme_event *event);

/* The host has freed the address. */
void rme_peer_drop(struct rme_peer *peer);
/* Frees a peer without link once neither the host, an unexpected message nor an op needs it:
 * one for which a thread registers or copies may outlive the link. */
void rme_peer_release(struct rme_peer *peer);
/* One op less needs it, which may have been the last. */
static inline void rme_peer_unpin(struct rme_peer *peer)
{
    if (--peer->pins == 0 && peer->link == NULL)
        rme_peer_release(peer);
}
/* Ends all its ops, whatever becomes of its link; frees it (rme_close). */
void rme_peer_bury(struct rme_peer *peer);
void rme_peer_destroy(struct rme_peer *peer);
/* What the host hears of a link that could not be made. */
int rme_peer_connect_error(int error);

/* Something that waits in peer->control or peer->endings for credits or windows. */
struct rme_control_kind {
    /* false: no credit, buffer or window; else it is out of the ring */
    bool (*send)(struct rme_peer *peer, struct rme_control *control);
    /* the link is given up; NULL: its op takes it out before */
    void (*drop)(struct rme_peer *peer, struct rme_control *control);
};

struct rme_control {
    struct rme_node link;
    const struct rme_control_kind *kind;
};

/* Forgets all that waits there. */
void rme_control_drop(struct rme_peer *peer);

/* What a link tells those that use it, with the engine's lock held. */
struct rme_link_user {
    /* bytes of struct rme_talk, zeroed at first; it lives as long as the peer */
    size_t talk_size;
    void (*made)(struct rme_peer *peer); /* a peer */
    /* its hello is there: what is counted for each link begins anew */
    void (*started)(struct rme_peer *peer);
    /* the link is given up: nothing is sent or matched on it from now on */
    void (*left)(struct rme_peer *peer, int error);
    /* no device touches memory for it any more */
    void (*down)(struct rme_peer *peer);
    /* what waits for a link waits in vain */
    void (*unreachable)(struct rme_peer *peer, int error);
    /* the host wants nothing of it, not even what is complete */
    void (*unwanted)(struct rme_peer *peer);
    /* something of it is still to be delivered */
    bool (*is_needed)(const struct rme_peer *peer);
    void (*gone)(struct rme_peer *peer); /* it is about to be freed */
};

/* The same of one that has nothing but a header and a payload: the rest is not written, and the
 * caller sees to the flush. */
void rme_peer_head(struct rme_peer *peer, uint8_t type, int32_t tag,
                   struct rme_wire_message *out);
/* The header of a message that goes out now; spends its credit. */
void rme_peer_header(struct rme_peer *peer, uint8_t type, struct rme_wire_message *out);
/* What is sent next arrives behind all reports that were handed to the fabric. */
static inline void rme_peer_barrier(struct rme_peer *peer)
{
    if (peer->rme->caps->reports_apart)
        peer->rme->ops->barrier(peer->link);
}
/* The key by which the peer reaches a registration, where there are no windows. */
static inline uint64_t rme_peer_key(const struct rme_peer *peer, uint64_t rkey)
{
    const struct rme_fabric_ops *ops = peer->rme->ops;
    return ops->link_key != NULL ? ops->link_key(peer->link, rkey) : rkey;
}
/* So many devices carry transfers of that size. */
static inline unsigned rme_peer_lanes(const struct rme_peer *peer, uint64_t bytes)
{
    const struct rme_fabric_ops *ops = peer->rme->ops;
    return ops->link_lanes != NULL && peer->link != NULL ? ops->link_lanes(peer->link, bytes)
                                                         : 1;
}
/* Are there credits for a message of this class?  If not, the peer hears of it. */
bool rme_peer_may(struct rme_peer *peer, enum rme_credit_class class);
/* The same for an immediate, which returns no credits. */
bool rme_peer_may_report(struct rme_peer *peer);

/*
 * What a peer that came to us is promised at first: what is usual, and one where all links
 * share their receive buffers, or when much is lent.  One takes a peer that knows the rule for
 * its last credit; others get the least that does without it, and 0, which is a refusal, when
 * the pool has none for them: no number of them makes us keep more than that.
 */
uint32_t rme_grant_first(const struct rme *rme, const struct rme_hello *hello);
/* What we promise a peer when we ask for a link. */
uint32_t rme_grant_ask(const struct rme *rme);
/* The link has so many of the pool from now on. */
void rme_grant_lend(struct rme_peer *peer, uint32_t count);
/* What the link gave up and its messages have used since is the pool's again. */
void rme_grant_settle(struct rme_peer *peer);
/* It gets some more, within the bounds: see rme_grant_more. */
void rme_grant_grow(struct rme_peer *peer);
/* The peer would use more receive buffers than it has.  Each message of a crowd asks this, and
 * there is nothing for most of them. */
static inline void rme_grant_more(struct rme_peer *peer)
{
    const struct rme_credit_pool *pool = &peer->rme->credit_pool;

    if (peer->spare != 0 || pool->lent < pool->limit)
        rme_grant_grow(peer);
}
/* It gets none back for now, but for a few (keep.c): it is promised as many as keep a reserve,
 * whatever is left of the pool. */
void rme_grant_reserve(struct rme_peer *peer);
/* The link is idle, or begins: it is in use when some messages have come. */
void rme_grant_rest(struct rme_peer *peer);
/* So many have come: it gets what is usual. */
void rme_grant_used(struct rme_peer *peer);
/*
 * A message of the peer was taken, and a CREDIT message is due: it goes at the end of this
 * round, or, to a peer that has few buffers, when no answer has taken the credits along.
 */
void rme_grant_due(struct rme_peer *peer);
/* Calls that had something for the host before CREDIT messages wait no longer: more than the
 * messages that one call takes. */
#define RME_ANSWER_CALLS 256u
/* The CREDIT messages that wait for an answer go. */
void rme_grant_unanswered(struct rme *rme);
/* A call returns to the host; `idle`: with nothing, so that no answer is to be expected. */
static inline void rme_grant_answers(struct rme *rme, bool idle)
{
    if (idle || ++rme->answer_calls >= RME_ANSWER_CALLS)
        rme_grant_unanswered(rme);
}
/* Sends a message of control, whose segments, if it has any, are in the buffer `tx` already. */
void rme_peer_send_control(struct rme_peer *peer, const struct rme_wire_message *message,
                           void *tx);
/* Sends a message that is only a header.  False: no credit or buffer. */
bool rme_peer_send_header(struct rme_peer *peer, uint8_t type, enum rme_credit_class class);
/* A message of this class may go now, and a buffer is there: the buffer, else NULL (and the
 * peer remembers why). */
void *rme_peer_tx(struct rme_peer *peer, enum rme_credit_class class);

#endif
