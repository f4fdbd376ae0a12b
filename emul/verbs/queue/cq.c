/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Completion queues.
 *
 * The ring is shared: posters of any process push without a lock, threads of the owner pop
 * under a private lock. Polling an empty CQ takes no lock. cq_ring.c replaces rings.
 *
 * Notification relies on two fences: the owner sets `armed` and then checks the ring; a poster
 * publishes its entry and then checks `armed`. At least one of them sees the other. The
 * compare-and-swap that disarms the CQ is its event and names the process that owes the
 * wake-up, so that the owner can take over when a poster dies (channel.c). A poster that dies
 * before the swap leaves an entry without event; the owner then raises the event if the CQ is
 * armed.
 *
 * A small send may arrive with its payload in a bounce slot. The poster has checked the
 * receive's segments and stored their addresses in the slot. The payload is copied to the
 * program's buffer by the poll that returns the completion, or by a deregistration of memory,
 * which first lands all such payloads. So nothing is written after ibv_dereg_mr has returned.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether a completion must not be reported: its QP is destroyed, or its poster's token
 * was revoked before the push, and the receive was flushed. */
static inline __attribute__((always_inline)) bool stale(struct emu_dev *d,
                                                        const struct shm_cqe *e)
{
    uint32_t i = e->qpn & (EMU_MAX_QPS - 1);

    /* private memory only: the QP's shared cache line belongs to its poster at this moment */
    if (__builtin_expect(e->skip, 0) || d->qp[i] == NULL || d->qp[i]->qp.qp_num != e->qpn)
        return true;
    return e->token && e->token == d->revoked[i];
}

/* Copies a part of a payload to a segment whose memory is still registered with this key. */
static bool land_part(struct emu_dev *d, const struct shm_sge *s, void *from, uint32_t n)
{
    const struct shm_mr *mr = shm_mr(d->seg, shm_key_index(s->lkey));
    uint64_t off = s->addr - mr->addr;

    if (atomic_load(&mr->key) != s->lkey || off > mr->length || n > mr->length - off)
        return false;
    memcpy((void *)(uintptr_t)s->addr, from, n);
    return true;
}

/* Handles a payload whose memory is no longer registered. The sender has already completed with
 * success; the receive completes with LOC_PROT_ERR, and its QP fails. */
static void land_nowhere(struct emu_dev *d, struct shm_cqe *e)
{
    struct shm_qp *s = shm_qp(d->seg, e->qpn);
    uint32_t state = atomic_load(&s->state);

    e->status = IBV_WC_LOC_PROT_ERR;
    if (atomic_load(&s->user.qpn) != e->qpn)
        return; /* the QP is destroyed */
    atomic_store(&s->why, IBV_EVENT_QP_REQ_ERR);
    if (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD)
        atomic_compare_exchange_strong(&s->state, &state, IBV_QPS_ERR);
    emu_peer_send(d, &d->self, INBOX_QP_ERROR, e->qpn & (EMU_MAX_QPS - 1), IBV_EVENT_QP_REQ_ERR,
                  &e->qpn, sizeof(e->qpn));
}

/* Copies a bounced payload to its segments and frees the slot. */
static void land(struct emu_dev *d, struct shm_cqe *e)
{
    struct shm_bounce *b = shm_bounce(d->seg, e->bounce - 1);
    uint32_t left = b->length, done = 0;

    for (uint32_t i = 0; i < b->nsge && left; i++) {
        const struct shm_sge *s = &b->sge[i];
        uint32_t n = s->length < left ? s->length : left;
        if (n && !land_part(d, s, b->data + done, n)) {
            land_nowhere(d, e);
            break;
        }
        done += n;
        left -= n;
    }
    shm_bounce_put(d->seg, e->bounce - 1);
    e->bounce = 0;
}

