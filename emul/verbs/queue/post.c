/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The send queue.
 *
 * A request is executed inside the post call if nothing is queued before it. A request is
 * queued if the receiver has no receive posted (RNR), the peer does not answer yet, the read
 * depth is exhausted, a fence waits for reads, or reads are delayed by a knob. Counters index
 * the ring: `exec` is the next request to start, `retire` the oldest not yet reported. So
 * completions are in order, although data of later requests overtakes a delayed read. A timer
 * continues the queue when a wait is over.
 *
 * With the link model (link.c) every request is queued. A further counter, `sent`, is ahead of
 * `exec`: requests between both are in flight and have an arrival time. Read depth and fences
 * delay sending; arrival is handled as without the model. Only the timer continues such a
 * queue.
 *
 * A place in the queue is free again when the program has polled a completion that covers it.
 * An error completes the failing request, moves the QP to the error state, and flushes the
 * rest, signalled or not.
 *
 * A message is reported to the sender before its receiver (emu_sq_report, called by the
 * executor), so that no reply arrives before the message's own completion. On a wire an
 * acknowledgement takes half a round trip and a reply a whole one, and programs rely on this
 * order. Only behind a read in flight a message is reported later, because completions keep
 * their order.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Converts min_rnr_timer codes to microseconds. */
