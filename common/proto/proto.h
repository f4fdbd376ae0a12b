/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Protocol state of each peer and of the engine. */
#ifndef RME_PROTO_H
#define RME_PROTO_H

#include "op/operations.h"
#include "proto/eager_rdma.h"
#include "proto/invite.h"

/* Protocol state of a peer. */
struct rme_peer_proto {
    uint32_t posted; /* number of sends QUEUED so far */
    uint32_t links;  /* number of links so far */
    /* QUEUED sends in order, except those out of the queue (send.c) */
    struct list_head sendq[RME_STREAMS];
    struct list_head waitq; /* large sends that wait for an RTS slot, in order */
    uint32_t tags_blocked;  /* number of tags that a waiting send blocks */
    /* expected QUEUED sends with an rme_rndv: their memory is ready or being prepared */
    uint32_t preparing;
    struct list_head messages; /* unmatched expected messages (struct rme_message) */
    /* unexpected messages that are incomplete or behind one (struct rme_message) */
    struct list_head unexpected;
    struct list_head pulls; /* the RTS of `unexpected` that wait for room */
    /* complete unexpected messages that the host has not fetched */
    struct list_head complete;
    uint32_t rts_out[RME_STREAMS]; /* RTS held by the peer */
    uint32_t rts_in[RME_STREAMS];  /* RTS of the peer held here */
    /* cost of unexpected messages being pulled, or pulled and not fetched */
    uint32_t pulled;
    struct rme_invites invites;       /* see invite.c */
    struct rme_eager_rdma eager_rdma; /* see eager_rdma.c */
};

/* Protocol state of the engine. */
struct rme_protocols {
    bool forceful;            /* cancels of the host do not wait for the peer */
    struct list_head rings;   /* granted and not withdrawn (rx_ring.c) */
    uint64_t rings_looked_at; /* time of the last search for idle ones, ms */
    /* first complete message of each peer, for the host (struct rme_message) */
    struct list_head unexpected;
    uint64_t unexpected_changes;  /* number of messages completed and fetched so far */
    struct list_head unpublished; /* likewise, to be delivered after the ops in `ended` */
    struct list_head spare;       /* memory of messages, kept for others (eager.c) */
    size_t spare_bytes;           /* sum of the room in it */
};

/* Queues a CREDIT message with this flag: GRANT, WITHDRAW or RELEASE. */
static inline void rme_eager_rdma_say(struct rme_peer *peer, uint16_t flag)
{
    struct rme_eager_rdma *eager_rdma = &peer->proto->eager_rdma;

    eager_rdma->due |= flag;
    if (list_empty(&eager_rdma->control.link))
        list_add_tail(&eager_rdma->control.link, &peer->control);
    rme_peer_schedule(peer);
}

#endif
