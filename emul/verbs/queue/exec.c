/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Execution of one work request: requester and responder, both run by the poster.
 *
 * The requester's half checks the local segments. The responder's half works on the peer's
 * segment as the peer's device would: connection, access flags and rkey are checked, a receive
 * is taken, the data is moved, and a completion is pushed. The passive process does not run.
 *
 * The word `busy` excludes a poster and the owner of the responding QP, which may fail, reset
 * or destroy the QP. The poster stores its token before it checks the QP's state; the owner
 * changes the state before it checks the token. An owner waits for a running poster. From a
 * stopped or dead poster it revokes the token and flushes the receive that was taken (`taken`).
 * If such a poster continues later, its completion carries the revoked token and is dropped
 * when polled. So each receive is reported once.
 *
 * A QP's own receive queue is flushed in one step, from the place that the revoked poster was
 * about to take (`taking`), whether or not the receive was taken. An SRQ remains in use, so one
 * receive is lost if a poster stops permanently between taking and recording it.
 *
 * A UD QP has many posters. A poster waits while another executes, for microseconds; behind a
 * stopped one the datagram is lost. The sender does not notice lost datagrams, nor a receive
 * that is too small, which fails the receiver's QP. The owner learns of UD posters by a
 * greeting before their first datagram, and revokes the token of one that dies.
 *
 * A UC QP has one poster. Its sender does not notice failures and does not wait: a message
 * without a receive, peer or access right is lost, and the connection continues.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define MAX_MEMBERS 256u /* most processes reached by a multicast */
#define STILL_HEAD  64u  /* bytes that EMUVERBS_STILL_FROM still moves */
/* Rights that let later requests access the memory: messages for such memory are not
 * bounced. */
#define REACHED                                                                                \
    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |             \
     IBV_ACCESS_MW_BIND)

struct run {
    struct emu_dev *d;
    struct emu_qp *qp;
    const struct emu_wr *wr;
    struct emu_peer *peer;
    struct shm_qp *rs; /* responder */
    uint32_t qpn;      /* responder's number */
    uint32_t length;   /* all bytes that the receiver gets */
    uint64_t token;
    uint64_t index; /* of the request */
    bool demand;    /* some local memory is on demand */
    bool datagram, told, oldest;
    struct iovec local[EMU_MAX_SGE + 1];
    unsigned nlocal;
};

/* Releases the token; false if the owner has revoked it. */
static bool leave(struct run *r)
{
    uint64_t expect = r->token;

    return atomic_compare_exchange_strong(&r->rs->busy, &expect, 0);
}

static uint64_t new_token(struct emu_dev *d)
{
    uint64_t serial = atomic_fetch_add_explicit(&d->seg->serial, 1, memory_order_relaxed);

    return RX_TOKEN(serial + 1, d->slot);
}

