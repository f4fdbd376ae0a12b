/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ib.h - the structures of the verbs fabric, for its own files.
 *
 * Who owns what: the fabric owns the device, the completion queues, the pools of receive and send buffers and the table
 * of links.  A link owns its rdma_cm id and its queue pair.  Everything here is guarded by the engine's lock but for
 * `hint` and `wake_fd` (wait.c), the resolver (resolve.c, own mutex) and the protection domain (constant while open).
 */
#ifndef BMI_IB_IB_H
#define BMI_IB_IB_H

#include <netdb.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "addr.h"
#include "fabric.h"
#include "options.h"
#include "ring.h"
#include "stats.h"

#define IB_HELLO_MAX 56  /* private data of a request in RDMA_PS_TCP; answers and rejects hold more */
#define IB_CQS_MAX 16    /* completion queues; each is four times as large as the one before */
#define IB_BATCH 64      /* requests of one post call */
#define IB_BATCH_SGE 256 /* and their segments */
#define IB_POLL_BATCH 32 /* completions of one poll call */
#define IB_RX_BATCH 32   /* receives of one post call */
#define IB_SLAB 32       /* buffers registered at a time */
#define IB_PEER_MAX 64   /* "host:port" for log lines; longer names are cut there */

/* ---- Work request ids: kind (4 bits), position or generation (24), link handle or receive index (32) ---------------- */

enum ib_wr_kind { IB_WR_NONE, IB_WR_SEND, IB_WR_RECV, IB_WR_MARK_SEND, IB_WR_MARK_RECV };

static inline uint64_t ib_wr_id(enum ib_wr_kind kind, uint32_t position, uint32_t low)
{
    return (uint64_t)kind << 60 | (uint64_t)(position & IB_POSITION_MASK) << 32 | low;
}

static inline enum ib_wr_kind ib_wr_kind(uint64_t id)
{
    return (enum ib_wr_kind)(id >> 60);
}

static inline uint32_t ib_wr_position(uint64_t id)
{
    return (uint32_t)(id >> 32) & IB_POSITION_MASK;
}

static inline uint32_t ib_wr_low(uint64_t id)
{
    return (uint32_t)id;
}

/* ---- Buffers ---------------------------------------------------------------------------------------------------- */

enum ib_rx_state {
    IB_RX_FREE,   /* in the pool */
    IB_RX_POSTED, /* with the device, or in the chain that goes to it at the next flush */
    IB_RX_READY,  /* received, waits for room in the caller's event array */
    IB_RX_HELD,   /* the engine's, until rx_return */
};

struct ib_rx {
    STAILQ_ENTRY(ib_rx) next; /* free list, post chain or ready list */
    void *data;
    uint32_t lkey;
    uint32_t index;      /* in the pool */
    uint32_t generation; /* counts postings; a late completion of an older one is told by it */
    uint32_t link;       /* handle; 0 while posted to the shared queue */
    enum ib_rx_state state;
    bool is_imm;         /* ready: an immediate, `value` is it; else a message of `value` bytes */
    uint32_t value;
};
STAILQ_HEAD(ib_rx_list, ib_rx);

/* A send buffer: the data follows the structure.  A message is a transfer without pieces, so both queue alike. */
struct ib_tx {
    struct rme_xfer x;
    struct ib_tx *next; /* free list */
    struct rme_link *link;
    uint32_t lkey;
} __attribute__((aligned(64)));

static inline void *ib_tx_data(struct ib_tx *tx)
{
    return tx + 1;
}

static inline struct ib_tx *ib_tx_of(void *data)
{
    return (struct ib_tx *)data - 1;
}

/* Is the transfer a plain message, made of a send buffer? */
static inline bool ib_is_message(const struct rme_xfer *x)
{
    return x->tx && x == &ib_tx_of(x->tx)->x;
}

/* A queue of transfers through their fabric.next. */
struct ib_xfer_queue {
    struct rme_xfer *head, *tail;
};

