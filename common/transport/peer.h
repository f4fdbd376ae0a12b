/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Peers: one per address in use, each with at most one link at a time.  link.c describes the
 * life of a peer. */
#ifndef RME_PEER_H
#define RME_PEER_H

#include "base/addr_int.h"
#include "base/probe.h"
#include "transport/control.h"
#include "transport/core.h"
#include "transport/credit.h"
#include "wire/wire.h"

struct rme_peer_proto;

/* id, name, meaning */
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

/* DUE: BYE is sent as soon as a credit permits; OUT: `bye` is in flight. */
enum rme_bye { RME_BYE_NONE, RME_BYE_DUE, RME_BYE_OUT };

struct rme_peer {
    struct rme *rme;
    struct rme_peer_proto *proto; /* state of the protocols for this peer */
    struct rme_addr *addr;        /* the peer holds one reference */
    struct rme_link *link;        /* NULL in IDLE, BACKOFF and DEAD */
    uint32_t serial;              /* identifies the peer in tables; never reused */
    uint32_t last_handle;         /* last handle given to an operation on the wire */
    uint8_t state;
    bool rts_full;  /* the peer may have used all RTS slots: windows are reported (credit.c) */
    bool passive;   /* the peer connected to this side; this side cannot connect to the peer */
    bool reported;  /* addr was reported to the host */
    bool forgotten; /* the host has freed addr */
    bool tx_wait;   /* out of send buffers until RME_EV_TX_ROOM */
    bool starved;   /* a message lacked a credit since the last run of the queues */
    bool heard;     /* a message or report arrived since the last check by the timer */
    bool pong_due;
    bool credit_waits; /* the CREDIT message waits for a reply of the host (grant.c) */
    bool ping_sent;
    bool silent;       /* a probe was not answered, and the log says so */
    bool timer_rests;  /* the timer, if set, is set for the next probe of an idle link */
    uint8_t bye_state; /* enum rme_bye */
    bool bye_in;       /* BYE was received: the peer closes the link */
    int error;         /* reason why the link is being closed */

    struct list_head of_engine; /* in rme->peers */
    struct list_head scheduled; /* in rme->scheduled */
    struct list_head ops;       /* operations that belong to this link or wait for one */
    struct list_head draining;  /* operations that end when the link is down */
    uint32_t refcount;          /* references: unfinished operations, and calls */
    uint32_t reaching;          /* calls that wait for a link without a posted operation */
    struct list_head control;   /* queued control messages, in order (struct rme_control) */
    /* queued control messages that end operations; sent before `control`, whose members may
     * wait for the memory windows of those operations */
    struct list_head endings;
    struct list_head rdma_queue;   /* queued transfers, in order (struct rme_frag) */
    struct list_head moving;       /* posted transfers, in the order of posting */
    struct list_head mover;        /* in rme->movers */
    struct rme_host *host;         /* the quotas of its peers together */
    uint64_t quota[RME_QUOTAS];    /* part of these held by the peer */
    struct list_head throttled;    /* in rme->throttled: credits are withheld */
    struct rme_peer *credit_next;  /* in rme->credit_waiting, if `credit_waits` */
    struct list_head mw_waitq;     /* in rme->mw_waitq: waits for memory windows */
    struct list_head invalidating; /* fragments with an invalidation in progress */
    /* number of late ops, and receives that have ended after one: op/end.c */
    uint32_t late;
    struct list_head held;
    struct list_head failed; /* failed receives behind unexpected sends of their tag */

    struct rme_credit credit;
    uint32_t asked; /* credits that the peer's PING asked this side to give up */
    struct rme_window eager_window[RME_STREAMS];
    struct rme_window holding[RME_STREAMS];
    uint32_t rdma_ops;               /* outstanding transfers of this side */
    uint64_t rdma_bytes;             /* and their bytes */
    struct rme_load load;            /* known load of the peer for this side */
    struct rme_hello hello;          /* hello of the peer */
    uint32_t tx_size;                /* largest message that both sides accept */
    uint64_t eager_max[RME_STREAMS]; /* largest payload sent eagerly */

    struct rme_timer timer; /* uses: see rme_peer_timer */
    int part;               /* part of the address being tried */
    int last_part_error;
    bool was_busy; /* a part of the address was busy in this attempt */
    /* explanation by the fabric, or NULL; "": the error is in the log; constant */
    const char *last_part_why;
    uint64_t connect_by; /* deadline for all parts of the address */
    uint64_t not_before; /* earliest time of the next attempt */
    uint64_t busy_by;    /* deadline for repeated requests to a busy peer; 0: not busy */
    uint32_t backoff_ms;
    /* begin of the silence: last check with `heard` set, or begin of work */
    uint64_t heard_at;
    uint64_t cancel_by;         /* earliest deadline of a cancel, or UINT64_MAX */
    uint64_t count[RME_C_PEER]; /* counters of the peer in stats */
    struct rme_rdma_op bye;     /* see rme_peer_bye */
};

