/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sends that hold their tag.  See send.c. */
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
/* Lets a QUEUED send be tried next, because its memory is ready. */
void rme_send_ready(struct rme_op *op);

#endif