static inline void ib_queue_put(struct ib_xfer_queue *q, struct rme_xfer *x)
{
    x->fabric.next = NULL;
    if (q->head)
        q->tail->fabric.next = x;
    else
        q->head = x;
    q->tail = x;
}

static inline struct rme_xfer *ib_queue_get(struct ib_xfer_queue *q)
{
    struct rme_xfer *x = q->head;
    if (x)
        q->head = x->fabric.next;
    return x;
}

struct ib_memory { /* one slab of registered memory */
    void *base;
    size_t length;
    struct ibv_mr *mr;
};

struct ib_rx_slab {
    struct ib_memory memory;
    struct ib_rx rx[IB_SLAB];
};

/* A receive queue, shared or a link's own: posted + held covers promised and a little more. */
struct ib_rx_queue {
    struct ib_rx_list chain; /* to be handed to the device */
    uint32_t chained;        /* how many, at most f->rx_slack after a flush */
    uint32_t promised;       /* to the engine */
    uint32_t posted;         /* with the device or in the chain */
    uint32_t held;           /* in the engine's hands, or on the way there */
};

struct ib_rx_pool {
    struct ib_rx_slab **slab;
    uint32_t slabs;
    struct ib_rx_list free;
    uint32_t nfree;
};

struct ib_tx_pool {
    struct ib_memory *slab;
    uint32_t slabs;
    struct ib_tx *free;
    uint32_t nfree;
    uint32_t per_link;  /* most that one link may hold */
    uint32_t quiet;     /* buffers held by requests that no signalled request covers */
    uint32_t quiet_max; /* beyond it every request is signalled */
};

/* ---- Completion queues ------------------------------------------------------------------------------------------ */

struct ib_cq {
    struct ibv_cq *cq;
    uint32_t size;    /* completions it holds */
    uint32_t used;    /* completions its links could produce at once: never more than size */
    uint32_t unacked; /* events fetched and not acknowledged */
    bool armed;
    bool broken;      /* overrun or failed: its links are dead, nobody else gets on it */
};

/* ---- Links ------------------------------------------------------------------------------------------------------ */

#define IB_LINK_STATES(X)                                                                          \
    X(NAMING, "resolving the name")     /* the resolver looks the host name up */                  \
    X(ADDRESSING, "resolving the address") /* rdma_resolve_addr */                                 \
    X(ROUTING, "resolving the route")   /* rdma_resolve_route */                                   \
    X(CONNECTING, "connecting")         /* request sent, the peer has not answered */              \
    X(REQUESTED, "requested")           /* the peer's request waits for the engine's answer */     \
    X(ACCEPTING, "accepting")           /* accepted, the peer has not confirmed */                 \
    X(UP, "up")                         /* usable */                                               \
    X(DRAINING, "draining")             /* queue pair in error, its last completions come in */    \
    X(ENDING, "ending")                 /* the device is done with it, LINK_DOWN not delivered */  \
    X(DOWN, "down")                     /* LINK_DOWN delivered, only link_free is left */

enum ib_link_state {
#define IB_LINK_ENUM(id, name) IB_##id,
    IB_LINK_STATES(IB_LINK_ENUM)
#undef IB_LINK_ENUM
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
    /* the cold part: life */
    struct rdma_cm_id *id;
    struct ib_cq *cq;
    uint32_t cq_share;
    uint32_t qp_num;
    int error;
    bool passive;
    bool asked;  /* link_disconnect was called */
    bool was_up;
    bool event_request, event_up, event_room, event_down; /* events not yet delivered */
    bool in_events;
    bool send_drained, recv_drained, last_wqe;
    bool draining; /* in f->draining */
    uint64_t drain_end;
    uint8_t peer_initiator, peer_responder; /* read depths of a request, as seen from here */
    struct addrinfo *addresses, *address;   /* all of the name, and the one being tried */
    uint8_t hello[IB_HELLO_MAX];  /* what we send in a request */
    size_t hello_length;
    uint8_t answer[IB_HELLO_MAX]; /* what came from the peer */
    size_t answer_length;
    char peer[IB_PEER_MAX];
    struct sockaddr_storage sockaddr;
    TAILQ_ENTRY(rme_link) all_entry, dirty_entry, event_entry, room_entry, drain_entry;
    struct rme_link *hash_next;
};
TAILQ_HEAD(ib_link_list, rme_link);