static bool receives(uint32_t state)
{
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

/* Returns whether the responder expects requests of this QP. */
static inline bool expects(const struct run *r)
{
    const struct shm_qp *rs = r->rs;
    const struct emu_qp *qp = r->qp;
    uint32_t state = atomic_load(&rs->state);

    return atomic_load(&rs->user.qpn) == r->qpn && rs->type == qp->qp.qp_type &&
           rs->dest_qpn == qp->qp.qp_num && rs->dest_inc == r->d->self.incarnation &&
           rs->gid_type == qp->s->gid_type && /* RoCE v1 and v2 are different packets */
           receives(state);
}

/* Takes the responder's token; false if the peer gives no answer. */
static bool enter(struct run *r)
{
    struct emu_dev *d = r->d;
    struct emu_peer *p = r->peer;
    uint64_t idle = 0;

    if (p == NULL || !emu_peer_answers(p) || d->knobs.silent)
        return false;
    r->qpn = r->qp->attr.dest_qp_num;
    r->rs = shm_qp(p->seg, r->qpn);
    r->token = new_token(d);
    if (!atomic_compare_exchange_strong(&r->rs->busy, &idle, r->token))
        return false;
    if (expects(r))
        return true;
    leave(r);
    return false;
}

uint64_t emu_exec_enter(struct emu_dev *d, struct emu_qp *qp, struct shm_qp **responder)
{
    struct run r = {.d = d, .qp = qp, .peer = qp->peer};

    if (!enter(&r))
        return 0;
    *responder = r.rs;
    return r.token;
}

void emu_exec_leave(struct shm_qp *responder, uint64_t token)
{
    atomic_compare_exchange_strong(&responder->busy, &token, 0);
}

/* Fails the responder's QP, notifies its owner to flush it, and leaves. */
static void refuse(struct run *r, enum ibv_event_type event)
{
    uint32_t qpn = r->qpn, state = atomic_load(&r->rs->state);

    if (atomic_load(&r->rs->busy) == r->token) {
        atomic_store(&r->rs->why, (uint8_t)event);
        if (receives(state))
            atomic_compare_exchange_strong(&r->rs->state, &state, IBV_QPS_ERR);
    }
    if (!leave(r))
        return;
    emu_peer_send(r->d, r->peer, INBOX_QP_ERROR, qpn & (EMU_MAX_QPS - 1), (uint32_t)event, &qpn,
                  sizeof(qpn));
}

/* Denies the request, and fails an acknowledged responder's QP. Leaves. */
static enum exec_result deny(struct run *r, enum ibv_event_type event,
                             enum ibv_wc_status *status)
{
    *status = event == IBV_EVENT_QP_ACCESS_ERR ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR;
    if (r->rs->type == IBV_QPT_UC)
        leave(r);
    else
        refuse(r, event);
    return EXEC_DONE;
}

/*
 * Completes the receive that was taken, and leaves; false on failure. The requester's
 * completion is pushed first, because the receiver may answer immediately. From then on the
 * request has succeeded, whether or not the receiver fails afterwards, as after an
 * acknowledgement by its device.
 */
static bool complete_receive(struct run *r, struct shm_cqe *c, bool fatal)
{
    uint32_t cq = r->rs->recv_cq;
    uint64_t token = r->token;
    bool est = false;
    bool pushed = false;

    c->token = token;
    c->qpn = r->qpn;
    c->src_qp = r->qp->qp.qp_num;
    c->source = r->datagram ? r->wr->av.source : r->qp->source;
    c->srq = r->rs->srq != 0;
    if (atomic_load(&r->rs->busy) == token) {
        if (r->oldest && !r->told && !fatal && !r->d->knobs.send_late_us &&
            !emu_step_watched(EMU_STEP_sent)) {
            emu_sq_report(r->d, r->qp, r->index, r->wr);
            r->told = true;
        }
        pushed = emu_cq_push(r->d, r->peer, cq, c);
    }
    atomic_compare_exchange_strong(&r->rs->taken, &token, token | RX_DONE);
    if (!pushed && c->bounce)
        shm_bounce_put(r->peer->seg, c->bounce - 1);
    if (!pushed || fatal) {
        refuse(r, pushed ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_FATAL);
    } else {
        est = !r->datagram &&
              atomic_load_explicit(&r->rs->state, memory_order_relaxed) == IBV_QPS_RTR &&
              !atomic_exchange(&r->rs->comm_est, 1);
        leave(r);
    }
    emu_cq_notify(r->d, r->peer, cq,
                  (r->wr->flags & IBV_SEND_SOLICITED) || c->status != IBV_WC_SUCCESS);
    emu_step(EMU_STEP_sent);
    if (r->d->knobs.send_late_us)
        usleep((useconds_t)r->d->knobs.send_late_us);
    if (est)
        emu_peer_send(r->d, r->peer, INBOX_COMM_EST, c->qpn & (EMU_MAX_QPS - 1),
                      IBV_EVENT_COMM_EST, &c->qpn, sizeof(c->qpn));
    return pushed;
}

/* Notifies the owner of an SRQ if few receives are left. */
static void report_limit(struct run *r, struct shm_rq *rq, uint32_t index)
{
    uint32_t limit = atomic_load_explicit(&rq->limit, memory_order_relaxed);

    if (limit && atomic_load(&rq->tail) - atomic_load(&rq->head) < limit &&
        atomic_compare_exchange_strong(&rq->limit, &limit, 0))
        emu_peer_send(r->d, r->peer, INBOX_SRQ_LIMIT, index, 0, NULL, 0);
}

/* Takes the next receive of the responder. */
static bool take(struct run *r, uint64_t *wr_id, uint32_t *nsge, struct shm_sge *sge)
{
    struct shm_head *seg = r->peer->seg;
    uint32_t srq = r->rs->srq;
    uint64_t at;
    struct shm_rq *rq = srq ? &shm_srq(seg, srq - 1)->rq : &r->rs->rq;

    do {
        if (atomic_load(&r->rs->busy) != r->token ||
            !emu_rq_peek(seg, rq, &at, wr_id, nsge, sge))
            return false;
        atomic_store(&r->rs->taking_at, at);
        atomic_store(&r->rs->taking, r->token);
        emu_step(EMU_STEP_take);
    } while (!emu_rq_take(rq, at));
    emu_step(EMU_STEP_taken);
    r->rs->taken_wr_id = *wr_id;
    atomic_store(&r->rs->taken, r->token);
    if (srq)
        report_limit(r, rq, srq - 1);
    return true;
}

static enum ibv_wc_status copy_failure(int err)
{
    return err == -EPERM    ? IBV_WC_GENERAL_ERR
           : err == -EINVAL ? IBV_WC_LOC_PROT_ERR
                            : IBV_WC_REM_OP_ERR;
}

/* Leaves after moving data, or after the error `err`; no completion at the responder. */
static inline enum exec_result moved(struct run *r, int err)
{
    if (err == -EFAULT)
        refuse(r, IBV_EVENT_QP_FATAL);
    else
        leave(r);
    return err == -ESRCH ? EXEC_NO_ANSWER : EXEC_DONE;
}

static void imm_fields(const struct emu_wr *wr, struct shm_cqe *c)
{
    if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        c->wc_flags = IBV_WC_WITH_IMM;
        c->imm = wr->imm;
    } else if (wr->opcode == IBV_WR_SEND_WITH_INV) {
        c->wc_flags = IBV_WC_WITH_INV;
        c->imm = wr->imm;
    }
}

