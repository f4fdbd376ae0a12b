/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sends that hold their tag, and counts of sends.  See send.c. */
#ifndef RME_TAGS_H
#define RME_TAGS_H

#include "proto/proto.h"

/* Returns the send that holds a tag; NULL: none. */
struct rme_op *rme_tag_holder(const struct rme_peer *peer, int32_t tag);
/* Dequeues the send and lets it hold its tag, in the peer's `waitq`; NULL: until
 * rme_send_ready. */
void rme_send_wait(struct rme_op *op, struct list_head *waitq);
/* Removes a QUEUED send from its queue, because it is sent or ends, and passes its tag on. */
void rme_send_leave(struct rme_op *op);
/* Counts a message of `size` bytes that was handed to the fabric without a copy. */
static inline void rme_send_eager(struct rme_peer *peer, enum rme_stream stream, uint64_t size)
{
    rme_peer_count(peer, RME_C_SENDS_EAGER, 1);
    if (stream == RME_UNEXPECTED_STREAM)
        rme_peer_count(peer, RME_C_UNEXPECTED_SENT, 1);
    rme_peer_count(peer, RME_C_BYTES_SENT, size);
}
/* Counts a message that was copied. */
static inline void rme_send_copied(struct rme_peer *peer, enum rme_stream stream, uint64_t size)
{
    rme_send_eager(peer, stream, size);
    rme_count_add(peer->rme, RME_C_BYTES_COPIED, size);
}
/* Lets a QUEUED send be tried next, because its memory is ready. */
void rme_send_ready(struct rme_op *op);

#endif
