/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* buffers.h - receive and send buffers, their pools, receive queues, queues of transfers.  The
 * engine's lock protects all of them. */
#ifndef BMI_IB_BUFFERS_H
#define BMI_IB_BUFFERS_H

#include <infiniband/verbs.h>
#include "base/list.h"
#include "base/table.h"
#include "fabric.h"

#define IB_SLAB 32 /* maximum buffers per slab */

/* Receive buffer: free, in the chain of a queue to be posted at a flush, posted, received and
 * waiting for room in the caller's event array, or held by the engine until rx_return(). */
struct ib_rx {
    /* in the free list, the chain, the ready list, or, with a QP's own queue, at the device */
    struct list_head entry;
    void *data;
    struct ibv_recv_wr wr; /* built, but for `next` */
    struct ibv_sge sge;
    uint32_t index;      /* position in the pool; with `generation` in wr.wr_id */
    uint32_t generation; /* counts postings; identifies CQEs of an earlier posting */
    uint32_t link;       /* link handle, of a QP's own buffer or of a message that waits */
    bool posted;         /* posted to the device */
    bool is_imm;  /* waiting: `value` is an immediate; else `value` is a length in bytes */
    uint8_t rail; /* rail whose pool owns the buffer */
    uint32_t value;
};

static inline struct ib_rx *ib_rx_of(struct ibv_recv_wr *wr)
{
    return container_of(wr, struct ib_rx, wr);
}

/* Send buffer; the payload follows the structure.  A message is a transfer without pieces, so
 * one queue holds both kinds. */
struct ib_tx {
    struct rme_rdma_op x;
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

/* Returns true if the transfer is a plain message in a send buffer. */
static inline bool ib_is_message(const struct rme_rdma_op *x)
{
    return x->tx != NULL && x == &ib_tx_of(x->tx)->x;
}

/* Kinds of queued transfers.  OPEN and CLOSE bind and invalidate windows (mw.c). */
enum ib_rdma_op_what { IB_RDMA_DATA, IB_RDMA_OPEN, IB_RDMA_CLOSE };

/* Memory window of type 2. */
struct ib_mw {
    struct list_head entry; /* in the free list or the list of its link */
    struct rme_keyed
        by_key; /* in the table of the rail, by the bits of the key that do not change */
    struct ibv_mw *mw;
    const struct rme_link *link; /* whose peer the key admits; NULL: the window is closed */
    uint32_t key;
    struct ibv_mw_bind_info info;
    struct rme_rdma_op open, close;
};

struct ib_mw_pool {
    struct list_head free;
    uint32_t nfree, made;
};

/* FIFO of transfers, linked by fabric.next. */
struct ib_rdma_op_queue {
    struct rme_rdma_op *head, *tail;
};

static inline void ib_queue_put(struct ib_rdma_op_queue *q, struct rme_rdma_op *x)
{
    x->fabric.next = NULL;
    if (q->head != NULL)
        q->tail->fabric.next = x;
    else
        q->head = x;
    q->tail = x;
}

static inline struct rme_rdma_op *ib_queue_get(struct ib_rdma_op_queue *q)
{
    struct rme_rdma_op *x = q->head;
    if (x != NULL)
        q->head = x->fabric.next;
    return x;
}

struct ib_memory { /* slab of registered memory */
    void *base;
    size_t length;
    struct ibv_mr *mr;
};

struct ib_rx_slab {
    struct ib_memory memory;
    struct list_head free; /* free buffers of this slab */
    uint32_t nfree;
    struct list_head open; /* in ib_rx_pool.open while nfree > 0 */
    struct ib_rx rx[IB_SLAB];
};

/* Receive queue: the SRQ, or that of one QP.  posted + held covers advertised and the slack. */
struct ib_rx_queue {
    struct list_head chain;     /* buffers to be posted */
    struct list_head at_device; /* posted buffers; unused with an SRQ */
    uint32_t chained;           /* length of `chain`; at most the slack after a flush */
    uint32_t advertised;        /* receives reserved by the engine */
    uint32_t posted;            /* posted or in the chain */
    uint32_t held;              /* held by the engine, or ready for delivery */
};

struct ib_rx_pool {
    struct ib_rx_slab **slab; /* NULL entry: slab was freed */
    uint32_t slabs;           /* entries in `slab` */
    uint32_t nslab;           /* slabs allocated */
    uint32_t unused;          /* slabs without a buffer in use */
    struct list_head open;    /* slabs with free buffers; those without a buffer in use come
                               * last */
    uint32_t nfree;
    uint32_t generation; /* highest generation of all freed slabs; new slabs start here */
};

struct ib_tx_pool {
    struct ib_memory *slab;
    uint32_t slabs;
    struct ib_tx *free;
    uint32_t nfree;
    uint32_t max;             /* maximum buffers */
    uint32_t per_link;        /* maximum buffers held by one link */
    uint32_t stuck_ms;        /* time without progress after which a link is stuck */
    uint32_t unsignalled;     /* buffers held by requests that no signalled request covers */
    uint32_t unsignalled_max; /* above this number every request is signalled */
    uint32_t kept_free; /* reserved for links with nothing in flight; below, each request is
                         * signalled */
    uint64_t check_at;  /* ms; next check for stuck links while the pool is exhausted */
};

#endif