/* Gathers a small message into a bounce slot of the peer; returns slot + 1, or 0 if none is
 * free. */
static uint32_t bounce(struct run *r, const struct shm_sge *sge, const struct iovec *remote,
                       uint32_t nsge)
{
    int slot = shm_bounce_get(r->peer->seg, r->d->slot);

    if (slot < 0)
        return 0;
    struct shm_bounce *b = shm_bounce(r->peer->seg, (uint32_t)slot);
    b->length = r->length;
    b->nsge = nsge;
    for (uint32_t i = 0; i < nsge; i++) {
        b->sge[i].addr = (uintptr_t)remote[i].iov_base;
        b->sge[i].length = (uint32_t)remote[i].iov_len;
        b->sge[i].lkey = sge[i].lkey;
    }
    unsigned char *to = b->data;
    for (unsigned i = 0; i < r->nlocal; i++) {
        memcpy(to, r->local[i].iov_base, r->local[i].iov_len);
        to += r->local[i].iov_len;
    }
    emu_count(COUNT_bounced, 1);
    return (uint32_t)slot + 1;
}

static enum exec_result do_send(struct run *r, enum ibv_wc_status *status, uint32_t *rnr_timer)
{
    struct shm_sge sge[EMU_MAX_SGE];
    struct iovec remote[EMU_MAX_SGE];
    struct emu_pin pin[EMU_MAX_SGE];
    struct shm_cqe c = {.opcode = IBV_WC_RECV, .byte_len = r->length};
    uint32_t nsge, used = 0, left = r->length;
    bool direct = r->demand;
    int err = 0;