/* Counts for the peer; the process's value is the sum (rme_counter_get). */
static inline void rme_peer_count(struct rme_peer *peer, enum rme_counter_id id, uint64_t n)
{
    peer->count[id] += n;
}

/* True if at least half of rx_buffered_bytes is in use, so that credits advertised to peers do
 * not grow, and credits are withheld. */
static inline bool rme_rx_account_is_tight(const struct rme *rme)
{
    return rme->quota[RME_QUOTA_RX].used >= rme->quota[RME_QUOTA_RX].limit / 2;
}
/* Judges whether the peer's credits are withheld, and schedules the peer when that begins or
 * ends (rx_account.c). */
void rme_rx_account_judge(struct rme_peer *peer);
/* Subtracts bytes from the account of the peer; rme_quota_add adds them. */
void rme_rx_uncharge(struct rme_peer *peer, uint64_t bytes);
static inline void rme_rx_account_check(struct rme_peer *peer)
{
    if (rme_rx_account_is_tight(peer->rme) || peer->credit.throttled)
        rme_rx_account_judge(peer);
}

static inline const char *rme_peer_name(const struct rme_peer *peer)
{
    return peer->addr->name;
}

/* Finds or makes the peer of an address.  NULL with *error set: -ECONNRESET dead, -EINVAL
 * address of another engine, -ENOMEM. */
struct rme_peer *rme_peer_find(struct rme *rme, struct rme_addr *addr, int *error);
static inline struct rme_peer *rme_peer_of(struct rme *rme, struct rme_addr *addr, int *error)
{
    if (atomic_load_explicit(&addr->engine, memory_order_relaxed) == rme &&
        !atomic_load_explicit(&addr->dead, memory_order_relaxed) && addr->peer != NULL)
        return addr->peer;
    return rme_peer_find(rme, addr, error);
}

/* Connects, or sets the timer, after an operation was added to the peer.  For an operation with
 * something to send, schedule the peer as well. */
void rme_peer_begin(struct rme_peer *peer);
static inline void rme_peer_work(struct rme_peer *peer)
{
    if (peer->state != RME_PEER_UP || !rme_timer_is_set(&peer->timer) || peer->timer_rests)
        rme_peer_begin(peer);
}

/* Schedules a run of the peer's queues at the end of this batch of events. */
static inline void rme_peer_schedule(struct rme_peer *peer)
{
    if (list_empty(&peer->scheduled))
        list_add_tail(&peer->scheduled, &peer->rme->scheduled);
    peer->rme->pending |= RME_PENDING_RUN;
}
/*
 * Gives the link up with `error`.  All its operations end as soon as the link is down.  `why`
 * goes to the log unless NULL.  Does nothing if there is no link, or if the link is closing
 * already.
 */
void rme_peer_fail(struct rme_peer *peer, int error, const char *why);
/* Asks the fabric to end the link and wakes the leader, so that a thread polls for
 * LINK_DOWN. */
void rme_peer_disconnect(struct rme_peer *peer, int error);
/* Calls rme_peer_fail for a peer that broke the protocol. */
void rme_peer_protocol_error(struct rme_peer *peer, const char *why);

/* Limits the time that a cancel waits for the peer. */
void rme_peer_watch_cancel(struct rme_peer *peer);

/* Stops the timer of a link without work, or sets the timer for the next probe of an idle link.
 * False: no change is needed. */
bool rme_peer_timer_rest(struct rme_peer *peer);
/* Handles the expired timer of a peer. */
void rme_peer_timer(struct rme_peer *peer, uint64_t now);

/* Handles PONG, with which the peer gave `count` credits up. */
void rme_peer_reduced(struct rme_peer *peer, uint32_t count);

/* Schedules BYE, which is sent as soon as there is a credit.  rme->byes no longer counts BYE
 * after its arrival or failure. */
void rme_peer_bye(struct rme_peer *peer);
/* Sends a BYE that is due, if a credit and a buffer are available. */
void rme_peer_send_bye(struct rme_peer *peer);
void rme_peer_bye_done(struct rme_peer *peer);

