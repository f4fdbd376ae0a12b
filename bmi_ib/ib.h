/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ib.h - the verbs fabric, for its own files: the structure, and the functions of each file.
 *
 * Who owns what: the fabric owns the device, the completion queues, the pools of receive and
 * send buffers and the table of links.  A link owns its rdma_cm id and its queue pair.
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
#include "buffers.h"
#include "fabric.h"
#include "link.h"
#include "base/options.h"
#include "base/stats.h"
#include "wr_id.h"

/* Completion queues; each is four times as large as the one before. */
#define IB_CQS_MAX     16
#define IB_BATCH       64  /* requests of one post call */
#define IB_BATCH_SGE   256 /* and their segments */
#define IB_POLL_BATCH  32  /* completions of one poll call */
#define IB_RX_BATCH    32  /* receives of one post call */
#define IB_QUEUE_ENTRY 64  /* bytes that a device locks for an entry of a queue, about */

struct ib_cq {
    struct ibv_cq *cq;
    uint32_t size;    /* completions it holds */
    uint32_t used;    /* completions its links could produce at once: never more than size */
    uint32_t unacked; /* events fetched and not acknowledged */
    uint64_t polled;  /* completions taken */
    uint64_t emptied; /* polls that left nothing */
    bool armed;
    bool broken; /* overrun or failed: its links are dead, nobody else gets on it */
};

/* ---- The fabric ---- */

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
#define IB_HINT_CM    1u
#define IB_HINT_ASYNC 2u
#define IB_HINT_WAKE  4u /* only from the sleeper to itself */
#define IB_HINT_NAME  8u
#define IB_HINT_PROBE 16u

struct ib_async_note; /* async.c */

/* The device's asynchronous events for this engine; guarded by a lock of async.c. */
struct ib_async {
    TAILQ_ENTRY(rme_fabric) users;
    STAILQ_HEAD(, ib_async_note) notes;
    bool open;
};

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
    uint32_t slab; /* buffers registered at a time: IB_SLAB, fewer where little may be locked */
    struct ib_rx_pool rx;
    struct ib_rx_queue rxq; /* shared by all links */
    uint32_t rx_slack; /* receives of a queue beyond the promise, so that the chain may wait */
    struct ib_rx_list rx_ready;
    struct ib_tx_pool tx;
    struct ib_window_pool windows;

    struct ib_link_slot *slots;
    uint32_t nslots;
    uint32_t free_slot_hint;
    struct rme_link **hash; /* by queue pair number */
    uint32_t hash_size, hash_used;
    struct ib_link_list links, dirty, eventful, tx_waiters, draining, drained, probes;
    struct ib_xfer_queue done; /* completed transfers without an event yet */

    struct rdma_event_channel *cm;
    struct ib_listener *listener;
    unsigned listeners;
    struct ib_resolver *resolver;

    atomic_uint hint;
    int wake_fd, sleep_fd; /* an eventfd; an epoll of all that ends a sleep */
    struct ib_async async;
    bool cm_complained;  /* a failing event channel is reported once */
    unsigned connecting; /* links on their way up: the channel is looked at more often */
    unsigned polls;      /* since the control descriptors were looked at */
    bool idle;           /* the last poll found nothing */
    bool resume;         /* a stalled link got room */
    uint32_t read_limit;
    uint64_t control_tick;

    struct rme_event *out; /* the caller's array, during poll */
    int out_used, out_max;
};

#define ib_log(f, level, ...) (f)->config.log((f)->config.log_arg, (level), __VA_ARGS__)
#define ib_count(f, id, n)    ((f)->config.stats->value[RME_C_##id] += (n))

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

/* ---- device.c ---- */
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
bool ib_quirk_bad_windows(const struct rme_fabric *f);

/* ---- cm.c ---- */
int ib_cm_open(struct rme_fabric *f);
void ib_cm_close(struct rme_fabric *f);
void ib_cm_events(struct rme_fabric *f);
int ib_cm_start(struct rme_link *l);
int ib_cm_accept(struct rme_link *l, const void *hello, size_t length);
void ib_cm_established(struct rme_link *l);
int ib_reject_error(int status, const void *data, size_t length);

/* ---- listen.c ---- */
int ib_listen_bind(struct rme_fabric *f);
struct ibv_context *ib_listen_device(const struct rme_fabric *f);
/* of its first listener; 0: there is none */
uint16_t ib_listen_port(const struct rme_fabric *f);
int ib_listen_start(struct rme_fabric *f);
void ib_listen_close(struct rme_fabric *f);
void ib_sockaddr_text(const void *sa, char *text, size_t size);

/* ---- resolve.c ---- */
int ib_resolver_open(struct rme_fabric *f);
void ib_resolver_close(struct rme_fabric *f);
int ib_resolve_numeric(const char *host, const char *port, struct addrinfo **out);
int ib_resolve_later(struct rme_fabric *f, const char *host, const char *port, uint32_t handle);
/* Takes one result out: 1 and the handle with either *out or *error, or 0.  *why: the
 * resolver's words for an error of its own, else NULL. */
int ib_resolve_result(struct rme_fabric *f, uint32_t *handle, struct addrinfo **out, int *error,
                      const char **why);

/* ---- cq.c ---- */
int ib_cq_open(struct rme_fabric *f);
void ib_cq_close(struct rme_fabric *f);
uint32_t ib_cq_share(const struct rme_fabric *f, uint32_t promised);
int ib_cq_reserve(struct rme_fabric *f, uint32_t n, struct ib_cq **out);
int ib_cq_extend(struct ib_cq *cq, uint32_t n);
void ib_cq_release(struct ib_cq *cq, uint32_t n);
void ib_cq_poll(struct rme_fabric *f);
int ib_wc_error(enum ibv_wc_status status);

/* ---- async.c ---- */
int ib_async_open(struct rme_fabric *f);
void ib_async_close(struct rme_fabric *f);
void ib_async_events(struct rme_fabric *f);

/* ---- wait.c ---- */
int ib_wait_open(struct rme_fabric *f);
int ib_wait_watch(struct rme_fabric *f);
void ib_wait_close(struct rme_fabric *f);
int ib_nonblocking(int fd);
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

/* The next free event of the caller's array, or NULL.  (A compound literal would be cleared
 * with a slow string instruction.) */
static inline struct rme_event *ib_event(struct rme_fabric *f, enum rme_event_type type,
                                         struct rme_link *l)
{
    if (f->out_used >= f->out_max)
        return NULL;
    struct rme_event *e = &f->out[f->out_used++];
    e->type = type;
    e->link = l;
    e->owner = l->owner;
    e->error = 0;
    e->hello = NULL;
    e->hello_length = e->length = 0;
    e->data = e->rx = NULL;
    e->imm = 0;
    e->xfer = NULL;
    e->closed = NULL;
    return e;
}

#endif
