/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Objects inherited by a forked child. Their calls fail with EIO. Calls that create, modify and
 * destroy check the object's context (emu_dev_for). Data path calls would be slowed down by the
 * check, so the functions in the parent's contexts are replaced in the child.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    (void)cq, (void)n, (void)wc;
    errno = EIO;
    return -1;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    (void)cq, (void)solicited_only;
    return EIO;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp;
    *bad = wr;
    return EIO;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp;
    *bad = wr;
    return EIO;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)srq;
    *bad = wr;
    return EIO;
}

void emu_ctx_forked(struct emu_dev *d)
{
    for (struct emu_ctx *c = d->contexts; c; c = c->next) {
        struct ibv_context_ops *ops = &c->v.context.ops;
        ops->poll_cq = poll_cq;
        ops->req_notify_cq = req_notify_cq;
        ops->post_send = post_send;
        ops->post_recv = post_recv;
        ops->post_srq_recv = post_srq_recv;
    }
}