/* Event handlers. */
void rme_peer_request(struct rme *rme, const struct rme_event *event);
void rme_peer_up(struct rme_peer *peer, const struct rme_event *event);
void rme_peer_down(struct rme_peer *peer, const struct rme_event *event);

/* Handles a host that freed the address. */
void rme_peer_forget(struct rme_peer *peer);
/* Frees a peer without link once neither the host, an unexpected message nor an operation needs
 * the peer.  An operation that a thread registers or copies for may outlive the link. */
void rme_peer_release(struct rme_peer *peer);
/* Drops a reference, and frees the peer with the last one. */
static inline void rme_peer_put(struct rme_peer *peer)
{
    if (--peer->refcount == 0 && peer->link == NULL)
        rme_peer_release(peer);
}
/* Ends all operations and the link of a peer, before rme_close frees the peer. */
void rme_peer_shutdown(struct rme_peer *peer);
void rme_peer_destroy(struct rme_peer *peer);
/* Error reported to the host for a link that could not be established. */
int rme_peer_connect_error(int error);

/* Reports to the protocols (proto/proto.c, proto/unexp.c), with the engine's lock held. */

/* bytes of struct rme_peer_proto, zeroed at first; allocated with the peer */
extern const size_t rme_peer_proto_size;
/* A peer was made. */
void rme_proto_on_create(struct rme_peer *peer);
/* The hello of the peer arrived: counts per link restart. */
void rme_proto_on_connect(struct rme_peer *peer);
/* The link is given up: sending and matching on the link end. */
void rme_proto_on_disconnect(struct rme_peer *peer, int error);
/* No device accesses memory for the link any more. */
void rme_proto_on_link_down(struct rme_peer *peer);
/* No link can be established: operations that wait for one fail. */
void rme_proto_unreachable(struct rme_peer *peer, int error);
/* The host discards everything of the peer, complete messages included. */
void rme_unexp_discard(struct rme_peer *peer);
/* Returns true if a message of the peer is still to be delivered. */
bool rme_unexp_is_needed(const struct rme_peer *peer);
/* Moves complete messages at the head of the peer's queue to the host's queue, unless
 * operations of the peer are late (op/end.c). */
void rme_unexp_pass_on(struct rme_peer *peer);

/* Fills the header of a message that has only a header and a payload: other fields are not
 * written.  A message that waited for a credit, or leaves none for the next one, reports
 * that. */
static inline void rme_head_fill(struct rme_peer *peer, uint8_t type, int32_t tag,
                                 struct rme_wire_message *out)
{
    /* the last credit is used by a message that shows that the link is in use */
    bool last = peer->credit.have == 1 && type != RME_WIRE_CREDIT && type != RME_WIRE_PING &&
                type != RME_WIRE_PONG && type != RME_WIRE_BYE;

    rme_rx_account_check(peer);
    out->type = type;
    out->flags = peer->credit.stalled || last ? RME_WIRE_F_STALLED : 0;
    out->tag = tag;
    out->credits = rme_credit_gives(&peer->credit);
    out->eager_consumed = peer->holding[RME_EXPECTED].consumed;
    out->unexpected_consumed = peer->holding[RME_UNEXPECTED_STREAM].consumed;
}
/* Flag of the messages of a stream. */
static inline uint8_t rme_stream_flag(enum rme_stream stream)
{
    return (uint8_t)(stream * RME_WIRE_F_UNEXPECTED); /* the expected one is 0, the other 1 */
}
/* Removes the first peer from rme->credit_waiting. */
static inline void rme_grant_waited(struct rme_peer *peer)
{
    peer->rme->credit_waiting = peer->credit_next;
    peer->credit_waits = false;
}
/* Accounts for a message with this header that is sent: spends a credit. */
static inline void rme_head_sent(struct rme_peer *peer, const struct rme_wire_message *head)
{
    peer->credit.stalled = peer->credit.window_due = false;
    rme_credit_gave(&peer->credit, head->credits);
    if (peer->rme->credit_waiting == peer && peer->credit.unreturned == 0)
        rme_grant_waited(peer); /* this is the reply */
    rme_credit_spend(&peer->credit);
}
/* Both.  The caller schedules the flush. */
void rme_peer_head(struct rme_peer *peer, uint8_t type, int32_t tag,
                   struct rme_wire_message *out);