/* Signals the channel of a CQ that was disarmed. */
static void signal_event(struct emu_dev *d, struct emu_peer *owner, struct shm_cq *s)
{
    uint32_t chan = atomic_load(&s->chan); /* a late poster may find another CQ here */

    if (chan)
        emu_peer_signal_chan(d, owner, chan - 1);
}

/* Records that the wake-up for the disarming word `note` is done. A later disarming has
 * replaced the word. */
static void notified(struct shm_cq *s, uint64_t note)
{
    uint64_t armed = atomic_load(&s->armed);

    while ((armed ^ note) >> 2 == 0 &&
           !atomic_compare_exchange_weak(&s->armed, &armed, CQ_NOTIFIED(armed)))
        ;
}

/* Disarms the CQ if armed for this completion, and raises its event, unless another thread
 * does. Not inlined, so that callers without a wake-up save no registers. */
__attribute__((noinline)) static void notify(struct emu_dev *d, struct emu_peer *owner,
                                             struct shm_cq *s, uint64_t armed, bool solicited)
{
    uint64_t note;

    emu_step(EMU_STEP_wake);
    do {
        uint32_t how = CQ_ARMED_HOW(armed);
        if (how == CQ_ARMED_NO || (how == CQ_ARMED_SOLICITED && !solicited))
            return;
        note = CQ_DISARMED(armed, d->slot);
    } while (!atomic_compare_exchange_weak(&s->armed, &armed, note));
    emu_step(EMU_STEP_notify);
    signal_event(d, owner, s);
    emu_step(EMU_STEP_reported);
    notified(s, note);
}

void emu_cq_notify(struct emu_dev *d, struct emu_peer *owner, uint32_t index, bool solicited)
{
    struct shm_cq *s = shm_cq(owner->seg, index);

    atomic_thread_fence(memory_order_seq_cst);
    uint64_t armed = atomic_load_explicit(&s->armed, memory_order_relaxed);
    if (CQ_ARMED_HOW(armed) != CQ_ARMED_NO)
        notify(d, owner, s, armed, solicited);
}

EMU_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                        struct ibv_comp_channel *channel, int comp_vector)
{
    struct emu_dev *d = emu_dev_for(context);
    struct emu_cq *cq = NULL;
    int err = 0;

    if (emu_call(CALL_ibv_create_cq))
        err = ENOMEM;
    else if (d == NULL || emu_has_failed(context))
        err = EIO;
    else if (cqe < 1 || (uint64_t)cqe > d->knobs.max_cqe || comp_vector < 0 ||
             comp_vector > 0 || (channel != NULL && channel->context != context))
        err = EINVAL;
    else if ((cq = calloc(1, sizeof(*cq))) == NULL)
        err = ENOMEM;
    if (err) {
        errno = err;
        return NULL;
    }
    struct emu_ring *ring = emu_cq_ring_new(d, (uint32_t)cqe);
    /* initialized before it is published: the service thread iterates over all CQs */
    cq->cq.context = context;
    cq->cq.channel = channel;
    cq->cq.cq_context = cq_context;
    cq->cq.cqe = cqe;
    pthread_mutex_init(&cq->cq.mutex, NULL);
    pthread_cond_init(&cq->cq.cond, NULL);
    pthread_mutex_init(&cq->lock, NULL);
    pthread_mutex_lock(&d->lock);
    uint32_t index = 0, n;
    for (n = 0; n < EMU_MAX_CQS; n++) {
        index = (d->next_cq + n) % EMU_MAX_CQS;
        if (d->cq[index] == NULL)
            break;
    }
    if (ring == NULL || n == EMU_MAX_CQS) {
        pthread_mutex_unlock(&d->lock);
        emu_cq_ring_free(d, ring);
        free(cq);
        errno = ENOMEM;
        return NULL;
    }
    d->next_cq = index + 1;
    d->cq[index] = cq;
    cq->cq.handle = cq->index = index;
    cq->s = shm_cq(d->seg, index);
    cq->rings[cq->nrings++] = ring;
    atomic_store(&cq->ring, ring->s);
    atomic_store(&cq->s->off_ring, ring->off_head);
    cq->fetched = atomic_load(&cq->s->armed) >> CQ_ARMED_TIMES;
    atomic_store(&cq->s->armed, cq->fetched << CQ_ARMED_TIMES | CQ_ARMED_NO);
    atomic_store(&cq->s->overrun, 0);
    atomic_store(&cq->s->chan, 0);
    if (channel != NULL) {
        cq->chan = (struct emu_chan *)channel;
        atomic_store(&cq->s->chan, cq->chan->index + 1);
        cq->chan_next = cq->chan->cqs;
        cq->chan->cqs = cq;
        channel->refcnt++;
    }
    atomic_store(&cq->s->in_use, 1);
    pthread_mutex_unlock(&d->lock);

    emu_count(COUNT_live_cq, 1);
    return &cq->cq;
}

