/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ib.h - the verbs fabric, for its own files: its structure.
 *
 * It is made of floors: device/ (the device, its memory, waking), queue/ (work and completion
 * queues, buffers, windows), link/ (connections and their life), and polling and the table of
 * functions above them.  A floor uses itself and those below; a queue tells of a link through
 * ib_reports.
 *
 * Who owns what: the fabric owns the device, the completion queues, the pools of receive and
 * send buffers and the table of links.  A link owns its rdma_cm id and its queue pair.  Links
 * are freed by the engine, but for sides (link/side.c), which the fabric frees.
 *
 * Rails.  Where the option `device` names several devices, each is a rail: a structure of its
 * own, with all of the above.  The first is the head, which the engine knows; it has what there
 * is once: the rdma_cm channel, the listeners, the resolver, and the descriptors of a sleep.
 * With one device there is one rail, its own head.  A link is one rail's at a time.
 *
 * Everything here is guarded by the engine's lock but for `hint` and `wake_fd` (wait.c), the
 * resolver (resolve.c, own mutex) and the protection domain (constant while open).
 */
#ifndef BMI_IB_IB_H
#define BMI_IB_IB_H

#include <netdb.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "base/addr.h"
#include "bmi_ib/buffers.h"
#include "fabric.h"
#include "bmi_ib/link.h"
#include "base/options.h"
#include "base/stats.h"

/* Completion queues; each is four times as large as the one before. */
#define IB_CQS_MAX     16
#define IB_BATCH       64  /* requests of one post call */
#define IB_BATCH_SGE   256 /* and their segments */
#define IB_POLL_BATCH  32  /* completions of one poll call */
#define IB_RX_BATCH    32  /* receives of one post call */
#define IB_QUEUE_ENTRY 64  /* bytes that a device locks for an entry of a queue, about */
#define IB_RAILS_MAX   8   /* devices of a fabric */

struct ib_cq {
    struct ibv_cq *cq;
    uint32_t size;    /* completions it holds */
    uint32_t used;    /* completions its links could produce at once: never more than size */
    uint32_t unacked; /* events fetched and not acknowledged */
    uint64_t polled;  /* completions taken */
    uint64_t emptied; /* polls that left nothing */
    struct ib_link_list drained; /* in the order in which their last completions are taken */
    bool armed;
    bool broken; /* overrun or failed: its links are dead, nobody else gets on it */
};

/* ---- The fabric ---- */

struct ib_resolver;

struct ib_listener {
    struct rdma_cm_id *id;
    struct sockaddr_storage sa;
};

/* Where connections come from: the GID that the option names. */
struct ib_source {
    bool chosen; /* else the routes decide */
    bool by_index;
    uint32_t index;
    struct sockaddr_storage sa;
};

/* An address that connections of a rail may leave by, and the network that it is in. */
struct ib_own {
    struct sockaddr_storage sa;
    uint8_t mask[16]; /* of an IPv4 address the first four bytes */
};

/* A registration on all rails; its address is the engine's key. */
struct ib_keys {
    struct ibv_mr *mr[IB_RAILS_MAX]; /* NULL: that rail is dead */
};

struct ib_device {
    /* the head's, from rdma_get_devices: the contexts that cm ids use */
    struct ibv_context **all;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    char name[64];
    uint64_t max_msg;
    uint8_t ack_timeout;
    uint8_t retry_count;
    uint8_t read_depth;
    uint32_t sq_depth, rq_depth;
    uint32_t max_inline; /* messages of so many bytes cost no buffer read by the device */
    atomic_bool dead;    /* failed or removed: no new link */
    bool down;           /* no port of it is active: no new link while another rail has one */
};

struct ib_batch { /* scratch of one post call */
    struct ibv_send_wr wr[IB_BATCH];
    struct ibv_sge sge[IB_BATCH_SGE];
    struct ib_tx *inlined[IB_BATCH]; /* buffers that are free once the call returned */
    unsigned wrs, sges, inlines;
};

/* Bits of rme_fabric.hint: a descriptor was seen readable. */
#define IB_HINT_CM    1u
#define IB_HINT_ASYNC 2u
#define IB_HINT_WAKE  4u /* only from the sleeper to itself */
#define IB_HINT_NAME  8u
#define IB_HINT_PROBE 16u

