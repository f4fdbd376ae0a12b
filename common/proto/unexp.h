/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unexpected messages on their way to the host.  See unexp.c. */
#ifndef RME_UNEXP_H
#define RME_UNEXP_H

#include "proto/talk.h"

struct rme_message;

extern const struct rme_protocol rme_protocol_unexpected;

struct rme_unexp {
    /* in peer->unexpected; of a peer's complete ones the first is in rme->unexpected */
    struct rme_node link;
    struct rme_node waiting; /* of the peer: in `pulls`, later in `complete` */
    struct rme_keyed lent;   /* in the table of what the host has */
    struct rme_peer *peer;   /* NULL once the host has it */
    int32_t tag;
    bool ready;   /* all bytes are here */
    bool dropped; /* the host does not want it any more; it is still being pulled */
    bool pulled;  /* it came by RTS */
    /* not by RTS: which of the peer's links it came by, in whose window it counts */
    uint32_t by_link;
    uint64_t size;
    size_t kept;             /* bytes in the account of the peer */
    struct rme_message *rts; /* not pulled yet */
    _Alignas(16) unsigned char buffer[];
};

/* Takes the first complete message; NULL: none.  The host has its buffer from now on. */
struct rme_unexp *rme_unexp_take(struct rme *rme);

/* Takes a buffer back from the host; NULL: it has no such. */
struct rme_unexp *rme_unexp_back(struct rme *rme, const void *buffer);
/* What waited for ops that had ended before it is delivered. */
void rme_unexp_publish(struct rme *rme);
/* A pull ended. */
void rme_unexp_pulled(struct rme *rme, struct rme_op *op);
void rme_unexp_clear(struct rme *rme);

#endif