    if (!take(r, &c.wr_id, &nsge, sge)) {
        *rnr_timer = r->rs->min_rnr_timer;
        leave(r);
        return EXEC_RNR;
    }
    *status = IBV_WC_SUCCESS;
    imm_fields(r->wr, &c);
    if (r->datagram) {
        c.wc_flags |= r->wr->av.global ? IBV_WC_GRH : 0;
        c.sl = r->wr->av.sl;
    }
    for (uint32_t i = 0; i < nsge && left && !err; i++) {
        uint32_t n = sge[i].length < left ? sge[i].length : left;
        if (n == 0)
            continue;
        int there = emu_mr_pin(r->d, r->peer, sge[i].lkey, false, &r->rs->user, sge[i].addr, n,
                               IBV_ACCESS_LOCAL_WRITE, &remote[used], &pin[used]);
        if (there < 0) {
            err = -EFAULT;
            c.status = IBV_WC_LOC_PROT_ERR;
            *status = IBV_WC_REM_OP_ERR;
        } else {
            direct |= there || (!r->datagram && (pin[used].mr->access & REACHED));
            sge[used].lkey = sge[i].lkey;
            used++;
            left -= n;
        }
    }
    if (!err && left) {
        err = -EMSGSIZE;
        c.status = IBV_WC_LOC_LEN_ERR;
        *status = IBV_WC_REM_INV_REQ_ERR;
    }
    if (!err && r->length) {
        if (!direct && r->length <= r->d->knobs.bounce_max)
            c.bounce = bounce(r, sge, remote, used);
        if (!c.bounce) {
            err = emu_copy_to(r->peer, r->local, r->nlocal, remote, used, r->length);
            if (err) {
                *status = copy_failure(err);
                c.status = err == -EFAULT ? IBV_WC_LOC_PROT_ERR : IBV_WC_GENERAL_ERR;
            }
        }
    }
    for (uint32_t i = 0; i < used; i++)
        emu_mr_unpin(&pin[i]);
    if (err == -ESRCH) {
        leave(r);
        return EXEC_NO_ANSWER;
    }
    if (!err && r->wr->opcode == IBV_WR_SEND_WITH_INV &&
        !emu_mw_invalidate_remote(r->peer, r->qpn, r->wr->imm)) {
        err = -EACCES;
        *status = IBV_WC_REM_ACCESS_ERR;
        c.status = IBV_WC_REM_INV_REQ_ERR;
    }
    if (!complete_receive(r, &c, err != 0) && !err && !r->told)
        return EXEC_NO_ANSWER;
    return EXEC_DONE;
}

/* Returns the bytes that a read or write moves. With EMUVERBS_STILL_FROM a large write with
 * immediate moves its head only, which receivers may inspect. */
static uint64_t moving(const struct run *r)
{
    uint64_t from = r->d->knobs.still_from, length = r->wr->length;
    uint64_t head = r->wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? STILL_HEAD : 0;

    return !from || length < from || length < head ? length : head;
}

static enum exec_result do_write(struct run *r, enum ibv_wc_status *status, uint32_t *rnr_timer)
{
    const struct emu_wr *wr = r->wr;
    bool imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct shm_sge sge[EMU_MAX_SGE];
    struct shm_cqe c = {.opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = wr->length};
    struct iovec remote;
    struct emu_pin pin = {0};
    uint32_t nsge;

