/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Remote windows of a message.  Each begins where the one before ended. */
#include <errno.h>
#include <stdlib.h>

#include "move/move.h"

#define REMOTE_WINDOWS_MAX 4 /* windows not used up; the target sends at most two */

struct rme_remote_window *rme_remote_window_new(const struct rme_wire_message *message)
{
    struct rme_remote_window *remote_window =
        malloc(sizeof(*remote_window) + message->nsegment * sizeof(remote_window->segment[0]));

    if (remote_window == NULL)
        return NULL;
    list_init(&remote_window->link);
    remote_window->offset = message->offset;
    remote_window->length = message->rndv_window;
    remote_window->nsegment = message->nsegment;
    for (uint32_t i = 0; i < message->nsegment; i++)
        rme_wire_segment_at(message, i, &remote_window->segment[i]);
    return remote_window;
}

bool rme_rndv_open(struct rme_op *op, const struct rme_wire_message *message)
{
    struct rme_rndv *r = &op->rndv;
    struct rme_remote_window *remote_window;
    unsigned waiting = 0;

    for (struct list_head *node = r->remote_windows.next; node != &r->remote_windows;
         node = node->next)
        waiting++;
    if (waiting >= REMOTE_WINDOWS_MAX || message->offset != r->opened ||
        message->rndv_window == 0 || message->rndv_window > op->size - r->opened) {
        rme_peer_protocol_error(op->peer, "a CTS whose window does not follow the last one");
        return false;
    }
    remote_window = rme_remote_window_new(message);
    if (remote_window == NULL) {
        rme_peer_fail(op->peer, -ENOMEM, "no memory for the description of a transfer");
        return false;
    }
    list_add_tail(&remote_window->link, &r->remote_windows);
    r->opened += message->rndv_window;
    return true;
}

struct rme_remote_window *rme_remote_window_at(const struct rme_rndv *r, uint64_t at)
{
    for (struct list_head *node = r->remote_windows.next; node != &r->remote_windows;
         node = node->next) {
        struct rme_remote_window *remote_window =
            container_of(node, struct rme_remote_window, link);

        if (remote_window->offset + remote_window->length > at)
            return remote_window;
    }
    return NULL;
}

uint64_t rme_remote_window_room(const struct rme_op *op, uint64_t at)
{
    const struct rme_remote_window *window = rme_remote_window_at(&op->rndv, at);

    return window == NULL
               ? 0
               : min_u64(window->offset + window->length - at, rme_move_most(op->peer->rme));
}
