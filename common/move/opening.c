/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Remote windows of a message.  Each begins where the one before ended. */
#include <errno.h>
#include <stdlib.h>

#include "move/move.h"

#define OPENINGS_MAX 4 /* windows not used up; the exposing side sends at most two */

struct rme_opening *rme_opening_new(const struct rme_wire_message *message)
{
    struct rme_opening *opening =
        malloc(sizeof(*opening) + message->nsegment * sizeof(opening->segment[0]));

    if (opening == NULL)
        return NULL;
    list_init(&opening->link);
    opening->offset = message->offset;
    opening->length = message->window;
    opening->nsegment = message->nsegment;
    for (uint32_t i = 0; i < message->nsegment; i++)
        rme_wire_segment_at(message, i, &opening->segment[i]);
    return opening;
}

bool rme_rndv_open(struct rme_op *op, const struct rme_wire_message *message)
{
    struct rme_rndv *r = op->rndv;
    struct rme_opening *opening;
    unsigned waiting = 0;

    for (struct list_head *node = r->openings.next; node != &r->openings; node = node->next)
        waiting++;
    if (waiting >= OPENINGS_MAX || message->offset != r->opened || message->window == 0 ||
        message->window > op->size - r->opened) {
        rme_peer_protocol_error(op->peer, "a CTS whose window does not follow the last one");
        return false;
    }
    opening = rme_opening_new(message);
    if (opening == NULL) {
        rme_peer_fail(op->peer, -ENOMEM, "no memory for the description of a transfer");
        return false;
    }
    list_add_tail(&opening->link, &r->openings);
    r->opened += message->window;
    return true;
}
