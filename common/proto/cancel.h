/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cancellation of operations.  See cancel.c. */
#ifndef RME_CANCEL_H
#define RME_CANCEL_H

#include "proto/talk.h"

extern const struct rme_protocol rme_protocol_cancel;

/* Cancels an op for the host. */
void rme_cancel_op(struct rme *rme, struct rme_op *op);
/* Has a CANCEL been without an answer for longer than cancel_ms?  If not, peer->cancel_by
 * becomes the next deadline. */
bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now);
/* Removes an op from its queue or table and drops its pending control messages, because the link
 * is lost. */
void rme_op_detach(struct rme *rme, struct rme_op *op);

#endif