    if (!(r->rs->access & IBV_ACCESS_REMOTE_WRITE))
        return deny(r, IBV_EVENT_QP_REQ_ERR, status);
    if (wr->length && emu_mr_pin(r->d, r->peer, wr->rkey, true, &r->rs->user, wr->raddr,
                                 wr->length, IBV_ACCESS_REMOTE_WRITE, &remote, &pin) < 0)
        return deny(r, IBV_EVENT_QP_ACCESS_ERR, status);
    if (imm && !take(r, &c.wr_id, &nsge, sge)) {
        emu_mr_unpin(&pin);
        *rnr_timer = r->rs->min_rnr_timer;
        leave(r);
        return EXEC_RNR;
    }
    int err = 0;
    remote.iov_len = moving(r);
    if (remote.iov_len)
        err = emu_copy_to(r->peer, r->local, r->nlocal, &remote, 1, remote.iov_len);
    emu_mr_unpin(&pin);
    *status = err ? copy_failure(err) : IBV_WC_SUCCESS;
    if (!imm || err == -ESRCH)
        return moved(r, err);
    imm_fields(wr, &c);
    if (err)
        c.status = IBV_WC_GENERAL_ERR;
    if (!complete_receive(r, &c, err != 0) && !err && !r->told)
        return EXEC_NO_ANSWER;
    return EXEC_DONE;
}

static enum exec_result do_read(struct run *r, enum ibv_wc_status *status)
{
    const struct emu_wr *wr = r->wr;
    struct iovec remote;
    struct emu_pin pin = {0};
    int err = 0;

    if (!(r->rs->access & IBV_ACCESS_REMOTE_READ) || r->rs->max_dest_rd == 0)
        return deny(r, IBV_EVENT_QP_REQ_ERR, status);
    if (wr->length && emu_mr_pin(r->d, r->peer, wr->rkey, true, &r->rs->user, wr->raddr,
                                 wr->length, IBV_ACCESS_REMOTE_READ, &remote, &pin) < 0)
        return deny(r, IBV_EVENT_QP_ACCESS_ERR, status);
    if (moving(r))
        err = emu_copy_from(r->peer, r->local, r->nlocal, &remote, 1, wr->length);
    emu_mr_unpin(&pin);
    *status = err ? copy_failure(err) : IBV_WC_SUCCESS;
    return moved(r, err);
}

static enum exec_result do_atomic(struct run *r, enum ibv_wc_status *status)
{
    const struct emu_wr *wr = r->wr;
    struct iovec remote;
    struct emu_pin pin = {0};
    uint64_t old;

    if (!(r->rs->access & IBV_ACCESS_REMOTE_ATOMIC) || r->rs->max_dest_rd == 0)
        return deny(r, IBV_EVENT_QP_REQ_ERR, status);
    if (emu_mr_pin(r->d, r->peer, wr->rkey, true, &r->rs->user, wr->raddr, 8,
                   IBV_ACCESS_REMOTE_ATOMIC, &remote, &pin) < 0)
        return deny(r, IBV_EVENT_QP_ACCESS_ERR, status);
    int err = emu_atomic(r->d, r->peer, wr, remote, &old);
    emu_mr_unpin(&pin);
    *status = err ? copy_failure(err) : IBV_WC_SUCCESS;
    if (!err) {
        struct iovec from = {&old, 8};
        if (emu_copy_to(&r->d->self, &from, 1, r->local, r->nlocal, 8))
            *status = IBV_WC_LOC_PROT_ERR;
    }
    return moved(r, err);
}

/*
 * Checks the local segments and translates them to addresses. On-demand memory, and memory for
 * messages without acknowledgement, is accessed before the peer is involved, so that the
 * sender's error affects the sender alone.
 */
static bool resolve_local(struct run *r)
{
    const struct emu_wr *wr = r->wr;
    bool unanswered = r->qp->qp.qp_type != IBV_QPT_RC;
    bool answered = wr->opcode == IBV_WR_RDMA_READ || emu_is_atomic(wr->opcode);
    uint32_t access = answered ? IBV_ACCESS_LOCAL_WRITE : 0;

    if (wr->inl != NULL) {
        r->local[r->nlocal++] = (struct iovec){(void *)(uintptr_t)wr->inl, wr->length};
        return true;
    }
    for (uint32_t i = 0; i < wr->nsge; i++) {
        const struct ibv_sge *s = &wr->sge[i];
        struct iovec *v = &r->local[r->nlocal];
        if (s->length == 0)
            continue;
        /* inline data: readable by the caller without a key */
        if (wr->flags & IBV_SEND_INLINE) {
            *v = (struct iovec){(void *)(uintptr_t)s->addr, s->length};
            r->nlocal++;
            continue;
        }
        int there = emu_mr_local(r->d, r->qp->qp.pd->handle, s, access, v);
        if (there < 0)
            return false;
        if (there || unanswered) {
            r->demand |= there;
            if (emu_mr_populate(v->iov_base, v->iov_len, answered))
                return false;
        }
        r->nlocal++;
    }
    return true;
}

