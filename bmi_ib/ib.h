/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ib.h - internal structures of the verbs fabric.
 *
 * Layers: device/ (device, memory, wake-up), queue/ (work and completion queues, buffers,
 * windows), link/ (connections), and above them polling and the function table.  A layer calls
 * itself and lower layers only; queue/ reports to link/ by a table (struct ib_link_ops).
 *
 * Parts: the fabric has what exists once: the rdma_cm channel, the listeners, the resolver, the
 * sleep descriptors, the registrations and the timers.  Each device of the option `device` is a
 * rail, which has the objects of its device.  A link is on one rail at a time; while its name
 * is looked up, on the first.
 *
 * Ownership: the fabric owns its rails, until it is closed.  A rail owns its device, CQ, buffer
 * pools and table of links.  A link owns its rdma_cm id and its QP.  The engine frees links.
 *
 * Locking: the engine's lock protects everything except `hint` and `wake_fd` (wake.c), the
 * resolver (resolve.c, own mutex), `async` (async.c, own mutex), and the PDs and lists of
 * registrations, which struct ib_regs protects.
 */
#ifndef BMI_IB_IB_H
#define BMI_IB_IB_H

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "base/addr.h"
#include "base/list.h"
#include "bmi_ib/buffers.h"
#include "fabric.h"
#include "bmi_ib/link.h"
#include "base/options.h"
#include "base/stats.h"
#include "base/timer.h"

#define IB_BATCH       64 /* WRs per ibv_post_send() */
#define IB_SGE_MAX     16 /* SGEs per WR, within the limit of the device */
#define IB_POLL_BATCH  32 /* CQEs per ibv_poll_cq() */
#define IB_QUEUE_ENTRY 64 /* pinned bytes per queue entry, approximately */
#define IB_RAILS_MAX   8  /* maximum devices per fabric */
#define IB_DEVICE_NAME 64 /* bytes of a device's name */

#define IB_RESOLVE_MS 2000 /* to resolve an address, and again for the route */
/* ms for a route to a peer (rails.c) before the next one; the last has the rest of
 * connect_timeout_ms */
#define IB_ROUTE_TIMEOUT_MS 3000
#define IB_DRAIN_MS         1000 /* for a failed connection's QP to flush */

struct ib_cq {
    struct ibv_cq *cq;
    uint32_t size;    /* capacity in CQEs */
    uint32_t used;    /* CQEs that its links may produce at once; at most `size` */
    uint32_t unacked; /* events fetched and not acknowledged */
    uint64_t polled;  /* CQEs taken, in total */
    uint64_t emptied; /* polls that emptied the CQ, in total */
    bool armed;
    bool broken; /* failed, and its links with it; replaced when they are gone */
};

/* ---- Rails ---- */

/* Local address of a rail and the mask of its network. */
struct ib_own {
    struct sockaddr_storage sa;
    uint8_t mask[16]; /* IPv4: first four bytes only */
};

/* Registrations of a memory range on all rails; the engine's key is the address of this. */
struct ib_keys {
    struct list_head entry;
    void *base;
    size_t length;
    unsigned access;                 /* RME_ACCESS_* */
    struct ibv_mr *mr[IB_RAILS_MAX]; /* NULL: device of that rail has failed */
};

/* All registrations of the engine: a device that returns gets them, too. */
struct ib_regs {
    /* held for reading while memory is registered or deregistered, and for writing while the
     * device of a rail changes */
    pthread_rwlock_t rails;
    pthread_mutex_t lock; /* protects `keys`; inner lock */
    struct list_head keys;
};

/* Address that lost its listener with a device. */
struct ib_lost {
    struct sockaddr_storage sa;
    int error; /* of the last attempt to listen there */
};

struct ib_device {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    char name[IB_DEVICE_NAME];
    uint64_t max_msg;
    uint8_t read_depth;
    uint32_t sq_depth, rq_depth;
    uint32_t max_inline; /* bytes; messages up to this size are posted inline */
    uint32_t inline_now; /* likewise from two segments; 0 if the device takes one only */
    atomic_bool dead;    /* failed or removed: no new links until opened again (rail.c) */
    /* context of the dead device, which is freed when no list has it */
    struct ibv_context *lost;
    bool down; /* no active port: no new links while another rail has one */
};

