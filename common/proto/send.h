/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The order of what goes out.  See send.c. */
#ifndef RME_SEND_H
#define RME_SEND_H

#include "proto/talk.h"

/* Sends what waits, as far as credits and buffers allow. */
void rme_push(struct rme_peer *peer);
/* May a small message go past all that lets others pass?  Only if none of its tag does, and no
 * small one. */
bool rme_send_may_pass(const struct rme_peer *peer, int32_t tag);
/* A QUEUED send leaves whatever it waits in: it goes out, or ends. */
void rme_send_leave(struct rme_op *op);
/* A message of so many bytes was copied and handed to the fabric: it counts. */
void rme_send_copied(struct rme_peer *peer, enum rme_stream stream, uint64_t size);
/* The same of one that was not copied here. */
void rme_send_eager(struct rme_peer *peer, enum rme_stream stream, uint64_t size);
/* The memory of a QUEUED send is ready: it is tried next. */
void rme_send_ready(struct rme_op *op);
/* There is an invitation for this tag: a send of it that waits for the peer's host is tried
 * next. */
void rme_send_invited(struct rme_peer *peer, int32_t tag);

#endif