/* Waits for this poster's turn at a UD QP; false if the QP does not accept the datagram. */
static bool enter_datagram(struct run *r)
{
    struct emu_dev *d = r->d;
    struct emu_peer *p = r->peer;
    uint64_t since = 0, check_at = 0, holder = 0;

    if (!emu_peer_answers(p) || d->knobs.silent)
        return false;
    r->rs = shm_qp(p->seg, r->qpn);
    r->token = new_token(d);
    if (atomic_load(&r->rs->user.qpn) != r->qpn)
        return false;
    if (!emu_peer_greet(d, p))
        return false;
    while (!atomic_compare_exchange_strong(&r->rs->busy, &holder, r->token)) {
        uint64_t now = emu_now();
        if (!since)
            check_at = (since = now) + EMU_TURN_CHECK;
        if (now > since + EMU_TURN_WAIT)
            return false;
        if (now > check_at) {
            struct emu_peer *other = emu_peer_get(d, RX_SLOT(holder));
            bool stopped = other == NULL || emu_peer_stopped(other);
            emu_peer_put(d, other);
            if (stopped)
                return false;
            check_at = now + EMU_TURN_CHECK;
        }
        sched_yield();
        holder = 0;
    }
    uint32_t state = atomic_load(&r->rs->state);
    if (atomic_load(&r->rs->user.qpn) == r->qpn && r->rs->type == r->qp->qp.qp_type &&
        receives(state) &&
        r->rs->qkey == (r->wr->av.qkey >> 31 ? r->qp->attr.qkey : r->wr->av.qkey))
        return true;
    leave(r);
    return false;
}

/* Delivers the datagram to one QP of r->peer; counts a loss. */
static void deliver(struct run *r, uint32_t qpn)
{
    enum ibv_wc_status status;
    uint32_t timer;

    r->qpn = qpn;
    if (!enter_datagram(r) || do_send(r, &status, &timer) != EXEC_DONE ||
        status != IBV_WC_SUCCESS)
        emu_count(COUNT_datagrams_lost, 1);
}

/* Delivers the datagram to the members of a group in r->peer. */
static void deliver_members(struct run *r)
{
    struct iovec local[EMU_MAX_SGE + 1];

    memcpy(local, r->local, r->nlocal * sizeof(*local));
    for (uint32_t i = 0; i < EMU_MAX_MCASTS; i++) {
        struct shm_mcast *m = shm_mcast(r->peer->seg, i);
        uint32_t qpn = atomic_load(&m->qpn);
        if (!qpn || memcmp(m->gid, &r->wr->av.dgid, sizeof(m->gid)) != 0)
            continue;
        deliver(r, qpn);
        memcpy(r->local, local, r->nlocal * sizeof(*local)); /* restore what copying consumed */
    }
}

static void deliver_group(struct run *r)
{
    uint32_t slots[MAX_MEMBERS];
    unsigned n = emu_mcast_slots(r->d, &r->wr->av.dgid, slots, MAX_MEMBERS);

    r->peer = &r->d->self;
    deliver_members(r);
    for (unsigned i = 0; i < n; i++) {
        r->peer = emu_peer_get(r->d, slots[i]);
        if (r->peer != NULL)
            deliver_members(r);
        emu_peer_put(r->d, r->peer);
    }
    r->peer = NULL;
}