#define IB_SLOT_BITS 20 /* of a handle; the rest is the generation */
#define IB_SLOT_MASK ((1u << IB_SLOT_BITS) - 1)

struct ib_link_slot {
    struct rme_link *link;
    uint16_t generation;
};

/* ---- The fabric ------------------------------------------------------------------------------------------------- */

struct ib_resolver;

struct ib_listener {
    struct rdma_cm_id *id;
    struct sockaddr_storage sa;
};

struct ib_device {
    struct ibv_context **all; /* from rdma_get_devices: the contexts that cm ids use */
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    char name[64];
    uint64_t max_msg;
    uint8_t ack_timeout;
    uint8_t retry_count;
    uint8_t read_depth;
    uint32_t sq_depth, rq_depth;
    bool dead; /* failed or removed: no new link */
};

struct ib_batch { /* scratch of one post call */
    struct ibv_send_wr wr[IB_BATCH];
    struct ibv_sge sge[IB_BATCH_SGE];
    struct ib_tx *inlined[IB_BATCH]; /* buffers that are free once the call returned */
    unsigned wrs, sges, inlines;
};

/* Bits of rme_fabric.hint: a descriptor was seen readable. */
#define IB_HINT_CM 1u
#define IB_HINT_ASYNC 2u
#define IB_HINT_COMP 4u
#define IB_HINT_NAME 8u

struct rme_fabric {
    struct rme_fabric_config config;
    struct rme_caps caps;
    struct ib_device dev;
    struct ib_batch batch;

    struct ib_cq cq[IB_CQS_MAX];
    unsigned cqs;
    unsigned cq_first; /* polled first next time */
    struct ibv_comp_channel *comp;

    struct ibv_srq *srq;
    uint32_t srq_depth;
    struct ib_rx_pool rx;
    struct ib_rx_queue rxq; /* shared by all links */
    uint32_t rx_slack;      /* receives of a queue beyond the promise, so that the chain may wait */
    struct ib_rx_list rx_ready;
    struct ib_tx_pool tx;

    struct ib_link_slot *slots;
    uint32_t nslots;
    uint32_t free_slot_hint;
    struct rme_link **hash; /* by queue pair number, for the shared queue */
    uint32_t hash_size, hash_used;
    struct ib_link_list links, dirty, eventful, tx_waiters, draining;
    struct ib_xfer_queue done; /* completed transfers without an event yet */

    struct rdma_event_channel *cm;
    struct ib_listener *listener;
    unsigned listeners;
    struct ib_resolver *resolver;

    atomic_uint hint;
    int wake_fd;
    bool cm_complained;   /* a failing event channel is reported once */
    unsigned connecting;  /* links on their way up: the channel is looked at more often */
    unsigned polls;       /* since the control descriptors were looked at */
    bool idle;            /* the last poll found nothing */
    bool resume;          /* a stalled link got room */
    uint32_t read_limit;
    uint64_t control_tick;

    struct rme_event *out; /* the caller's array, during poll */
    int out_used, out_max;
};

#define ib_log(f, level, ...) (f)->config.log((f)->config.log_arg, (level), __VA_ARGS__)
#define ib_count(f, id, n) ((f)->config.stats->value[RME_C_##id] += (n))

static inline int64_t ib_option(const struct rme_fabric *f, const char *name)
{
    return rme_option(f->config.options, name);
}

/* errno as a negative number, never 0: some providers fail without setting it. */
int ib_errno(void);
/* A verbs return value (positive or negative errno, or -1 with errno) as a negative errno. */
int ib_error(int ret);
/* Milliseconds of a clock that only goes forward. */
uint64_t ib_now_ms(void);

extern const struct rme_option_row ib_options[]; /* options.c */

