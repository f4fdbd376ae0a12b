/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queued control messages (doc/design/control-messages.md). */
#ifndef RME_CONTROL_H
#define RME_CONTROL_H

#include <stdbool.h>

#include "base/list.h"

struct rme_peer;

/* A message in peer->control or peer->endings that waits for credits or windows.  Its owner
 * removes it when the link is given up. */
struct rme_control {
    struct list_head link;
    /* true: sent and removed from the queue; false: no credit, buffer or window */
    bool (*send)(struct rme_peer *peer, struct rme_control *control);
};

#endif
