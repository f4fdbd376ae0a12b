/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The queue of a peer's sends, and the sends that hold their tag.  proto/send.c has the
 * rules. */
#ifndef RME_TAGS_H
#define RME_TAGS_H

#include "op/operations.h"

/* The QUEUED sends of a peer. */
struct rme_sends {
    uint32_t posted; /* number of sends QUEUED so far */
    /* in order, except those out of the queue (send.c) */
    struct list_head sendq[RME_STREAMS];
    /* sends whose memory is ready, then large ones that wait for an RTS slot, in order */
    struct list_head waitq;
    uint32_t tags_blocked; /* number of tags that a waiting send blocks */
    /* expected sends with a rendezvous: their memory is ready or being prepared */
    uint32_t preparing;
};

/* Returns the send that holds a tag; NULL: none. */
struct rme_op *rme_tag_holder(const struct rme_peer *peer, int32_t tag);
/* Dequeues the send and lets it hold its tag, in the peer's `waitq`; NULL: until
 * rme_send_ready. */
void rme_send_wait(struct rme_op *op, struct list_head *waitq);
/* Removes a QUEUED send from its queue, because it is sent or ends, and passes its tag on. */
void rme_send_leave(struct rme_op *op);
/* Lets a QUEUED send be tried next, because its memory is ready. */
void rme_send_ready(struct rme *rme, struct rme_op *op);

#endif
