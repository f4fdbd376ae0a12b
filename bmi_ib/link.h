/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* link.h - a link: its states and its structure. */
#ifndef BMI_IB_LINK_H
#define BMI_IB_LINK_H

#include <netdb.h>
#include <sys/queue.h>
#include <rdma/rdma_cma.h>
#include "base/addr.h"
#include "bmi_ib/buffers.h"
#include "bmi_ib/ring.h"

/* Private data of a request in RDMA_PS_TCP; answers and rejects hold more. */
#define IB_HELLO_MAX 56
/* Private data of an answer on InfiniBand. */
#define IB_ANSWER_MAX 196
/* "host:port" for log lines; longer names are cut there. */
#define IB_PEER_MAX 64

struct ib_cq;

#define IB_LINK_STATES(X)                                                                      \
    X(NAMING, "resolving the name")        /* the resolver looks the host name up */           \
    X(ADDRESSING, "resolving the address") /* rdma_resolve_addr */                             \
    X(ROUTING, "resolving the route")      /* rdma_resolve_route */                            \
    X(CONNECTING, "connecting")            /* request sent, the peer has not answered */       \
    X(REQUESTED, "requested") /* the peer's request waits for the engine's answer */           \
    X(ACCEPTING, "accepting") /* accepted, the peer has not confirmed */                       \
    X(UP, "up")               /* usable */                                                     \
    X(DRAINING, "draining")   /* queue pair in error, its last completions come in */          \
    X(ENDING, "ending")       /* the device is done with it, LINK_DOWN not delivered */        \
    X(DOWN, "down")           /* LINK_DOWN delivered, only link_free is left */

enum ib_link_state {
#define IB_LINK_ENUM(id, name) IB_##id,
    IB_LINK_STATES(IB_LINK_ENUM)
#undef IB_LINK_ENUM
};

/* The path of a link's queue pair. */
struct ib_path {
    bool known;  /* once it is up */
    bool global; /* by a GID: always on Ethernet */
    uint8_t port, index, sl, traffic_class;
};

struct rme_link {
    /* the hot part: sending and receiving */
    struct rme_fabric *f;
    struct ibv_qp *qp;
    struct ib_xfer_queue queue; /* messages and transfers not yet posted, in order */
    struct ib_ring ring;
    void *owner;
    uint32_t handle;
    enum ib_link_state state;
    bool dirty;        /* in f->dirty */
    bool stalled;      /* queue waits for room in the ring; a completion goes on with it */
    bool deliver;      /* messages still go to the engine */
    bool want_tx;      /* in f->tx_waiters */
    uint32_t tx_held;  /* send buffers in the engine's or the device's hands for this link */
    uint32_t tx_quiet; /* those covered by no signalled request */
    uint32_t read_depth;
    struct ib_rx_queue rxq; /* without shared receives */
    uint32_t rx_promised;   /* to this link, whichever queue serves it */
    uint32_t tx_seen;       /* requests complete when others last lacked buffers (tx.c) */
    struct ib_window_list windows; /* open, or being closed */
    /* Striping (stripe.c): a link's side is a link of its own on another rail, which the engine
     * does not know.  Each names the other; NULL: there is none. */
    struct rme_link *side, *main;
    bool is_side;
    bool may_stripe;   /* it has a side, or could have one */
    bool last_by_side; /* the last striped transfer went there */
    uint8_t keyed;    /* 1 + the rail of whose keys the peer has some, as its side's (side.c) */
    uint8_t tx_still; /* how often tx_seen was the same */
    struct ib_xfer_queue held; /* notifications and messages that wait for the side */
    uint32_t gate;             /* what the side has to pass before a message may go */
    uint32_t entered, passed;  /* of a side: entries of its queue, ever, and complete */
    uint64_t load;             /* bytes of striped transfers on this queue pair */
    /* the cold part: life */
    struct rdma_cm_id *id;
    struct ib_cq *cq;
    uint32_t cq_share;
    uint32_t qp_num;
    struct ib_path path;
    int error;
    bool passive;
    bool asked; /* link_disconnect was called */
    bool was_up;
    bool event_request, event_up, event_room, event_down; /* events not yet delivered */
    bool in_events; /* in f->eventful, for the first three */
    bool send_drained, recv_drained, last_wqe;
    bool refused; /* the last address has nobody who listens for us: see probe.c */
    bool by_tcp;  /* but somebody who listens by TCP */
    bool busy;    /* at one of the addresses too many requests waited */
    int probe;    /* a socket that finds that out, in f->probes; -1 */
    uint64_t probe_end;
    bool draining; /* in f->draining, or in f->waning when only an event is still to come */
    bool waning;
    bool drained; /* in cq->drained: only what is in that queue is still to be taken */
    uint64_t drain_end;
    uint64_t emptied, polled; /* of the completion queue when it was drained */
    unsigned stale;           /* rejects for a stale connection, in turn */
    uint8_t *offer; /* what a side takes, as long as the link lives: ours, NULL: nothing */
    size_t offer_length;
    unsigned side_tries;                    /* how often a side set out */
    uint64_t side_at;                       /* when the next one may */
    uint64_t secret;                        /* that a side of the peer's names; 0: none */
    uint8_t peer_initiator, peer_responder; /* read depths of a request, as seen from here */
    struct addrinfo *addresses, *address;   /* all of the name, and the one being tried */
    unsigned first,
        way;       /* with several rails: the first that is tried, the next way (rails.c) */
    bool bound;    /* the way leaves by the rail's own address */
    bool any_near; /* a rail is in the network of one of the addresses */
    bool stuck;    /* the rail that it moved to keeps no promise: no further way */
    bool on_way;   /* in f->head->ways: there is another way */
    uint64_t way_end;
    uint8_t hello[IB_HELLO_MAX]; /* what we send in a request */
    size_t hello_length;
    uint8_t answer[IB_HELLO_MAX]; /* what came from the peer */
    size_t answer_length;
    char peer[IB_PEER_MAX];
    struct sockaddr_storage sockaddr;
    TAILQ_ENTRY(rme_link)
    all_entry, dirty_entry, event_entry, down_entry, room_entry, drain_entry, probe_entry,
        way_entry;
    struct rme_link *hash_next;
};
TAILQ_HEAD(ib_link_list, rme_link);

#define IB_SLOT_BITS 20 /* of a handle; the rest is the generation */
#define IB_SLOT_MASK ((1u << IB_SLOT_BITS) - 1)

struct ib_link_slot {
    struct rme_link *link;
    uint32_t next_free; /* when it is free: the one that is taken after it */
    uint16_t generation;
};

#endif
