/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Operations that end before their time.  See cancel.c. */
#ifndef RME_CANCEL_H
#define RME_CANCEL_H

#include "proto/talk.h"

extern const struct rme_protocol rme_protocol_cancel;

/* The host wants it to end. */
void rme_cancel_op(struct rme *rme, struct rme_op *op);
/* Has a cancel waited too long for the peer?  If not, peer->cancel_by becomes the next
 * deadline. */
bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now);
/* Takes an op out of whatever it waits in, for the link is gone. */
void rme_op_detach(struct rme *rme, struct rme_op *op);

#endif
