/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Work requests that bind a memory window; executed by mw.c. */
#include "emul/verbs/queue/queue.h"

#include <errno.h>

int emu_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    struct emu_dev *d = emu_dev_for(ibqp->context);
    uint32_t rkey = ibv_inc_rkey(mw->rkey);
    struct emu_wr w = {
        .wr_id = bind->wr_id, .flags = bind->send_flags, .opcode = IBV_WR_BIND_MW};

    if (emu_call(CALL_ibv_bind_mw))
        return ENOMEM;
    if (!d)
        return EIO;
    int err = emu_mw_request(&w, mw, rkey, &bind->bind_info);
    if (!err && (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED))
        err = EINVAL; /* type 2 only */
    if (err)
        return err;
    emu_count(COUNT_doorbells, 1);
    emu_sq_lock(qp);
    err = emu_sq_check(d, qp, &w);
    if (!err)
        err = emu_sq_post(d, qp, &w);
    pthread_mutex_unlock(&qp->sq_lock);
    if (!err)
        mw->rkey = rkey;
    return err;
}