/* Sends a datagram. The request succeeds even if the datagram is lost. */
static void send_datagram(struct run *r)
{
    const struct emu_av *av = &r->wr->av;

    if (r->wr->length > r->d->knobs.mtu || av->where == AV_NOWHERE ||
        (av->where == AV_GROUP) != (av->qpn == EMU_MCAST_QPN)) {
        emu_count(COUNT_datagrams_lost, 1);
    } else if (av->where == AV_GROUP) {
        deliver_group(r);
    } else if ((r->peer = emu_peer_of(r->d, &r->qp->peer, av->qpn >> EMU_QP_BITS)) != NULL) {
        deliver(r, av->qpn);
    } else {
        emu_count(COUNT_datagrams_lost, 1);
    }
}

static enum ibv_wc_status exec_datagram(struct run *r)
{
    const struct emu_av *av = &r->wr->av;
    unsigned char header[EMU_GRH];

    if (av->pd != r->qp->qp.pd->handle)
        return IBV_WC_LOC_QP_OP_ERR;
    emu_ah_header(r->d, av, r->wr->length, header);
    r->local[0] = (struct iovec){header, EMU_GRH};
    r->nlocal = 1;
    r->length = r->wr->length + EMU_GRH;
    r->datagram = true;
    if (!resolve_local(r))
        return IBV_WC_LOC_PROT_ERR;
    send_datagram(r);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status bind_window(struct emu_dev *d, struct emu_qp *qp,
                                      const struct emu_wr *wr)
{
    const struct emu_binder by = {qp->qp.pd->handle, qp->qp.qp_num, &qp->windows};

    return emu_mw_bind(d, &by, &wr->bind, wr->raddr, wr->rkey);
}

/* Ends a UC request, which always succeeds. */
__attribute__((noinline)) static enum exec_result over(enum exec_result res,
                                                       enum ibv_wc_status *status)
{
    if (res != EXEC_DONE || *status != IBV_WC_SUCCESS)
        emu_count(COUNT_datagrams_lost, 1);
    *status = IBV_WC_SUCCESS;
    return EXEC_DONE;
}

enum exec_result emu_exec(struct emu_dev *d, struct emu_qp *qp, uint64_t i,
                          const struct emu_wr *wr, bool oldest, enum ibv_wc_status *status,
                          uint32_t *rnr_timer)
{
    struct run r; /* not cleared: the vectors are large */
    enum exec_result res;

    r.d = d;
    r.qp = qp;
    r.wr = wr;
    r.peer = qp->peer;
    r.nlocal = 0;
    r.index = i;
    r.oldest = oldest;
    r.demand = r.datagram = r.told = false;
    r.length = wr->length;
    if (wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV) {
        /* the peer is not involved */
        *status = wr->opcode == IBV_WR_BIND_MW ? bind_window(d, qp, wr)
                                               : emu_mw_invalidate(d, qp->qp.qp_num, wr->imm);
        return EXEC_DONE;
    }
    if (qp->qp.qp_type == IBV_QPT_UD) {
        *status = exec_datagram(&r);
        return EXEC_DONE;
    }
    if (!resolve_local(&r)) {
        *status = IBV_WC_LOC_PROT_ERR;
        return EXEC_DONE;
    }
    if (!enter(&r))
        return qp->qp.qp_type == IBV_QPT_RC ? EXEC_NO_ANSWER : over(EXEC_NO_ANSWER, status);
    switch (wr->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
        res = do_send(&r, status, rnr_timer);
        break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        res = do_write(&r, status, rnr_timer);
        break;
    case IBV_WR_RDMA_READ:
        res = do_read(&r, status);
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        res = do_atomic(&r, status);
        break;
    default:
        leave(&r);
        *status = IBV_WC_LOC_QP_OP_ERR;
        res = EXEC_DONE;
        break;
    }
    return qp->qp.qp_type == IBV_QPT_RC ? res : over(res, status);
}