/* Fills the header of a message that is sent now.  Spends a credit. */
void rme_peer_header(struct rme_peer *peer, uint8_t type, struct rme_wire_message *out);
/* Key with which the peer accesses a registration on a fabric without memory windows. */
static inline uint64_t rme_peer_key(const struct rme_peer *peer, uint64_t rkey)
{
    const struct rme_fabric_ops *ops = peer->rme->ops;
    return ops->link_key != NULL ? ops->link_key(peer->link, rkey) : rkey;
}
/* Returns the segments of a receive for CTS or FIN; 0: the peer does not accept the number. */
static inline uint32_t rme_peer_shape(const struct rme_peer *peer, uint32_t nseg)
{
    return (peer->hello.flags & RME_HELLO_F_SHAPE) != 0 ? nseg : 0;
}
/* True if the credits permit a message of this class.  If not, the next header reports the
 * stall. */
bool rme_peer_may(struct rme_peer *peer, enum rme_credit_class class);
/* True if the credits permit an immediate, which returns no credits. */
bool rme_peer_may_report(struct rme_peer *peer);

/*
 * Credits advertised at first to a peer that connected to this side: one where all links share
 * a receive queue, or a quarter of the pool is used; else the option `credits`.  So the number
 * of peers cannot raise the memory for receive buffers above the pool by more than one buffer
 * each.
 */
uint32_t rme_grant_first(const struct rme *rme);
/* Credits advertised in a connection request of this side. */
uint32_t rme_grant_ask(const struct rme *rme);
/* Advertises more credits, within the limits: see rme_grant_more. */
void rme_grant_grow(struct rme_peer *peer);
/* Handles a peer that can use more credits.  Each message of many peers calls this function,
 * mostly without effect. */
static inline void rme_grant_more(struct rme_peer *peer)
{
    if (rme_quota_left(&peer->rme->quota[RME_QUOTA_CREDITS]) != 0)
        rme_grant_grow(peer);
}
/* Advertises a peer whose credits are withheld (rx_account.c) enough credits for a reserve,
 * even if the pool is empty. */
void rme_grant_reserve(struct rme_peer *peer);
/* messages after which a link is in use */
#define RME_GRANT_USED 16u
/* Advertises a link that has come into use the option `credits`. */
void rme_grant_used(struct rme_peer *peer);
/* Schedules a CREDIT message after a message of the peer was consumed: at the end of this
 * batch, or, for a peer with few credits, when no reply has returned the credits. */
void rme_grant_due(struct rme_peer *peer);
/* Calls that returned something to the host after which pending CREDIT messages are sent: more
 * than the messages that one call takes. */
#define RME_CREDIT_WAIT_CALLS 256u
/* Sends the CREDIT messages that wait for a reply. */
void rme_grant_send_waiting(struct rme *rme);
/* Counts a call that returns to the host.  `idle`: the call returns nothing, so that no reply
 * is expected. */
static inline void rme_grant_count_call(struct rme *rme, bool idle)
{
    if (idle || ++rme->credit_wait_calls >= RME_CREDIT_WAIT_CALLS)
        rme_grant_send_waiting(rme);
}
/* Sends a control message, whose segments, if any, are in the buffer `tx` already. */
void rme_peer_send_control(struct rme_peer *peer, const struct rme_wire_message *message,
                           void *tx);
/* The same; the message closes the peer's window with this key, 0: none. */
void rme_peer_send_closing(struct rme_peer *peer, const struct rme_wire_message *message,
                           void *tx, uint64_t key);
/* Sends a message that consists of a header only.  False: no credit or buffer. */
bool rme_peer_send_header(struct rme_peer *peer, uint8_t type, enum rme_credit_class class);
/* Returns a buffer for a message of this class if a credit permits, else NULL; the peer records
 * the reason. */
void *rme_peer_tx(struct rme_peer *peer, enum rme_credit_class class);

/* ---- Interfaces between peer.c, hello.c and link.c ---- */

/* Makes the peer of an address.  Returns NULL without memory. */
struct rme_peer *rme_peer_new(struct rme *rme, struct rme_addr *addr);
/* Sets the state of the link. */
static inline void rme_peer_step(struct rme_peer *peer, enum rme_peer_state state)
{
    rme_probe_link(peer->serial, peer->state, (int)state);
    peer->state = (uint8_t)state;
}
void rme_peer_set_timer(struct rme_peer *peer, uint64_t when);
/* Stops sending and matching on the link; its operations wait in `draining` until the link is
 * down. */
void rme_peer_leave(struct rme_peer *peer, int error);

/* Encodes the hello of this side, which advertises `credits` buffers. */
void rme_peer_hello(const struct rme *rme, uint32_t credits, uint8_t out[RME_HELLO_SIZE]);
/* Applies the hello of the peer.  `advertised`: credits advertised to the peer. */
void rme_peer_agree(struct rme_peer *peer, const struct rme_hello *hello, uint32_t advertised);

#endif