/* ---- device.c --------------------------------------------------------------------------------------------------- */
int ib_device_list(struct rme_fabric *f);
int ib_device_open(struct rme_fabric *f, struct ibv_context *preferred);
void ib_device_close(struct rme_fabric *f);
int ib_reg(struct rme_fabric *f, void *base, size_t length, unsigned access, struct rme_mr *mr);
void ib_dereg(struct rme_fabric *f, struct rme_mr *mr);
int ib_memory_get(struct rme_fabric *f, size_t length, struct ib_memory *m);
void ib_memory_put(struct ib_memory *m);
/* Quirks, one predicate each. */
bool ib_quirk_srq_unsafe(const struct rme_fabric *f);
bool ib_quirk_no_last_wqe(const struct rme_fabric *f);

/* ---- cm.c ------------------------------------------------------------------------------------------------------- */
int ib_cm_open(struct rme_fabric *f);
void ib_cm_close(struct rme_fabric *f);
void ib_cm_events(struct rme_fabric *f);
int ib_cm_start(struct rme_link *l);
int ib_cm_accept(struct rme_link *l, const void *hello, size_t length);
void ib_cm_established(struct rme_link *l);
int ib_reject_error(int status, const void *data, size_t length);

/* ---- listen.c --------------------------------------------------------------------------------------------------- */
int ib_listen_bind(struct rme_fabric *f);
struct ibv_context *ib_listen_device(const struct rme_fabric *f);
int ib_listen_start(struct rme_fabric *f);
void ib_listen_close(struct rme_fabric *f);
void ib_sockaddr_text(const void *sa, char *text, size_t size);

/* ---- resolve.c -------------------------------------------------------------------------------------------------- */
int ib_resolver_open(struct rme_fabric *f);
void ib_resolver_close(struct rme_fabric *f);
int ib_resolve_numeric(const char *host, const char *port, struct addrinfo **out);
int ib_resolve_later(struct rme_fabric *f, const char *host, const char *port, uint32_t handle);
/* Takes one result out: 1 and the handle with either *out or *error, or 0. */
int ib_resolve_result(struct rme_fabric *f, uint32_t *handle, struct addrinfo **out, int *error);

/* ---- link.c ----------------------------------------------------------------------------------------------------- */
extern const char *const ib_link_state_name[];
struct rme_link *ib_link_new(struct rme_fabric *f);
struct rme_link *ib_link_by_qp(struct rme_fabric *f, uint32_t qp_num);
int ib_link_hash(struct rme_link *l);
void ib_link_unhash(struct rme_link *l);
void ib_link_state_set(struct rme_link *l, enum ib_link_state state);
void ib_link_event(struct rme_link *l, bool *which);
void ib_link_fail(struct rme_link *l, int error, bool deliver);
void ib_link_fail_all(struct rme_fabric *f, const struct ib_cq *cq, int error);
void ib_link_drained(struct rme_link *l);
void ib_link_destroy(struct rme_link *l);
void ib_link_timers(struct rme_fabric *f);
int ib_link_deadline(struct rme_fabric *f);
void ib_link_names(struct rme_fabric *f);
void ib_links_release(struct rme_fabric *f);
void ib_emit_links(struct rme_fabric *f);
void ib_emit_downs(struct rme_fabric *f);

int ib_link_connect(struct rme_fabric *f, const struct rme_addr *addr, int part, const void *hello, size_t length,
                    uint32_t rx, void *owner, struct rme_link **out);
int ib_link_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx, void *owner);
void ib_link_reject(struct rme_link *l, const void *hello, size_t length);
void ib_link_disconnect(struct rme_link *l, int error);
void ib_link_free(struct rme_link *l);

/* ---- qp.c ------------------------------------------------------------------------------------------------------- */
int ib_qp_create(struct rme_link *l);
void ib_qp_drain(struct rme_link *l);
void ib_qp_destroy(struct rme_link *l);