/* What a descriptor of the sleeper's wakes: a rail, and its hint. */
#define IB_WAKES(f, hint) ((uint32_t)(f)->number << 8 | (hint))

struct ib_async_note; /* async.c */

/* The device's asynchronous events for this engine; guarded by a lock of async.c. */
struct ib_async {
    TAILQ_ENTRY(rme_fabric) users;
    STAILQ_HEAD(, ib_async_note) notes;
    bool open;
};

/* What queue/ tells link/. */
struct ib_reports {
    /* the link is lost, for this reason; see ib_link_fail */
    void (*failed)(struct rme_link *l, int error, bool deliver);
    /* all links are, or those of one completion queue */
    void (*all_failed)(struct rme_fabric *f, const struct ib_cq *cq, int error);
    /* one of the marks behind the last requests came in */
    void (*marked)(struct rme_link *l);
    /* there is something for a second rail */
    void (*wanted)(struct rme_link *l);
    /* a message came before the event that confirms the connection */
    void (*heard)(struct rme_link *l);
};

struct rme_fabric {
    struct rme_fabric_config config;
    struct rme_caps caps;
    struct rme_fabric *head; /* of the rails; itself where there is one */
    bool railed;             /* there are others: keys of memory are struct ib_keys */
    uint8_t number;          /* of this rail */
    uint8_t place;           /* of its name in the option */
    uint8_t rails;           /* the head's: how many there are, */
    struct rme_fabric *rail[IB_RAILS_MAX];
    unsigned turn;      /* the rail that the next connection begins with, */
    unsigned poll_turn; /* and that is polled first next time */
    struct ib_own *own; /* addresses of this rail, where there are others */
    unsigned owns;
    const struct ib_reports *reports;
    struct ib_device dev;
    struct ib_batch batch;

    struct ib_cq cq[IB_CQS_MAX];
    unsigned cqs;
    unsigned cq_first;  /* polled first next time */
    unsigned cq_brings; /* the one that is polled alone, */
    unsigned cq_alone;  /* so many times more */
    struct ibv_comp_channel *comp;

    struct ibv_srq *srq;
    uint32_t srq_depth;
    uint32_t slab; /* buffers registered at a time: IB_SLAB, fewer where little may be locked */
    struct ib_rx_pool rx;
    struct ib_rx_queue rxq; /* shared by all links */
    uint32_t rx_slack; /* receives of a queue beyond the promise, so that the chain may wait */
    struct ib_rx_list rx_ready;
    struct ib_tx_pool tx;
    struct ib_window_pool windows;

    struct ib_link_slot *slots;
    uint32_t nslots;
    uint32_t first_free, last_free; /* slots; IB_SLOT_MASK: none */
    struct rme_link **hash;         /* by queue pair number */
    uint32_t hash_size, hash_used;
    struct ib_link_list links, dirty, eventful, downs, tx_waiters, probes;
    struct ib_link_list draining, waning; /* each in the order in which its time is over */
    struct ib_link_list ways;             /* of the head, likewise: that could go another way */
    unsigned drained;                     /* links in the lists of the completion queues */
    struct ib_xfer_queue done;            /* completed transfers without an event yet */

    struct rdma_event_channel *cm;
    struct ib_source source;
    struct ib_listener *listener;
    unsigned listeners;
    struct ib_resolver *resolver;

    atomic_uint hint;
    int wake_fd, sleep_fd; /* an eventfd; an epoll of all that ends a sleep */
    struct ib_async async;
    bool cm_complained;  /* a failing event channel is reported once */
    unsigned connecting; /* of the head: links on their way up: it looks more often */
    unsigned strides;    /* of the head: queue pairs made, stopped, destroyed or asked for */
    unsigned polls;      /* since the control descriptors were looked at */
    bool idle;           /* the last poll found nothing */
    bool resume;         /* a stalled link got room */
    uint32_t read_limit;
    bool signal_each;      /* the option */
    uint64_t stripe_bytes; /* the option; 0: nothing is striped */
    uint64_t control_tick;

    struct rme_event *out; /* the caller's array, during poll */
    int out_used, out_max;
};

#endif
