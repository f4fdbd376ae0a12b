/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Eager messages that are too large for their receives.  See refuse.c. */
#ifndef RME_REFUSE_H
#define RME_REFUSE_H

#include "proto/talk.h"

extern const struct rme_protocol rme_protocol_refusal;

/* Reports to the sender that its eager message at `place` is too large for the receive. */
void rme_refuse(struct rme_op *op, uint32_t place);

#endif
