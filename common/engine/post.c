/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Posting and cancelling of operations. */
#include <errno.h>

#include "engine/engine.h"

#define COPY_SEGS_MAX 8 /* maximum number of segments sent without an operation */

/* Returns the sum of a list's lengths, or -EINVAL. */
static inline int64_t list_total(const struct rme_list *list)
{
    int64_t total = 0;

    if (list == NULL || list->count < 0)
        return -EINVAL;
    if (list->count == 1) {
        total = list->length[0];
        return total < 0 || (list->base[0] == NULL && total > 0) ? -EINVAL : total;
    }
    for (int i = 0; i < list->count; i++) {
        if (list->length[i] < 0 || (list->base[i] == NULL && list->length[i] > 0) ||
            __builtin_add_overflow(total, list->length[i], &total))
            return -EINVAL;
    }
    return total;
}

/* Copies the non-empty segments of a list and returns their number. */
static inline uint32_t list_segs(const struct rme_list *list, struct rme_seg *seg)
{
    uint32_t n = 0;

    if (list->count == 1) {
        *seg = (struct rme_seg){list->base[0], (uint64_t)list->length[0]};
        return seg->length > 0;
    }
    for (int i = 0; i < list->count; i++)
        if (list->length[i] > 0)
            seg[n++] = (struct rme_seg){list->base[i], (uint64_t)list->length[i]};
    return n;
}

/* Checks the arguments of a post and finds the peer.  The lock is held on success. */
static inline __attribute__((always_inline)) int begin(struct rme *rme, struct rme_addr *addr,
                                                       const struct rme_list *list, int ctx,
                                                       int64_t *total, struct rme_peer **peer)
{
    int error = 0;

    *total = list_total(list);
    if (*total < 0 || ctx < 0 || ctx >= RME_MAX_CONTEXTS)
        return -EINVAL;
    if (!rme_enter(rme))
        return -ENODEV;
    *peer = rme->operations->ctx[ctx].open ? rme_peer_of(rme, addr, &error) : NULL;
    if (*peer != NULL)
        return 0;
    rme_unlock(rme);
    return error != 0 ? error : -EINVAL;
}

/* Makes an operation in its first state; NULL: no memory. */
static inline __attribute__((always_inline)) struct rme_op *new_op(
    struct rme_peer *peer, enum rme_op_kind kind, enum rme_op_state state,
    const struct rme_list *list, int64_t total, int32_t tag, int ctx, void *user)
{
    struct rme_op *op = rme_op_new(&peer->rme->operations->table, (uint32_t)list->count);

    if (op == NULL)
        return NULL;
    op->kind = (uint8_t)kind;
    op->ctx = (uint8_t)ctx;
    op->closes = peer->rme->operations->ctx[ctx].closes;
    op->tag = tag;
    op->user = user;
    op->total = (uint64_t)total;
    op->nseg = list_segs(list, op->seg);
    rme_probe_op_new(op->id, kind, op->total);
    rme_op_step(op, state);
    rme_op_attach(op, peer);
    return op;
}

/* Sends a message without an operation, from a copy; false: not possible now. */
__attribute__((noinline)) static bool send_copy(struct rme_peer *peer, enum rme_stream stream,
                                                const struct rme_list *list, uint64_t size,
                                                int32_t tag)
{
    struct rme_seg seg[COPY_SEGS_MAX];
    uint32_t nseg;

    if (list->count > COPY_SEGS_MAX)
        return false;
    nseg = list_segs(list, seg);
    switch (rme_message_plan(peer, stream, seg, nseg, size)) {
    case RME_PROTO_EAGER:
        return rme_window_fits(&peer->eager_window[stream], size) &&
               rme_eager_send(peer, stream, seg, nseg, size, tag);
    case RME_PROTO_RING:
        return rme_ring_send(peer, stream, seg, nseg, size, tag);
    default:
        return false;
    }
}

/* May a new send start before those that were posted earlier? */
static inline bool is_next(const struct rme_peer *peer, enum rme_stream stream, int32_t tag)
{
    return peer->state == RME_PEER_UP && list_empty(&peer->sends->sendq[stream]) &&
           (peer->sends->tags_blocked == 0 || stream != RME_EXPECTED ||
            rme_tag_holder(peer, tag) == NULL);
}

