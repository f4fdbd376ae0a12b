/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unexpected messages, from arrival to delivery.  See unexp.c. */
#ifndef RME_UNEXP_H
#define RME_UNEXP_H

#include "proto/proto.h"

struct rme_message;

rme_arrived_fn rme_unexp_arrived, rme_unexp_rts_arrived;
rme_cancelled_fn rme_unexp_cancelled;
/* Handles the end of the peer's link. */
void rme_unexp_disconnected(struct rme_peer *peer);

struct rme_unexp {
    /* in talk->unexpected; the first complete one of a peer in protocols->unexpected */
    struct list_head link;
    struct list_head waiting; /* in the peer's `pulls`, later in its `complete` */
    struct rme_keyed lent;    /* in the table of fetched messages */
    struct rme_peer *peer;    /* NULL once the host has fetched the message */
    struct rme_addr *sender;  /* from then on */
    int32_t tag;
    bool ready;   /* complete */
    bool dropped; /* the host no longer wants the message, which is still being pulled */
    bool pulled;  /* arrived as RTS */
    /* if not pulled: number of the peer's link in whose window the message counts */
    uint32_t by_link;
    uint64_t size;
    size_t rx_buffered;      /* bytes in the receive-side accounting of the peer */
    struct rme_message *rts; /* the RTS, until the pull starts */
    _Alignas(16) unsigned char buffer[];
};

/* Takes the first complete message; NULL: none.  The host owns its buffer from now on. */
struct rme_unexp *rme_unexp_take(struct rme *rme);

/* Takes a buffer back from the host; NULL: not a fetched buffer. */
struct rme_unexp *rme_unexp_back(struct rme *rme, const void *buffer);
/* Delivers messages that waited for ops that had ended before them. */
void rme_unexp_publish(struct rme *rme);
/* Handles the end of a pull. */
void rme_unexp_pulled(struct rme *rme, struct rme_op *op);
void rme_unexp_clear(struct rme *rme);

#endif