void emu_cq_late(struct emu_cq *cq, uint32_t slot)
{
    cq->late[slot / 64] |= UINT64_C(1) << (slot % 64);
}

/* Returns whether late posters still live. One that is not in the table of peers is dead; the
 * death of the others will be noticed. Under d->lock. */
static bool has_late(struct emu_dev *d, struct emu_cq *cq)
{
    uint64_t any = 0;

    for (uint32_t w = 0; w < EMU_MAX_SLOTS / 64; w++) {
        for (uint64_t bits = cq->late[w]; bits; bits &= bits - 1) {
            uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (slot != d->slot && d->peers[slot] == NULL)
                cq->late[w] &= ~(bits & -bits);
        }
        any |= cq->late[w];
    }
    return any != 0;
}

/* Frees the rings of a queue, and the queue. Not under d->lock. */
static void rings_free(struct emu_dev *d, struct emu_cq *cq)
{
    for (unsigned i = 0; i < cq->nrings; i++)
        emu_cq_ring_free(d, cq->rings[i]);
    free(cq);
}

/* Frees destroyed queues whose last late poster has died. */
static void late_free(struct emu_dev *d)
{
    struct emu_cq *done = NULL;

    pthread_mutex_lock(&d->lock);
    for (struct emu_cq **pp = &d->late_cqs; *pp;) {
        struct emu_cq *cq = *pp;
        if (has_late(d, cq)) {
            pp = &cq->late_next;
            continue;
        }
        *pp = cq->late_next;
        cq->late_next = done;
        done = cq;
    }
    pthread_mutex_unlock(&d->lock);
    while (done != NULL) {
        struct emu_cq *cq = done;
        done = cq->late_next;
        rings_free(d, cq);
    }
}

EMU_EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
    struct emu_cq *cq = (struct emu_cq *)ibcq;
    struct emu_dev *d = emu_dev_for(ibcq->context);

    if (emu_call(CALL_ibv_destroy_cq) || d == NULL)
        return EIO;
    if (atomic_load(&cq->users))
        return EBUSY;
    pthread_mutex_lock(&d->lock);
    atomic_store(&cq->s->in_use, 0);
    d->cq[cq->index] = NULL;
    if (cq->chan != NULL) {
        for (struct emu_cq **pp = &cq->chan->cqs; *pp; pp = &(*pp)->chan_next)
            if (*pp == cq) {
                *pp = cq->chan_next;
                break;
            }
        cq->chan->ch.refcnt--;
        /* drop its events: late posters find nothing to disarm and no channel to signal */
        atomic_fetch_and(&cq->s->armed, ~UINT64_C(3));
        atomic_store(&cq->s->chan, 0);
        if (emu_cq_events(cq))
            emu_chan_settle(cq->chan);
    }
    pthread_mutex_unlock(&d->lock);
    emu_async_purge(emu_ctx_of(cq->cq.context), &cq->cq);

    pthread_mutex_lock(&cq->cq.mutex);
    while (cq->comp_events != cq->cq.comp_events_completed ||
           cq->async_events != cq->cq.async_events_completed)
        pthread_cond_wait(&cq->cq.cond, &cq->cq.mutex);
    pthread_mutex_unlock(&cq->cq.mutex);

    for (struct shm_cqe *e; (e = emu_cq_unread(d, cq, 0)) != NULL;) {
        if (e->bounce)
            shm_bounce_put(d->seg, e->bounce - 1);
        shm_ring_pop(d->seg, cq->ring);
    }
    pthread_mutex_destroy(&cq->lock);
    pthread_mutex_destroy(&cq->cq.mutex);
    pthread_cond_destroy(&cq->cq.cond);
    emu_uncount(COUNT_live_cq, 1);
    pthread_mutex_lock(&d->lock);
    bool late = has_late(d, cq);
    if (late) {
        cq->late_next = d->late_cqs;
        d->late_cqs = cq;
    }
    pthread_mutex_unlock(&d->lock);
    if (!late)
        rings_free(d, cq);
    return 0;
}

