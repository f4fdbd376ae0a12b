/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* buffers.h - receive and send buffers, their pools, receive queues, queues of transfers. */
#ifndef BMI_IB_BUFFERS_H
#define BMI_IB_BUFFERS_H

#include <sys/queue.h>
#include <infiniband/verbs.h>
#include "fabric.h"

#define IB_SLAB 32 /* buffers registered at a time, at most */

enum ib_rx_state {
    IB_RX_FREE,    /* in the pool */
    IB_RX_CHAINED, /* in the chain that goes to the device at the next flush */
    IB_RX_POSTED,  /* with the device */
    IB_RX_READY,   /* received, waits for room in the caller's event array */
    IB_RX_HELD,    /* the engine's, until rx_return */
};

struct ib_rx {
    union {
        STAILQ_ENTRY(ib_rx) next; /* free list, post chain or ready list */
        LIST_ENTRY(ib_rx) posted; /* in a link's own queue: with the device */
    };
    void *data;
    uint32_t lkey;
    uint32_t index;      /* in the pool */
    uint32_t generation; /* counts postings; a late completion of an older one is told by it */
    uint32_t link;       /* handle; 0 while posted to the shared queue */
    enum ib_rx_state state;
    bool is_imm;  /* ready: an immediate, `value` is it; else a message of `value` bytes */
    uint8_t rail; /* whose pool it is of */
    uint32_t value;
};
STAILQ_HEAD(ib_rx_list, ib_rx);
LIST_HEAD(ib_rx_posted, ib_rx);

/* A send buffer: the data follows the structure.  A message is a transfer without pieces, so
 * both queue alike. */
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

/* What a transfer in a queue is; windows have two of their own (window.c), striping has three
 * (stripe.c). */
enum ib_xfer_what {
    IB_XFER_DATA,
    IB_XFER_OPEN,
    IB_XFER_CLOSE,
    IB_XFER_STRIPE, /* all of a transfer, on either queue pair of its link */
    IB_XFER_PART,   /* the data of one, a copy that is the queue's own */
    IB_XFER_REPORT, /* the notification of that one */
};

/* A memory window. */
struct ib_window {
    LIST_ENTRY(ib_window) entry; /* free, or its link's */
    struct ibv_mw *mw;
    uint32_t key;
    struct ibv_mw_bind_info info;
    struct ib_window *twin; /* of the same bytes, on the other queue pair of the link */
    struct rme_xfer open, close;
};
LIST_HEAD(ib_window_list, ib_window);

struct ib_window_pool {
    struct ib_window_list free;
    uint32_t nfree, made;
};

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
    struct ib_rx_list free; /* of its buffers */
    uint32_t nfree;
    TAILQ_ENTRY(ib_rx_slab) open; /* while some are free */
    struct ib_rx rx[IB_SLAB];
};
TAILQ_HEAD(ib_rx_slabs, ib_rx_slab);

/* A receive queue, shared or a link's own: posted + held covers promised and a little more. */
struct ib_rx_queue {
    struct ib_rx_list chain;       /* to be handed to the device */
    struct ib_rx_posted at_device; /* handed over; a link's own queue only */
    uint32_t chained;              /* how many, at most the slack after a flush */
    uint32_t promised;             /* to the engine */
    uint32_t posted;               /* with the device or in the chain */
    uint32_t held;                 /* in the engine's hands, or on the way there */
};

struct ib_rx_pool {
    struct ib_rx_slab **slab; /* NULL: given back */
    uint32_t slabs;           /* places, */
    uint32_t there;           /* slabs there, */
    uint32_t unused;          /* and those of which no buffer is in use */
    struct ib_rx_slabs open;  /* with free buffers; those of which none is in use come last */
    uint32_t nfree;
    uint32_t generation; /* none of a slab that was given back was higher */
};

struct ib_tx_pool {
    struct ib_memory *slab;
    uint32_t slabs;
    struct ib_tx *free;
    uint32_t nfree;
    uint32_t per_link;  /* most that one link may hold */
    uint32_t quiet;     /* buffers held by requests that no signalled request covers */
    uint32_t quiet_max; /* beyond it every request is signalled */
    uint32_t kept_free; /* for links that have nothing under way; likewise when it is used */
    uint64_t look_at;   /* for links that are stuck, while there is none for others */
};

#endif