/* ---- rx.c ------------------------------------------------------------------------------------------------------- */
int ib_rx_open(struct rme_fabric *f);
void ib_rx_close(struct rme_fabric *f);
int ib_rx_fill(struct rme_link *l);
int ib_rx_post(struct rme_fabric *f, struct rme_link *l);
struct ib_rx *ib_rx_completed(struct rme_fabric *f, uint64_t wr_id);
void ib_rx_settle(struct rme_fabric *f, struct rme_link *l, struct ib_rx *rx);
void ib_rx_forget(struct rme_link *l);
void ib_rx_received(struct rme_fabric *f, struct rme_link *l, struct ib_rx *rx, bool is_imm, uint32_t value);
void ib_rx_failed(struct rme_fabric *f, struct rme_link *l, struct ib_rx *rx);
void ib_emit_ready(struct rme_fabric *f);

int ib_rx_reserve(struct rme_link *l, uint32_t n);
void ib_rx_release(struct rme_link *l, uint32_t n);
void ib_rx_return(struct rme_fabric *f, void *rx);

/* ---- tx.c ------------------------------------------------------------------------------------------------------- */
int ib_tx_open(struct rme_fabric *f);
void ib_tx_close(struct rme_fabric *f);
void ib_tx_release(struct rme_fabric *f, struct ib_tx *tx);
void ib_tx_rooms(struct rme_fabric *f);
void ib_tx_forget(struct rme_link *l);

void *ib_tx_get(struct rme_link *l);
void ib_tx_put(struct rme_link *l, void *tx);
void ib_tx_send(struct rme_link *l, void *tx, size_t length);

/* ---- xfer.c ----------------------------------------------------------------------------------------------------- */
void ib_xfer(struct rme_link *l, struct rme_xfer *x);
void ib_flush(struct rme_fabric *f);
void ib_xfer_enqueue(struct rme_link *l, struct rme_xfer *x);
void ib_xfer_mark_dirty(struct rme_link *l);
void ib_xfer_completed(struct rme_link *l, uint32_t position);
void ib_xfer_purge(struct rme_link *l);
void ib_emit_done(struct rme_fabric *f);
/* Fills f->batch from the head of the link's queue; the pure part of posting.  True: more could follow at once. */
bool ib_xfer_build(struct rme_link *l);

/* ---- cq.c ------------------------------------------------------------------------------------------------------- */
int ib_cq_open(struct rme_fabric *f);
void ib_cq_close(struct rme_fabric *f);
uint32_t ib_cq_share(const struct rme_fabric *f, uint32_t promised);
int ib_cq_reserve(struct rme_fabric *f, uint32_t n, struct ib_cq **out);
int ib_cq_extend(struct ib_cq *cq, uint32_t n);
void ib_cq_release(struct ib_cq *cq, uint32_t n);
void ib_cq_poll(struct rme_fabric *f);
int ib_wc_error(enum ibv_wc_status status);

/* ---- async.c ---------------------------------------------------------------------------------------------------- */
int ib_async_open(struct rme_fabric *f);
void ib_async_events(struct rme_fabric *f);

/* ---- wait.c ----------------------------------------------------------------------------------------------------- */
int ib_wait_open(struct rme_fabric *f);
void ib_wait_close(struct rme_fabric *f);
int ib_nonblocking(int fd);
void ib_comp_events(struct rme_fabric *f);
int ib_poll(struct rme_fabric *f, struct rme_event *events, int max);
int ib_arm(struct rme_fabric *f);
void ib_wait(struct rme_fabric *f, int timeout_ms);
void ib_wake(struct rme_fabric *f);

/* The link that has this handle, NULL when it is gone. */
static inline struct rme_link *ib_link_by_handle(const struct rme_fabric *f, uint32_t handle)
{
    uint32_t i = handle & IB_SLOT_MASK;
    struct rme_link *l = i < f->nslots ? f->slots[i].link : NULL;
    return l && l->handle == handle ? l : NULL;
}

/* The next free event of the caller's array, or NULL. */
static inline struct rme_event *ib_event(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l)
{
    if (f->out_used >= f->out_max)
        return NULL;
    struct rme_event *e = &f->out[f->out_used++];
    *e = (struct rme_event){.type = type, .link = l, .owner = l->owner};
    return e;
}

#endif
