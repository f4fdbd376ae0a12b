/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended CQs: the iterator, which visits one completion at a time, and timestamps.
 *
 * One thread at a time iterates over a CQ, from a successful start to the end; other threads
 * wait in start.
 *
 * The device clock is CLOCK_MONOTONIC in nanoseconds, equal in all processes. A poster stamps
 * completions if the CQ requests it. The time of day is computed on demand.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <time.h>

static int ex_next(struct ibv_cq_ex *ex)
{
    struct emu_cq *cq = (struct emu_cq *)ex;
    int n = ibv_poll_cq(&cq->cq, 1, &cq->ex_wc);

    if (n < 0)
        return EIO;
    if (n == 0)
        return ENOENT;
    ex->wr_id = cq->ex_wc.wr_id;
    ex->status = cq->ex_wc.status;
    return 0;
}
static int ex_start(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    struct emu_cq *cq = (struct emu_cq *)ex;

    if (attr->comp_mask)
        return EINVAL;
    pthread_mutex_lock(&cq->ex_turn);
    int err = ex_next(ex);
    if (err) /* after a failed start the caller does not call end */
        pthread_mutex_unlock(&cq->ex_turn);
    return err;
}
static void ex_end(struct ibv_cq_ex *ex)
{
    pthread_mutex_unlock(&((struct emu_cq *)ex)->ex_turn);
}
/* Iterator of a single-threaded CQ, without the lock. */
static int ex_start_alone(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    return attr->comp_mask ? EINVAL : ex_next(ex);
}
static void ex_end_alone(struct ibv_cq_ex *ex)
{
    (void)ex;
}
static enum ibv_wc_opcode ex_opcode(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.opcode;
}
static uint32_t ex_vendor_err(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.vendor_err;
}
static uint32_t ex_byte_len(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.byte_len;
}
static __be32 ex_imm(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.imm_data;
}
static uint32_t ex_qp_num(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.qp_num;
}
static uint32_t ex_src_qp(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.src_qp;
}
static unsigned int ex_wc_flags(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.wc_flags;
}
static uint32_t ex_slid(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.slid;
}
static uint64_t ex_time(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_time;
}
static uint64_t ex_wallclock(struct ibv_cq_ex *ex)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * EMU_NSEC + (uint64_t)ts.tv_nsec - (emu_now() - ex_time(ex));
}
static uint8_t ex_sl(struct ibv_cq_ex *ex)
{
    return ((struct emu_cq *)ex)->ex_wc.sl;
}
static uint8_t ex_zero(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

#define STAMPS                                                                                 \
    (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

struct ibv_cq_ex *emu_create_cq_ex(struct ibv_context *context,
                                   struct ibv_cq_init_attr_ex *attr)
{
    const uint64_t known = IBV_WC_STANDARD_FLAGS | STAMPS;
    const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;

    if ((attr->wc_flags & ~known) ||
        ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~flags)) ||
        (attr->comp_mask &
         ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct emu_cq *cq = emu_cq_create(context, (int)attr->cqe, attr->cq_context, attr->channel,
                                      (int)attr->comp_vector, (attr->wc_flags & STAMPS) != 0);
    if (cq == NULL)
        return NULL;
    struct ibv_cq_ex *ex = &cq->ex;
    bool alone = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
                 (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    ex->start_poll = alone ? ex_start_alone : ex_start;
    ex->next_poll = ex_next;
    ex->end_poll = alone ? ex_end_alone : ex_end;
    ex->read_opcode = ex_opcode;
    ex->read_vendor_err = ex_vendor_err;
    ex->read_byte_len = ex_byte_len;
    ex->read_imm_data = ex_imm;
    ex->read_qp_num = ex_qp_num;
    ex->read_src_qp = ex_src_qp;
    ex->read_wc_flags = ex_wc_flags;
    ex->read_slid = ex_slid;
    ex->read_sl = ex_sl;
    ex->read_completion_ts = ex_time;
    ex->read_completion_wallclock_ns = ex_wallclock;
    ex->read_dlid_path_bits = ex_zero;
    return ex;
}

int emu_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
    uint32_t wanted = values->comp_mask;
    (void)context;

    values->comp_mask = 0;
    if (wanted & IBV_VALUES_MASK_RAW_CLOCK) {
        uint64_t now = emu_now();
        values->raw_clock.tv_sec = (time_t)(now / EMU_NSEC);
        values->raw_clock.tv_nsec = (long)(now % EMU_NSEC);
        values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    }
    return 0;
}