/* Queues a send that cannot start now. */
__attribute__((noinline)) static int queue_send(struct rme_peer *peer, enum rme_op_kind kind,
                                                const struct rme_list *list, int64_t total,
                                                int32_t tag, int ctx, void *user, rme_id *id)
{
    struct rme_op *op = new_op(peer, kind, RME_OP_QUEUED, list, total, tag, ctx, user);

    if (op == NULL)
        return -ENOMEM;
    op->size = op->total;
    op->posted = peer->sends->posted++;
    *id = op->id;
    list_add_tail(&op->link, &peer->sends->sendq[rme_op_stream(op)]);
    if (kind == RME_OP_UNEXPECTED)
        rme_request_posted(op);
    rme_peer_schedule(peer);
    rme_peer_work(peer);
    return 0;
}

/* Posts a send of `kind`; inlined for each kind, a constant. */
static inline __attribute__((always_inline)) int post_send(struct rme *rme,
                                                           struct rme_addr *addr,
                                                           const struct rme_list *list,
                                                           int32_t tag, int ctx, void *user,
                                                           rme_id *id, enum rme_op_kind kind)
{
    enum rme_stream stream = kind == RME_OP_UNEXPECTED ? RME_UNEXPECTED_STREAM : RME_EXPECTED;
    struct rme_peer *peer;
    int64_t total;
    int error = begin(rme, addr, list, ctx, &total, &peer);

    if (error != 0)
        return error;
    if (kind == RME_OP_UNEXPECTED && total > RME_UNEXPECTED_MAX) {
        rme_unlock(rme);
        return -EMSGSIZE;
    }
    *id = 0;
    if (is_next(peer, stream, tag) &&
        ((list->count == 1 && rme_eager_fits(peer, stream, (uint64_t)total) &&
          rme_eager_send_now(peer, stream, list->base[0], (uint64_t)total, tag)) ||
         send_copy(peer, stream, list, (uint64_t)total, tag))) {
        rme_unlock(rme);
        return 1;
    }
    error = queue_send(peer, kind, list, total, tag, ctx, user, id);
    rme_unlock(rme);
    return error;
}

int rme_post_send(struct rme *rme, struct rme_addr *addr, const struct rme_list *list,
                  int32_t tag, int ctx, void *user, rme_id *id)
{
    return post_send(rme, addr, list, tag, ctx, user, id, RME_OP_SEND);
}

int rme_post_unexpected(struct rme *rme, struct rme_addr *addr, const struct rme_list *list,
                        int32_t tag, int ctx, void *user, rme_id *id)
{
    return post_send(rme, addr, list, tag, ctx, user, id, RME_OP_UNEXPECTED);
}

int rme_post_recv(struct rme *rme, struct rme_addr *addr, const struct rme_list *list,
                  int32_t tag, int ctx, void *user, int64_t *actual, rme_id *id)
{
    struct rme_match *first;
    struct rme_peer *peer;
    struct rme_op *op;
    uint64_t key;
    int64_t total;
    int error = begin(rme, addr, list, ctx, &total, &peer);

    if (error != 0)
        return error;
    key = rme_match_key(peer->serial, tag);
    if (actual != NULL)
        *actual = 0;
    op = new_op(peer, RME_OP_RECV, RME_OP_POSTED, list, total, tag, ctx, user);
    if (op == NULL) {
        rme_unlock(rme);
        return -ENOMEM;
    }
    *id = op->id;
    first = rme_match_first(&rme->table, key, RME_BY_TAG);
    if (first != NULL && first->is_message) {
        rme_recv_match(rme, op, first);
    } else {
        rme_match_add(&rme->table, first, key, RME_BY_TAG, &op->match);
        if (total >= RME_EARLY_CTS_MIN)
            rme_early_cts_try(
                rme, first != NULL ? container_of(first, struct rme_op, match) : op,
                rme_ring_is_granted(peer) ? rme_ring_msg_max(rme, RME_EXPECTED, 0) : 0);
    }
    rme_peer_work(peer);
    rme_unlock(rme);
    return 0;
}

int rme_cancel(struct rme *rme, rme_id id)
{
    struct rme_op *op;

    if (!rme_enter(rme))
        return 0;
    op = rme_op_find(&rme->operations->table, id);
    if (op != NULL)
        rme_op_stop(rme, op, RME_STOP_HOST, -ECANCELED);
    rme_unlock(rme);
    return 0;
}

void rme_set_forceful_cancel(struct rme *rme)
{
    if (!rme_enter(rme))
        return;
    rme->rndv_state->forceful = true;
    rme_unlock(rme);
}
