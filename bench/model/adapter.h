/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * adapter.h - adapters in virtual time, and queues of requests between two of them.
 *
 * A queue issues its requests in order, each `gap` after the one before, as a fence, the number
 * of outstanding reads and the queue's depth permit.  Data takes the sending port and the
 * receiving one for its length, in the order in which requests are issued; a packet is stored
 * in each stage before the next stage.  Adapters of today arbitrate between queues by packets.
 */
#ifndef BENCH_MODEL_ADAPTER_H
#define BENCH_MODEL_ADAPTER_H

#include "bench/model/device.h"

struct adapter {
    const struct device *device;
    double out_free, in_free; /* ports */
    double free;              /* to issue a request of any queue */
};

enum request_kind {
    REQUEST_SEND,
    REQUEST_WRITE,
    REQUEST_READ,
    REQUEST_BIND,
    REQUEST_INVALIDATE
};

/* A work request.  The caller owns it, and fills in all above `next`. */
struct request {
    enum request_kind kind;
    uint64_t bytes;
    uint32_t segments;
    bool prompt;   /* the processor writes WQE and data to the adapter */
    bool fenced;   /* behind all reads of the queue */
    bool notifies; /* takes a receive of the peer: each send, a write with an immediate */
    bool closes;   /* a send that closes a window of the peer on its arrival */
    /* Both may be NULL.  `arrived`: the data is in place, at the peer or, of a read, here.
     * `done`: the completion is here; the request may be freed. */
    void (*arrived)(struct request *r, uint64_t now);
    void (*done)(struct request *r, uint64_t now);
    void *arg;
    /* private to the queue */
    struct request *next;
    struct queue *queue;
    double ready;
};

struct queue {
    struct adapter *here, *there;
    uint32_t depth; /* requests issued and not done */
    /* private */
    struct request *first, **last;
    double free;
    uint64_t wake; /* time of the event that issues more; NEVER: none */
    uint32_t issued, reads;
};

void queue_init(struct queue *q, struct adapter *here, struct adapter *there, uint32_t depth);
/* The adapter learns of the request at the time `at`: the doorbell has been rung. */
void queue_post(struct queue *q, struct request *r, uint64_t at);
/* Returns ns for calls and pages of one registration or deregistration. */
double cost_of_pages(const struct call_cost *cost, uint64_t bytes);

#endif
