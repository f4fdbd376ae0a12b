/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Order of sending.  See send.c. */
#ifndef RME_SEND_H
#define RME_SEND_H

#include "proto/proto.h"

/* Sends queued messages and transfers, as far as credits and buffers allow. */
void rme_progress_tx(struct rme_peer *peer);

#endif
