/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* link.h - a link: a connection, its states and structure. */
#ifndef BMI_IB_LINK_H
#define BMI_IB_LINK_H

#include <netdb.h>
#include <rdma/rdma_cma.h>
#include "base/addr.h"
#include "base/list.h"
#include "base/table.h"
#include "base/timer.h"
#include "bmi_ib/buffers.h"

/* Bytes of private data in a request (RDMA_PS_TCP); replies and rejects hold more, which is
 * ignored. */
#define IB_HELLO_MAX 56
/* Size of "host:port" in log lines; longer names are truncated. */
#define IB_PEER_MAX 64

#define IB_LINK_STATES(X)                                                                      \
    X(NAMING, "resolving the name")        /* resolver looks up the host name */               \
    X(ADDRESSING, "resolving the address") /* rdma_resolve_addr */                             \
    X(ROUTING, "resolving the route")      /* rdma_resolve_route */                            \
    X(CONNECTING, "connecting")            /* request sent */                                  \
    X(REQUESTED, "requested")              /* peer's request waits for the engine's answer */  \
    X(ACCEPTING, "accepting")              /* accepted, ESTABLISHED pending */                 \
    X(UP, "up")                            /* usable */                                        \
    X(DRAINING, "draining")                /* QP in error state, flushes its requests */       \
    X(DRAINED, "drained")                  /* all flushed, the last CQEs are taken */          \
    X(ENDING, "ending")                    /* without a QP, LINK_DOWN pending */               \
    X(DOWN, "down")                        /* LINK_DOWN delivered, link_free() pending */

enum ib_link_state {
#define IB_LINK_ENUM(id, name) IB_##id,
    IB_LINK_STATES(IB_LINK_ENUM)
#undef IB_LINK_ENUM
};

/* Pending parts of a drain (link/link.c). */
#define IB_DRAIN_SENDS 1u
#define IB_DRAIN_RECVS 2u
#define IB_DRAIN_LAST  4u /* "last WQE reached" of an SRQ */
#define IB_DRAIN_ALL   7u

/* Events of a link that are not delivered yet. */
#define IB_EVENT_REQUEST 1u
#define IB_EVENT_UP      2u
#define IB_EVENT_ROOM    4u
#define IB_EVENT_DOWN    8u

/*
 * Send queue of a QP.  The queue completes in order, so one CQE retires all requests before it.
 * Positions of requests are free-running counters; a wr_id holds the low 24 bits.
 *
 * A request is signalled if it ends a transfer that is not unsignalled (fabric.h), if it is the
 * last one that fits while more are queued, if half of the queue was posted without a signal,
 * or if unsignalled requests would hold too many send buffers, of all or of one link.  Hence a
 * CQE is pending whenever the queue is more than half full, and an idle queue holds at most
 * half of its entries and a bounded number of send buffers.
 */
struct ib_ring {
    struct ib_rdma_op_queue posted; /* transfers that a completion ends; fabric.mark is the
                                     * position of the last request of each */
    uint32_t depth;                 /* capacity, in requests */
    uint32_t head;                  /* requests posted */
    uint32_t tail;                  /* requests known to be complete */
    uint32_t unsignalled;           /* posted since the last signalled request */
};

struct ib_rail;

struct rme_link {
    /* hot part: sending and receiving */
    struct ib_rail *rail;
    struct ibv_qp *qp;
    struct ib_rdma_op_queue queue; /* messages and transfers to be posted, in order */
    struct ib_ring ring;
    void *owner;
    uint32_t handle;
    enum ib_link_state state;
    bool dirty;       /* in rail->dirty */
    bool stalled;     /* queue waits for room in the send queue; a completion resumes it */
    bool deliver;     /* pass received messages to the engine */
    bool want_tx;     /* in rail->tx_waiters */
    uint32_t tx_held; /* send buffers held by the engine or the device for this link */
    uint32_t tx_unsignalled; /* of these, covered by no signalled request */
    uint32_t read_depth;
    struct ib_rx_queue rxq; /* own receive queue; unused with an SRQ */
    uint32_t rx_advertised; /* receives reserved for this link, in either queue */
    uint32_t tx_seen;       /* completed requests at the last check for stuck links (tx.c) */
    struct list_head mws;   /* bound, or being invalidated */
    uint8_t tx_still;       /* consecutive checks without progress */
    /* cold part: connection state */
    struct rdma_cm_id *id;
    uint32_t cq_share; /* CQEs reserved; 0: without a QP */
    int error;
    bool passive;
    bool asked; /* link_disconnect() was called */
    bool was_up;
    uint8_t events;           /* IB_EVENT_*; not 0: in rail->eventful */
    uint8_t undrained;        /* IB_DRAIN_* */
    bool busy;                /* an address refused: connection backlog full */
    struct rme_timer timer;   /* end of a drain, or of a route while another exists */
    uint64_t emptied, polled; /* counters of the CQ when the drain ended */
    unsigned stale;           /* consecutive rejects for a stale connection */
    uint8_t peer_initiator, peer_responder; /* read depths of the peer's request, local point of
                                             * view */
    struct addrinfo *addresses, *address;   /* all addresses of the name; the one in use */
    uint32_t rx_first;                      /* receives to be reserved with a QP */
    unsigned first;                         /* the rail tried first */
    unsigned route_at;                      /* the next route (rails.c) */
    bool bound;                             /* to the rail's own address */
    uint8_t hello[IB_HELLO_MAX];            /* private data of the request */
    size_t hello_length;
    uint8_t answer[IB_HELLO_MAX]; /* private data from the peer */
    size_t answer_length;
    char peer[IB_PEER_MAX];
    struct list_head all_entry, dirty_entry, event_entry, room_entry, drain_entry;
    struct rme_keyed by_handle, by_qp; /* in rail->table */
};

/* Reports of queue/ to link/, set when the rail is made (link/link.c). */
struct ib_link_ops {
    /* Fails a link; the first error counts.  `deliver`: the engine still gets messages that the
     * peer sent before. */
    void (*fail)(struct rme_link *l, int error, bool deliver);
    /* Fails all links of a rail, and logs why. */
    void (*fail_all)(struct ib_rail *rail, int error, const char *why);
    /* Removes parts (IB_DRAIN_*) from those that a drain waits for; the last one ends the
     * drain. */
    void (*drained)(struct rme_link *l, unsigned parts);
    /* Sets a connecting or accepting link to UP, and queues LINK_UP; also for a message before
     * ESTABLISHED. */
    void (*established)(struct rme_link *l);
};

#endif
