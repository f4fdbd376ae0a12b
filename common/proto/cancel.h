/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cancellation of operations, and refusal of messages.  See cancel.c. */
#ifndef RME_CANCEL_H
#define RME_CANCEL_H

#include "proto/proto.h"

rme_arrived_fn rme_refusal_arrived;

/* Cancels an op for the host. */
void rme_cancel_op(struct rme *rme, struct rme_op *op);
/* Returns true if a CANCEL has had no answer for cancel_ms.  Otherwise sets peer->cancel_by to
 * the next deadline. */
bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now);
/* Sends FIN, the answer to CANCEL, for an operation of the peer that has no other end here;
 * false: no credit or buffer. */
bool rme_cancel_answer(struct rme_peer *peer, uint32_t to);

#endif