/*
 * Frees the place of the work request that a completion reports. Under cq->lock. Records the
 * token in private memory: a poster that stops between pushing a completion and recording this
 * must not look like one that has only taken the receive, because revoke() would complete the
 * receive again.
 */
static void retire(struct emu_dev *d, const struct shm_cqe *e)
{
    struct emu_qp *qp = d->qp[e->qpn & (EMU_MAX_QPS - 1)];

    if (e->from_sq) {
        atomic_store(&qp->sq_freed, e->sq_index + 1);
    } else {
        if (e->token)
            qp->reported = e->token;
        atomic_fetch_add(e->srq ? &qp->srq->rq.polled : &qp->rq.polled, 1);
    }
}

static void report(const struct shm_cqe *e, struct ibv_wc *wc)
{
    wc->wr_id = e->wr_id;
    wc->status = (enum ibv_wc_status)e->status;
    wc->vendor_err = e->status;
    wc->qp_num = e->qpn;
    if (e->status != IBV_WC_SUCCESS)
        return; /* the other fields are undefined; real devices leave them unchanged */
    wc->opcode = (enum ibv_wc_opcode)e->opcode;
    wc->byte_len = e->byte_len;
    wc->imm_data = e->imm;
    wc->src_qp = e->src_qp;
    wc->wc_flags = e->wc_flags;
    wc->pkey_index = 0;
    wc->slid = (uint16_t)(1 + e->source);
    wc->sl = e->sl;
    wc->dlid_path_bits = 0;
}

int emu_poll_cq(struct ibv_cq *ibcq, int max, struct ibv_wc *wc)
{
    struct emu_cq *cq = (struct emu_cq *)ibcq;
    struct emu_dev *d = emu_dev_peek();
    struct shm_cqe *e;
    int n = 0;

    if (emu_call(CALL_ibv_poll_cq) || d == NULL)
        return -1;
    if (emu_cq_empty(d, cq)) {
        emu_timers_poll();
        emu_count(COUNT_polls_empty, 1);
        return atomic_load(&cq->s->overrun) ? -1 : 0;
    }
    pthread_mutex_lock(&cq->lock);
    while (n < max && (e = emu_cq_unread(d, cq, 0)) != NULL) {
        if (stale(d, e)) {
            if (e->bounce)
                shm_bounce_put(d->seg, e->bounce - 1);
            shm_ring_pop(d->seg, cq->ring);
            continue;
        }
        if (e->bounce)
            land(d, e);
        /* the completion leaves the CQ before its place is freed, so that a new request has
         * room here */
        const struct shm_cqe c = *e;
        shm_ring_pop(d->seg, cq->ring);
        retire(d, &c);
        report(&c, &wc[n++]);
        if (__builtin_expect(emu_tracing, false))
            emu_trace_completion(&c);
    }
    pthread_mutex_unlock(&cq->lock);
    emu_count(COUNT_cqes, (uint64_t)n);
    return n;
}

