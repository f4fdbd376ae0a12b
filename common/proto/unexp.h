/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unexpected messages, from arrival to delivery.  See unexp.c. */
#ifndef RME_UNEXP_H
#define RME_UNEXP_H

#include "proto/proto.h"

struct rme_message;

rme_arrived_fn rme_unexp_arrived, rme_unexp_rts_arrived;
/* Handles the CANCEL of an RTS that no receive has taken. */
rme_cancelled_fn rme_message_cancelled;
/* Handles the end of the peer's link. */
void rme_unexp_disconnected(struct rme_peer *peer);

/* Takes the first complete message; NULL: none.  The host owns its buffer until
 * rme_unexp_free(). */
struct rme_message *rme_unexp_take(struct rme *rme);

/* Frees a message that the host has fetched; false: `buffer` is not the buffer of one. */
bool rme_unexp_free(struct rme *rme, const void *buffer);
/* Delivers the messages that were held back for ops that had ended before. */
void rme_unexp_publish(struct rme *rme);
/* Handles the end of a pull. */
void rme_unexp_pulled(struct rme *rme, struct rme_op *op);
void rme_unexp_clear(struct rme *rme);

#endif