struct ib_batch { /* scratch memory of one post call */
    struct ibv_send_wr wr[IB_BATCH];
    struct ibv_sge sge[IB_BATCH * IB_SGE_MAX];
    struct ib_tx *inlined[IB_BATCH]; /* buffers to free after the post call */
    unsigned wrs, sges, inlines;
};

/* Pending asynchronous events of the device; protected by the mutex of async.c. */
struct ib_async {
    struct list_head users;
    struct list_head notes;
    bool open;
};

/* A device and what belongs to it. */
struct ib_rail {
    struct rme_fabric *fabric;
    const struct ib_link_ops *link_ops;
    struct rme_fabric_config config; /* the engine's; `budget`: the share of this rail */
    struct rme_caps caps;            /* common to all rails, once all are open */
    uint8_t number;                  /* index of this rail */
    uint8_t place;                   /* position of the device name in the option `device` */
    struct ib_own *own;              /* addresses of this rail; NULL with one rail */
    unsigned owns;
    struct ib_device dev;
    struct sockaddr_storage source; /* GID of the option gid; AF_UNSPEC: routing decides */
    struct ib_batch batch;

    struct ib_cq cq;
    struct ibv_comp_channel *comp;

    struct ibv_srq *srq;
    bool srq_broken; /* failed, and its links with it; replaced when they are gone */
    uint32_t srq_depth;
    uint32_t slab; /* buffers per slab: IB_SLAB, fewer under a low memlock limit */
    struct ib_rx_pool rx;
    struct ib_rx_queue rxq; /* of the SRQ */
    uint32_t rx_slack; /* receives of a queue beyond the advertised number, to batch posting */
    struct list_head rx_ready;
    struct ib_tx_pool tx;
    struct ib_mw_pool mws;

    struct rme_table table; /* links and windows (enum ib_key_kind) */
    uint32_t last_handle;
    struct list_head links, dirty, eventful, tx_waiters;
    unsigned draining;            /* links in the state DRAINING */
    struct list_head drained;     /* in the order in which their last CQEs are taken */
    struct ib_rdma_op_queue done; /* completed transfers whose events are not
                                   * delivered */

    struct ib_async async;
    bool attention;   /* the next poll has work beside the CQs: see attend() in fabric.c */
    bool resume;      /* a stalled link has room: flush at the next poll */
    bool signal_each; /* option signal_each */
    int ordering;     /* access flag of all registrations: option relaxed_ordering */

    struct rme_event *out; /* the caller's array; NULL outside the poll of this rail */
    int out_used, out_max;
};

/* ---- The fabric ---- */

/* Bits of rme_fabric.hint, and epoll data of a descriptor: it was readable. */
#define IB_HINT_CM       1u
#define IB_HINT_WAKE     2u /* in epoll data only */
#define IB_HINT_NAME     4u
#define IB_HINT_ASYNC(n) (0x100u << (n)) /* of rail n */

struct ib_resolver;

struct rme_fabric {
    struct rme_fabric_config config;
    struct rme_caps caps; /* those that the engine was given at open */
    struct ib_rail *rail[IB_RAILS_MAX];
    unsigned rails;
    unsigned turn;            /* rail that the next connection tries first */
    unsigned poll_turn;       /* counter; rotates the rail that is polled first */
    struct ibv_context **all; /* array of rdma_get_devices(), whose contexts cm ids use */
    struct rme_timers timers; /* of drains and routes of links */

    struct rdma_event_channel *cm;
    bool cm_complained; /* a failure of the event channel was logged */
    struct rdma_cm_id **listener;
    unsigned listeners;
    uint16_t port;        /* of the first listener; 0: none */
    struct ib_lost *lost; /* addresses that lost their listener */
    unsigned nlost;
    struct ib_resolver *resolver;

    struct ib_regs regs;
    uint64_t reopen_at; /* ms; time to look for lost devices, 0: none is lost */
    uint32_t reopen_ms;

    atomic_uint hint;
    int wake_fd, sleep_fd; /* eventfd of ib_wake(); epoll set of all wake-up sources */
    bool controlling;      /* in control() of fabric.c: the rails are polled after it */
    unsigned unsettled; /* links being set up or drained; polls check descriptors more often */
    unsigned qp_ops;    /* slow QP operations so far (link/link.c) */
    unsigned polls;     /* counts polls; paces the check of descriptors */
    uint64_t control_tick;
    uint32_t route_timeout_ms,
        drain_ms; /* IB_ROUTE_TIMEOUT_MS, IB_DRAIN_MS; tests set others */
};

#endif