int emu_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
    struct emu_cq *cq = (struct emu_cq *)ibcq;

    if (emu_call(CALL_ibv_req_notify_cq))
        return EIO;
    uint32_t how = solicited_only ? CQ_ARMED_SOLICITED : CQ_ARMED_ANY;
    uint64_t armed = atomic_load(&cq->s->armed);
    /* a later request for solicited completions does not weaken one for any */
    while (CQ_ARMED_HOW(armed) < how &&
           !atomic_compare_exchange_weak(&cq->s->armed, &armed, (armed & ~UINT64_C(3)) | how))
        ;
    atomic_thread_fence(memory_order_seq_cst);
    return 0;
}

/*
 * Removes marked entries among the first `n` unread completions, which makes room. The others
 * move towards the tail in order, so that marked ones are at the head. Posters see no
 * difference, because filled words stay filled. Under cq->lock.
 */
static void take_out(struct emu_dev *d, struct emu_cq *cq, uint64_t n)
{
    struct shm_cqe *e;

    for (uint64_t i = n, to = n; i-- > 0;) {
        e = emu_cq_unread(d, cq, i);
        if (e != NULL && !e->skip && --to != i)
            shm_ring_swap(d->seg, cq->ring, i, to);
    }
    while ((e = emu_cq_unread(d, cq, 0)) != NULL && e->skip) {
        if (e->bounce)
            shm_bounce_put(d->seg, e->bounce - 1);
        shm_ring_pop(d->seg, cq->ring);
    }
}

void emu_cq_purge(struct emu_dev *d, struct emu_cq *cq, uint32_t qpn, struct emu_srq *srq,
                  struct emu_rq *rq)
{
    uint32_t own = 0, shared = 0;
    uint64_t end = 0;
    struct shm_cqe *e;

    pthread_mutex_lock(&cq->lock);
    for (uint64_t i = 0; (e = emu_cq_unread(d, cq, i)) != NULL; i++) {
        if (e->qpn != qpn)
            continue;
        if (!stale(d, e) && !e->from_sq)
            *(e->srq && srq != NULL ? &shared : &own) += 1;
        e->skip = 1;
        end = i + 1;
    }
    take_out(d, cq, end);
    /* removed before their places are freed, see emu_poll_cq() */
    if (shared)
        atomic_fetch_add(&srq->rq.polled, shared);
    atomic_fetch_add(&rq->polled, own);
    pthread_mutex_unlock(&cq->lock);
}

void emu_cq_settle(struct emu_dev *d)
{
    bool any = false;

    for (uint32_t w = 0; w < EMU_BOUNCE_SLOTS / 64 && !any; w++)
        any = atomic_load(&d->seg->bounce_free[w]) != ~UINT64_C(0);
    if (!any)
        return;
    pthread_mutex_lock(&d->lock);
    for (uint32_t k = 0; k < EMU_MAX_CQS; k++) {
        struct emu_cq *cq = d->cq[k];
        if (cq == NULL)
            continue;
        struct shm_cqe *e;
        pthread_mutex_lock(&cq->lock);
        for (uint64_t i = 0; (e = emu_cq_unread(d, cq, i)) != NULL; i++)
            if (e->bounce && !stale(d, e))
                land(d, e);
        pthread_mutex_unlock(&cq->lock);
    }
    pthread_mutex_unlock(&d->lock);
}

/*
 * Recounts channels after the death of a poster. If its slot is in the word of a CQ, it has
 * disarmed the CQ, and may or may not have woken the owner. If another disarming has replaced
 * the slot, any event may lack its wake-up. Under d->lock.
 */
static void settle_channels(struct emu_dev *d)
{
    for (uint32_t k = 0; k < EMU_MAX_CQS; k++) {
        struct emu_cq *cq = d->cq[k];
        if (cq == NULL || cq->chan == NULL)
            continue;
        if (cq->chan->undelivered || emu_cq_events(cq))
            emu_chan_settle(cq->chan);
        cq->chan->undelivered = false;
    }
}