static const uint32_t rnr_us[32] = {
    655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
    480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
    20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

#define RETRY_TICK (EMU_NSEC / 1000)
/* Limit of bytes in a chain of writes, which then takes no longer than one large write. */
#define CHAIN_BYTES (256 * 1024)

/* Reports request `i`, unless already reported during execution. */
static bool finish(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr,
                   enum ibv_wc_status status)
{
    return qp->sq_reported == i + 1 ? qp->sq_reported_ok
                                    : emu_sq_complete(d, qp, i, wr, status);
}

static uint64_t retry_bound(struct emu_dev *d, struct emu_qp *qp)
{
    uint64_t max = d->knobs.retry_max_ms * (EMU_NSEC / 1000);
    uint64_t t = qp->attr.timeout ? (UINT64_C(4096) << (qp->attr.timeout & 31)) : max;

    t *= (uint64_t)qp->attr.retry_cnt + 1;
    return t < max ? t : max;
}

/* Returns whether the retries of an unanswered request are exhausted. Time in which the peer
 * waited for a processor does not count. */
static bool retries_are_over(struct emu_dev *d, struct emu_qp *qp)
{
    uint64_t now = emu_now();
    bool had_turn = qp->peer == NULL || emu_peer_had_turn(qp->peer, &qp->retry_ran);

    if (!qp->retry_until)
        qp->retry_until = now + retry_bound(d, qp);
    else if (!had_turn)
        qp->retry_until += now - qp->retry_seen;
    qp->retry_seen = now;
    return now >= qp->retry_until;
}

/* Executes a request, unless a fault is injected into its transmission: a loss, of which the
 * sender of a datagram does not learn, or a receiver that is not ready. */
static enum exec_result transmit(struct emu_dev *d, struct emu_qp *qp, uint64_t i,
                                 const struct emu_wr *wr, enum ibv_wc_status *status,
                                 uint32_t *rnr_timer)
{
    bool local = wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV;
    bool answered = qp->qp.qp_type == IBV_QPT_RC;

    if (!emul_nfaults || local)
        return emu_exec(d, qp, i, wr, qp->sq_retire == i, status, rnr_timer);
    if (emu_call(CALL_lost)) {
        *status = IBV_WC_SUCCESS;
        emu_count(COUNT_datagrams_lost, !answered);
        return answered ? EXEC_NO_ANSWER : EXEC_DONE;
    }
    bool receives = wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_READ &&
                    !emu_is_atomic(wr->opcode);
    if (answered && receives && emu_call(CALL_not_ready)) {
        *rnr_timer =
            qp->peer != NULL ? shm_qp(qp->peer->seg, qp->attr.dest_qp_num)->min_rnr_timer : 1;
        return EXEC_RNR;
    }
    return emu_exec(d, qp, i, wr, qp->sq_retire == i, status, rnr_timer);
}

/* Tries to execute; true when finished, with a status. */
static bool attempt(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr,
                    enum ibv_wc_status *status)
{
    uint32_t timer = 0;

    switch (transmit(d, qp, i, wr, status, &timer)) {
    case EXEC_DONE:
        qp->rnr_left = qp->attr.rnr_retry;
        qp->rnr_due = 0;
        qp->retry_until = 0;
        return true;
    case EXEC_RNR:
        emu_count(COUNT_rnr_events, 1);
        qp->retry_until = 0; /* the peer answers */
        if (qp->rnr_left == 0) {
            *status = IBV_WC_RNR_RETRY_EXC_ERR;
            return true;
        }
        if (qp->rnr_left < 7)
            qp->rnr_left--;
        qp->rnr_due = emu_now() + rnr_us[timer & 31] * UINT64_C(1000);
        return false;
    case EXEC_NO_ANSWER:
        emu_count(COUNT_retries, 1);
        qp->rnr_due = 0;
        if (retries_are_over(d, qp)) {
            *status = IBV_WC_RETRY_EXC_ERR;
            return true;
        }
        return false;
    }
    return false;
}

enum start { START_DONE, START_READING, START_BLOCKED };

/* Starts request `i`, at `exec`, if permitted now. */
static enum start start(struct emu_dev *d, struct emu_qp *qp, uint64_t i,
                        const struct emu_wr *wr, bool first, enum ibv_wc_status *status)
{
    if (qp->rnr_due && emu_now() < qp->rnr_due)
        return START_BLOCKED;
    if ((wr->flags & IBV_SEND_FENCE) && qp->reads_out && !emu_link_on(d))
        return START_BLOCKED;
    if (first && emu_call(CALL_completion)) {
        *status = IBV_WC_RETRY_EXC_ERR;
        return START_DONE;
    }
    if (first && emul_nfaults && emu_call(CALL_late)) {
        qp->rnr_due = emu_now() + d->knobs.late_us * 1000;
        return START_BLOCKED;
    }
    if ((wr->opcode == IBV_WR_RDMA_READ || emu_is_atomic(wr->opcode)) &&
        qp->attr.max_rd_atomic == 0) {
        *status = IBV_WC_LOC_QP_OP_ERR;
        return START_DONE;
    }
    if (wr->opcode == IBV_WR_RDMA_READ) {
        if (emu_link_on(d))
            return START_READING;
        if (qp->reads_out >= qp->attr.max_rd_atomic)
            return START_BLOCKED;
        if (d->knobs.read_delay_us)
            return START_READING;
    }
    return attempt(d, qp, i, wr, status) ? START_DONE : START_BLOCKED;
}

/* Copies a request, whose lists belong to the caller, into the queue. */
static int keep(struct emu_qp *qp, uint64_t i, const struct emu_wr *wr)
{
    struct emu_sqe *e = emu_sqe(qp, i);
    struct ibv_sge *sge = qp->sq_sge + (i & qp->sq_mask) * qp->init.cap.max_send_sge;

    e->wr = *wr;
    e->state = SQE_QUEUED;
    e->started = false;
    e->inl = NULL;
    if ((wr->flags & IBV_SEND_INLINE) && wr->length) {
        unsigned char *to = e->inl = malloc(wr->length);
        if (to == NULL)
            return ENOMEM;
        if (wr->inl != NULL)
            memcpy(to, wr->inl, wr->length);
        for (uint32_t k = 0; wr->inl == NULL && k < wr->nsge; k++) {
            memcpy(to, (void *)(uintptr_t)wr->sge[k].addr, wr->sge[k].length);
            to += wr->sge[k].length;
        }
        e->wr.inl = e->inl;
    } else if (wr->nsge) {
        memcpy(sge, wr->sge, wr->nsge * sizeof(*sge));
    }
    e->wr.sge = sge;
    return 0;
}

/* Fetches the data of delayed reads that are due, with the link model at `due`; `force`: of
 * all delayed reads. */
static void fetch_reads(struct emu_dev *d, struct emu_qp *qp, bool force, uint64_t due)
{
    uint64_t now = emu_now(), n = qp->sq_exec - qp->sq_retire;
    uint64_t until = emu_link_on(d) ? due : now;

    for (uint64_t k = 0; k < n && qp->reads_out; k++) {
        uint64_t i = d->knobs.read_reverse ? qp->sq_exec - 1 - k : qp->sq_retire + k;
        struct emu_sqe *e = emu_sqe(qp, i);
        uint32_t timer;
        if (e->state != SQE_READING || (!force && e->due > until))
            continue;
        if (emu_exec(d, qp, i, &e->wr, false, &e->status, &timer) != EXEC_DONE) {
            if (!retries_are_over(d, qp) && !force) {
                e->due = now + RETRY_TICK;
                continue;
            }
            e->status = IBV_WC_RETRY_EXC_ERR;
        }
        e->state = SQE_DONE;
        qp->reads_out--;
    }
}

/* Reports finished requests in order; false if one has failed. */
static bool retire(struct emu_dev *d, struct emu_qp *qp)
{
    while (qp->sq_retire < qp->sq_exec) {
        struct emu_sqe *e = emu_sqe(qp, qp->sq_retire);
        if (e->state != SQE_DONE)
            break;
        uint64_t i = qp->sq_retire++;
        bool ok = finish(d, qp, i, &e->wr, e->status) && e->status == IBV_WC_SUCCESS;
        emu_sq_release(e);
        if (!ok)
            return false;
    }
    return true;
}

/* Returns whether the request at `exec` was tried and waits for its receiver. */
static bool is_tried(struct emu_qp *qp)
{
    return qp->sq_exec < qp->sq_tail && emu_sqe(qp, qp->sq_exec)->started &&
           (qp->rnr_due || qp->retry_until);
}

static void set_timer(struct emu_dev *d, struct emu_qp *qp)
{
    uint64_t due = UINT64_MAX, now = emu_now();

    for (uint64_t i = qp->sq_retire; qp->reads_out && i < qp->sq_exec; i++)
        if (emu_sqe(qp, i)->state == SQE_READING && emu_sqe(qp, i)->due < due)
            due = emu_sqe(qp, i)->due;
    if (qp->sq_exec < qp->sq_sent && !qp->rnr_due && !qp->retry_until &&
        emu_sqe(qp, qp->sq_exec)->due < due)
        due = emu_sqe(qp, qp->sq_exec)->due;
    if (is_tried(qp) || (qp->sq_exec < qp->sq_tail && qp->qp.state == IBV_QPS_RTS)) {
        if (qp->rnr_due && qp->rnr_due < due)
            due = qp->rnr_due; /* a timer already due runs immediately */
        if (qp->retry_until && now + RETRY_TICK < due)
            due = now + RETRY_TICK;
    }
    if (due != UINT64_MAX)
        emu_timer_arm(d, &qp->timer, due);
}

/* Link model: sends what may leave. A fence waits for reads, a read for the peer's depth. */
static void leave(struct emu_dev *d, struct emu_qp *qp)
{
    uint64_t now = emu_now();

    for (; qp->qp.state == IBV_QPS_RTS && qp->sq_sent < qp->sq_tail; qp->sq_sent++) {
        struct emu_sqe *e = emu_sqe(qp, qp->sq_sent);
        bool read = e->wr.opcode == IBV_WR_RDMA_READ;
        bool local = e->wr.opcode == IBV_WR_BIND_MW || e->wr.opcode == IBV_WR_LOCAL_INV;
        uint32_t reads = qp->reads_out + qp->reads_sent;
        if (reads &&
            ((e->wr.flags & IBV_SEND_FENCE) || (read && reads >= qp->attr.max_rd_atomic)))
            break;
        qp->reads_sent += read;
        e->due = local ? now
                       : emu_link_leave(d, d->seg, qp->s->device, now, read ? 0 : e->wr.length);
    }
}

/* Returns the time at which a read that starts now has its data; link model: its request has
 * arrived. */
static uint64_t read_due(struct emu_dev *d, struct emu_qp *qp, const struct emu_sqe *e)
{
    uint64_t delay = d->knobs.read_delay_us * 1000;

    if (!emu_link_on(d))
        return emu_now() + delay;
    struct emu_peer *from = qp->peer;
    if (from == NULL)
        return e->due + delay;
    uint8_t device = shm_qp(from->seg, qp->attr.dest_qp_num)->device;
    return emu_link_leave(d, from->seg, device, e->due, e->wr.length) + delay;
}

/* Returns whether the next request may start. A draining queue starts no new requests. */
static bool may_start(const struct emu_dev *d, struct emu_qp *qp, uint64_t due)
{
    if (emu_link_on(d))
        return qp->sq_exec < qp->sq_sent && emu_sqe(qp, qp->sq_exec)->due <= due;
    return is_tried(qp) || (qp->qp.state == IBV_QPS_RTS && qp->sq_exec < qp->sq_tail);
}

bool emu_sq_draining(struct emu_qp *qp)
{
    return qp->qp.state == IBV_QPS_SQD &&
           (qp->sq_retire < qp->sq_exec || qp->sq_exec < qp->sq_sent || is_tried(qp));
}

void emu_sq_progress(struct emu_dev *d, struct emu_qp *qp, uint64_t due)
{
    bool ok = true;

    if (qp->qp.state != IBV_QPS_RTS && qp->qp.state != IBV_QPS_SQD)
        return;
    if (qp->reads_out) {
        fetch_reads(d, qp, false, due);
        ok = retire(d, qp);
    }
    while (ok && may_start(d, qp, due)) {
        struct emu_sqe *e = emu_sqe(qp, qp->sq_exec);
        enum start s = start(d, qp, qp->sq_exec, &e->wr, !e->started, &e->status);
        e->started = true;
        if (s == START_BLOCKED)
            break;
        qp->sq_exec++;
        if (e->wr.opcode == IBV_WR_RDMA_READ && qp->reads_sent)
            qp->reads_sent--;
        if (s == START_READING) {
            e->state = SQE_READING;
            e->due = read_due(d, qp, e);
            qp->reads_out++;
            continue;
        }
        e->state = SQE_DONE;
        if (e->status != IBV_WC_SUCCESS) /* requests before the failed one complete first */
            fetch_reads(d, qp, true, due);
        ok = retire(d, qp);
    }
    if (!ok) {
        emu_qp_to_error(d, qp, -1);
        return;
    }
    if (emu_link_on(d))
        leave(d, qp);
    if (qp->drain_asked && qp->qp.state == IBV_QPS_SQD && !emu_sq_draining(qp)) {
        qp->drain_asked = false;
        emu_async_qp(qp, IBV_EVENT_SQ_DRAINED);
    }
    set_timer(d, qp);
}

void emu_sq_timer(struct emu_timer *t)
{
    struct emu_qp *qp = (struct emu_qp *)((char *)t - offsetof(struct emu_qp, timer));
    struct emu_dev *d = emu_dev_peek();

    /* A thread that builds requests (wr_api.c) holds the lock until they are posted, and may be
     * the polling thread that runs this timer. */
    if (pthread_mutex_trylock(&qp->sq_lock)) {
        if (d != NULL)
            emu_timer_again(d, t);
        return;
    }
    if (d != NULL) {
        /* no further than the timer's time, which may have changed meanwhile */
        uint64_t now = emu_link_on(d) ? emu_now() : 0;
        emu_sq_progress(d, qp, t->due < now ? t->due : now);
    }
    pthread_mutex_unlock(&qp->sq_lock);
}

/* Returns whether a QP type with fewer operations than RC supports the request. Not inlined,
 * like the following functions of this kind, to keep the RC path short. */
__attribute__((noinline)) static bool is_less(enum ibv_qp_type type, const struct emu_wr *wr)
{
    switch (wr->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        return type == IBV_QPT_UC || wr->av.where != AV_NONE;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return type == IBV_QPT_UC;
    default:
        return false;
    }
}

int emu_sq_check(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr)
{
    bool inl = wr->flags & IBV_SEND_INLINE;

    if (qp->qp.state != IBV_QPS_RTS && qp->qp.state != IBV_QPS_SQD &&
        qp->qp.state != IBV_QPS_ERR)
        return EINVAL;
    if (wr->nsge > qp->init.cap.max_send_sge && wr->inl == NULL)
        return EINVAL;
    if (qp->qp.qp_type != IBV_QPT_RC && !is_less(qp->qp.qp_type, wr))
        return EINVAL;
    switch (wr->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return inl && wr->length > qp->init.cap.max_inline_data ? EINVAL : 0;
    case IBV_WR_SEND_WITH_INV:
        if (!d->knobs.max_mw)
            return EOPNOTSUPP;
        return inl && wr->length > qp->init.cap.max_inline_data ? EINVAL : 0;
    case IBV_WR_RDMA_READ:
        return inl ? EINVAL : 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return inl || wr->length < 8 || wr->raddr % 8 ? EINVAL : 0;
    case IBV_WR_BIND_MW:
    case IBV_WR_LOCAL_INV:
        if (!d->knobs.max_mw)
            return EOPNOTSUPP;
        return inl || wr->nsge ? EINVAL : 0;
    default:
        return EOPNOTSUPP;
    }
}

static void count_wr(const struct emu_qp *qp, const struct emu_wr *wr)
{
    if (__builtin_expect(emu_tracing, false))
        emu_trace_request(qp->qp.qp_num, wr->opcode, wr->length, wr->wr_id);
    switch (wr->opcode) {
    case IBV_WR_RDMA_WRITE:
        emu_count(COUNT_wr_write, 1);
        break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        emu_count(COUNT_wr_write_imm, 1);
        break;
    case IBV_WR_RDMA_READ:
        emu_count(COUNT_wr_read, 1);
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        emu_count(COUNT_wr_atomic, 1);
        break;
    case IBV_WR_BIND_MW:
        emu_count(COUNT_wr_bind, 1);
        break;
    case IBV_WR_LOCAL_INV:
        emu_count(COUNT_wr_local_inv, 1);
        break;
    default:
        emu_count(COUNT_wr_send, 1);
        break;
    }
    if (wr->flags & IBV_SEND_SIGNALED)
        emu_count(COUNT_wr_signalled, 1);
    if (wr->flags & IBV_SEND_INLINE)
        emu_count(COUNT_wr_inline, 1);
}

int emu_sq_post(struct emu_dev *d, struct emu_qp *qp, struct emu_wr *wr)
{
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    uint64_t i = qp->sq_tail;
    bool started = false;

    if (i - atomic_load(&qp->sq_freed) >= qp->init.cap.max_send_wr)
        return ENOMEM;
    if (qp->init.sq_sig_all)
        wr->flags |= IBV_SEND_SIGNALED;
    if (emu_is_atomic(wr->opcode))
        wr->length = 8; /* more is never used */
    count_wr(qp, wr);
    emu_count_port(qp->source, PORT_COUNT_requests, 1);
    if (qp->qp.state == IBV_QPS_ERR || atomic_load(&qp->s->state) == IBV_QPS_ERR) {
        if (qp->qp.state != IBV_QPS_ERR)
            emu_qp_to_error(d, qp, -1); /* failed by a peer; the event follows by the inbox */
        qp->sq_tail = qp->sq_exec = qp->sq_retire = qp->sq_sent = i + 1;
        emu_sq_complete(d, qp, i, wr, IBV_WC_WR_FLUSH_ERR);
        return 0;
    }
    if (qp->sq_retire == i && qp->qp.state == IBV_QPS_RTS && !emu_link_on(d)) {
        enum start s = start(d, qp, i, wr, true, &status);
        started = true;
        if (s == START_DONE) {
            qp->sq_tail = qp->sq_exec = qp->sq_retire = i + 1;
            if (!finish(d, qp, i, wr, status) || status != IBV_WC_SUCCESS)
                emu_qp_to_error(d, qp, -1);
            return 0;
        }
    }
    int err = keep(qp, i, wr);
    if (err)
        return err;
    qp->sq_tail++;
    emu_sqe(qp, i)->started = started;
    emu_sq_progress(d, qp, 0);
    return 0;
}

static void normalise(const struct ibv_send_wr *wr, struct emu_wr *w)
{
    w->wr_id = wr->wr_id;
    w->raddr = wr->wr.rdma.remote_addr;
    w->rkey = wr->wr.rdma.rkey;
    w->sge = wr->sg_list;
    w->inl = NULL;
    w->nsge = (uint32_t)wr->num_sge;
    w->length = 0;
    w->imm = wr->imm_data;
    w->flags = wr->send_flags;
    w->opcode = wr->opcode;
}

int emu_mw_request(struct emu_wr *w, const struct ibv_mw *mw, uint32_t rkey,
                   const struct ibv_mw_bind_info *info)
{
    if (mw == NULL ||
        (info->length && info->mr == NULL)) /* adapters' libraries dereference the pointer */
        return EINVAL;
    w->raddr = info->addr;
    w->rkey = rkey;
    w->bind.length = info->length;
    w->bind.access = info->mw_access_flags;
    w->bind.mw_key = mw->rkey & ~EMU_RKEY_BIT;
    w->bind.mr_key = info->mr != NULL ? info->mr->lkey : 0;
    w->length = 0;
    return 0;
}

static int bind_request(struct emu_wr *w, const struct ibv_send_wr *wr)
{
    return emu_mw_request(w, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
}

static void atomic_request(struct emu_wr *w, const struct ibv_send_wr *wr)
{
    w->raddr = wr->wr.atomic.remote_addr;
    w->rkey = wr->wr.atomic.rkey;
    w->atomic.compare_add = wr->wr.atomic.compare_add;
    w->atomic.swap = wr->wr.atomic.swap;
}

/* Copies inline data when posted, as providers do, so that unmapped memory affects the sender
 * only. Returns 0 or a positive errno. Data above the limit is refused later. */
static int gather_inline(struct emu_qp *qp, struct emu_wr *w)
{
    struct iovec from[EMU_MAX_SGE];

    if (!w->length || w->length > qp->init.cap.max_inline_data ||
        w->nsge > qp->init.cap.max_send_sge)
        return 0;
    if (qp->gathered == NULL && (qp->gathered = malloc(qp->init.cap.max_inline_data)) == NULL)
        return ENOMEM;
    for (uint32_t i = 0; i < w->nsge; i++)
        from[i] = (struct iovec){(void *)(uintptr_t)w->sge[i].addr, w->sge[i].length};
    w->inl = qp->gathered;
    return emu_copy_own(qp->gathered, from, w->nsge, w->length);
}

/* Fills in the fields of a request for QP types other than RC; returns 0 or a positive errno.
 * Inline data of RC requests is copied directly to the peer. */
__attribute__((noinline)) static int other_request(struct emu_qp *qp, struct emu_wr *w,
                                                   const struct ibv_send_wr *wr)
{
    int err = w->flags & IBV_SEND_INLINE ? gather_inline(qp, w) : 0;

    if (err)
        return err;
    if (qp->qp.qp_type == IBV_QPT_UD)
        return emu_ah_fill(w, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
    return 0;
}

/* Returns the length of a request, or -1 above the port's message limit. */
static int64_t total_length(const struct emu_wr *w)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < w->nsge; i++)
        total += w->sge[i].length;
    return total <= (1u << 30) ? (int64_t)total : -1;
}

/* Returns whether the next request executes immediately and needs no individual treatment. */
static bool is_free(const struct emu_dev *d, const struct emu_qp *qp)
{
    return qp->qp.qp_type == IBV_QPT_RC && qp->qp.state == IBV_QPS_RTS &&
           atomic_load(&qp->s->state) == IBV_QPS_RTS && qp->sq_retire == qp->sq_tail &&
           !qp->rnr_due && !emu_link_on(d) && !d->knobs.still_from && !emul_nfaults;
}

/* Posts the writes at the front of a list together; returns their number. 0: the first is left
 * to emu_sq_post(), which reports any error. */
static unsigned post_writes(struct emu_dev *d, struct emu_qp *qp, const struct ibv_send_wr *wr)
{
    struct emu_wr w[EMU_CHAIN_MAX];
    uint64_t room = qp->init.cap.max_send_wr - (qp->sq_tail - atomic_load(&qp->sq_freed));
    uint64_t total = 0;
    unsigned n = 0;
    bool ok = true;

    if (!is_free(d, qp))
        return 0;
    for (;
         wr != NULL && wr->opcode == IBV_WR_RDMA_WRITE && n < d->knobs.write_chain && n < room;
         wr = wr->next, n++) {
        int64_t length = -1;
        normalise(wr, &w[n]);
        if (wr->num_sge >= 0 && w[n].nsge <= EMU_MAX_SGE &&
            !(w[n].flags & (IBV_SEND_INLINE | IBV_SEND_FENCE)))
            length = total_length(&w[n]);
        if (length < 0 || total + (uint64_t)length > CHAIN_BYTES)
            break;
        w[n].length = (uint32_t)length;
        total += w[n].length;
        w[n].av.where = AV_NONE;
        if (emu_sq_check(d, qp, &w[n]))
            break;
        if (qp->init.sq_sig_all)
            w[n].flags |= IBV_SEND_SIGNALED;
    }
    if (n < 2 || !emu_exec_writes(d, qp, w, n))
        return 0;
    qp->rnr_left = qp->attr.rnr_retry;
    qp->retry_until = 0;
    emu_count(COUNT_chained, n);
    emu_count_port(qp->source, PORT_COUNT_requests, n);
    for (unsigned k = 0; k < n; k++) {
        uint64_t i = qp->sq_tail;
        qp->sq_tail = qp->sq_exec = qp->sq_retire = i + 1;
        count_wr(qp, &w[k]);
        emu_call(CALL_completion);
        ok = ok && emu_sq_complete(d, qp, i, &w[k], IBV_WC_SUCCESS);
    }
    if (!ok)
        emu_qp_to_error(d, qp, -1);
    return n;
}

int emu_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    struct emu_dev *d = emu_dev_peek();
    int err = 0;

    if (emu_call(CALL_ibv_post_send) || d == NULL) {
        *bad = wr;
        return ENOMEM;
    }
    emu_count(COUNT_doorbells, 1);
    emu_sq_lock(qp);
    for (; wr; wr = wr->next) {
        struct emu_wr w;
        int64_t length = -1;
        if (wr->opcode == IBV_WR_RDMA_WRITE && wr->next != NULL &&
            wr->next->opcode == IBV_WR_RDMA_WRITE) {
            unsigned n = post_writes(d, qp, wr);
            for (; n > 1; n--)
                wr = wr->next;
            if (n == 1)
                continue;
        }
        normalise(wr, &w);
        err = wr->num_sge < 0 || w.nsge > EMU_MAX_SGE ? EINVAL : 0;
        if (!err)
            length = total_length(&w);
        if (length < 0)
            err = EINVAL;
        w.length = (uint32_t)length;
        w.av.where = AV_NONE;
        if (!err && ibqp->qp_type != IBV_QPT_RC)
            err = other_request(qp, &w, wr);
        else if (emu_is_atomic(w.opcode))
            atomic_request(&w, wr);
        else if (!err && w.opcode == IBV_WR_BIND_MW)
            err = bind_request(&w, wr);
        if (!err)
            err = emu_sq_check(d, qp, &w);
        if (!err)
            err = emu_sq_post(d, qp, &w);
        if (err) {
            *bad = wr;
            break;
        }
    }
    pthread_mutex_unlock(&qp->sq_lock);
    return err;
}