/* Raises the event of an overrun not yet reported. Under d->lock. */
static void report_overrun(struct emu_cq *cq)
{
    if (cq->overrun_reported || !atomic_load(&cq->s->overrun))
        return;
    cq->overrun_reported = true;
    emu_async_cq(cq, IBV_EVENT_CQ_ERR);
}

/* Called by tests, through dlsym; see doc/emuverbs.md. */
EMU_EXPORT void emuverbs_fail_cq(struct ibv_cq *cq);
EMU_EXPORT void emuverbs_fail_cq(struct ibv_cq *ibcq)
{
    struct emu_cq *cq = (struct emu_cq *)ibcq;
    struct emu_dev *d = emu_dev_for(ibcq->context);

    if (d == NULL)
        return;
    atomic_store(&cq->s->overrun, 1);
    pthread_mutex_lock(&d->lock);
    report_overrun(cq);
    pthread_mutex_unlock(&d->lock);
}

void emu_cq_overrun(struct emu_dev *d, uint32_t index)
{
    pthread_mutex_lock(&d->lock);
    if (index < EMU_MAX_CQS && d->cq[index] != NULL)
        report_overrun(d->cq[index]);
    pthread_mutex_unlock(&d->lock);
}

void emu_cq_untold(struct emu_dev *d)
{
    pthread_mutex_lock(&d->lock);
    for (uint32_t k = 0; k < EMU_MAX_CQS; k++) {
        struct emu_cq *cq = d->cq[k];
        if (cq == NULL)
            continue;
        report_overrun(cq);
        if (cq->chan != NULL)
            cq->chan->undelivered = true;
    }
    settle_channels(d);
    pthread_mutex_unlock(&d->lock);
}

/*
 * Clears what a killed poster may leave behind: a cell outside of the ring, a bounce slot
 * without a completion, a CQ disarmed without a signal, or a completion in a CQ that is still
 * armed.
 */
void emu_cq_peer_died(struct emu_dev *d, uint32_t slot)
{
    uint64_t used[EMU_BOUNCE_SLOTS / 64] = {0};
    struct shm_cqe *e;

    pthread_mutex_lock(&d->lock);
    for (uint32_t k = 0; k < EMU_MAX_CQS; k++) {
        struct emu_cq *cq = d->cq[k];
        bool added = false;
        if (cq == NULL)
            continue;
        pthread_mutex_lock(&cq->lock);
        cq->late[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
        shm_ring_recover(d->seg, cq->ring, slot);
        for (uint64_t i = 0; (e = emu_cq_unread(d, cq, i)) != NULL; i++) {
            uint32_t b = (e->bounce - 1) & (EMU_BOUNCE_SLOTS - 1);
            if (e->bounce)
                used[b / 64] |= UINT64_C(1) << (b % 64);
            added |= atomic_load(&e->cell.owner) == slot;
        }
        pthread_mutex_unlock(&cq->lock);
        uint64_t note = atomic_load(&cq->s->armed);
        if (CQ_ARMED_SLOT(note) == slot) {
            notified(cq->s, note);
            if (cq->chan != NULL)
                cq->chan->undelivered = true;
        } else if (added) {
            emu_cq_notify(d, &d->self, k, true);
        }
    }
    settle_channels(d);
    pthread_mutex_unlock(&d->lock);
    late_free(d);
    for (uint32_t i = 0; i < EMU_BOUNCE_SLOTS; i++)
        /* the slot is checked last, to avoid touching pages of unused slots */
        if (!(atomic_load(&d->seg->bounce_free[i / 64]) >> (i % 64) & 1) &&
            !(used[i / 64] >> (i % 64) & 1) &&
            atomic_load(&shm_bounce(d->seg, i)->owner) == slot)
            shm_bounce_put(d->seg, i);
}
