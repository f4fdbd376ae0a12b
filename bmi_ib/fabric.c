/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fabric.c - open, close, polling and the function table.
 *
 * Poll: reads the CQ of each rail, without a system call.  Every few polls, other descriptors
 * are checked if a link is being set up or drained, or if the coarse clock has advanced.  All
 * other work sets `attention`, so that a poll without events tests one word.
 *
 * Lost wake-ups: arm() requests an event of the CQ; the engine then polls the CQ again and
 * sleeps only if it is empty.  A later completion makes the channel readable.  A CQ stays
 * armed until its event is fetched.  A link event raised outside its rail's poll writes the
 * eventfd (ib_link_events()).
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/bmi_ib.h"
#include "bmi_ib/link/links.h"
#include "bmi_ib/rail.h"

#define ACK_BATCH     64 /* completion events per acknowledgement, which takes a lock */
#define CONTROL_POLLS 64 /* polls per check of the other descriptors */

/* Prefers writers: threads that register all the time do not keep a device from its place. */
static void regs_init(struct ib_regs *r)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&r->rails, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&r->lock, NULL);
    list_init(&r->keys);
}

static void ib_close(struct rme_fabric *f)
{
    ib_resolver_close(f);
    for (unsigned i = 0; i < f->rails; i++)
        ib_links_release(f->rail[i]);
    ib_listen_close(f);
    for (unsigned i = f->rails; i-- > 0;)
        ib_rail_close(f->rail[i]);
    ib_device_unlist(f);
    ib_cm_close(f);
    ib_wake_close(f);
    pthread_rwlock_destroy(&f->regs.rails);
    pthread_mutex_destroy(&f->regs.lock);
    while (f->rails)
        ib_rail_drop(f);
    free(f);
}

static int ib_open(const struct rme_fabric_config *config, struct rme_fabric **out)
{
    static int (*const step[])(struct rme_fabric * f) = {
        ib_wake_open,  ib_device_list,     ib_cm_open,       ib_listen_bind, ib_rails_choose,
        ib_rails_open, ib_rails_addresses, ib_resolver_open, ib_listen_start};
    struct rme_fabric *f = calloc(1, sizeof(*f));
    int error = 0;
    if (f == NULL)
        return -ENOMEM;
    f->config = *config;
    f->wake_fd = f->sleep_fd = -1;
    f->route_timeout_ms = IB_ROUTE_TIMEOUT_MS;
    f->drain_ms = IB_DRAIN_MS;
    regs_init(&f->regs);
    for (size_t i = 0; !error && i < sizeof(step) / sizeof(*step); i++)
        error = step[i](f);
    if (error)
        ib_close(f);
    else
        *out = f;
    return error;
}

static const struct rme_caps *ib_caps(const struct rme_fabric *f)
{
    return &f->caps;
}

/* ---- Polling ---- */

/* Fetches the completion event of an armed CQ. */
static void comp_event(struct ib_rail *rail)
{
    struct ib_cq *c = &rail->cq;
    struct ibv_cq *cq;
    void *context;
    if (!c->armed || ibv_get_cq_event(rail->comp, &cq, &context))
        return;
    c->armed = false;
    if (++c->unacked == ACK_BATCH) {
        ibv_ack_cq_events(cq, c->unacked);
        c->unacked = 0;
    }
}

/* Looks at the descriptors of the rails and of rdma_cm.  All of them, also with a hint, so that
 * a busy source does not hide another one. */
static void check_descriptors(struct rme_fabric *f, unsigned hint)
{
    struct pollfd p[IB_RAILS_MAX + 1];
    for (unsigned i = 0; i < f->rails; i++) {
        const struct ibv_context *ctx = f->rail[i]->dev.ctx;
        p[i] = (struct pollfd){.fd = ctx != NULL ? ctx->async_fd : -1, .events = POLLIN};
    }
    p[f->rails] = (struct pollfd){.fd = f->cm->fd, .events = POLLIN};
    poll(p, f->rails + 1, 0);
    for (unsigned i = 0; i < f->rails; i++)
        if (f->rail[i]->dev.ctx != NULL && ((hint & IB_HINT_ASYNC(i)) || p[i].revents))
            ib_async_events(f->rail[i]);
    if ((hint & IB_HINT_CM) || p[f->rails].revents)
        ib_cm_events(f);
}

/* Handles everything except completions, unless nothing can have happened. */
static void control(struct rme_fabric *f)
{
    uint64_t now = ib_now_ms();
    bool moved = now != f->control_tick;
    unsigned hint;
    f->control_tick = now;
    f->polls = 0;
    if (!moved && !atomic_load_explicit(&f->hint, memory_order_relaxed) && !f->unsettled)
        return;
    f->controlling = true;
    hint = atomic_exchange(&f->hint, 0);
    if (f->reopen_at && now >= f->reopen_at)
        ib_rails_reopen(f, now);
    check_descriptors(f, hint);
    if (hint & IB_HINT_NAME)
        ib_link_names(f);
    ib_link_timers(f);
    f->controlling = false;
}

/* Delivers events in the order: links up, messages, completed transfers, links down. */
__attribute__((noinline)) static void emit_all(struct ib_rail *rail)
{
    ib_emit_links(rail);
    ib_emit_ready(rail);
    ib_emit_done(rail);
    ib_emit_links(rail);
}

/* Does the work of a poll behind its completions. */
__attribute__((noinline)) static void attend(struct ib_rail *rail)
{
    if (!list_empty(&rail->drained))
        ib_link_free_drained(rail);
    if (!list_empty(&rail->tx_waiters))
        ib_tx_rooms(rail);
    if (rail->resume) {
        rail->resume = false;
        ib_flush(rail);
    }
    emit_all(rail);
    rail->attention = rail->resume || rail->done.head != NULL || !list_empty(&rail->drained) ||
                      !list_empty(&rail->tx_waiters) || !list_empty(&rail->eventful) ||
                      !list_empty(&rail->rx_ready);
}

static int poll_rail(struct ib_rail *rail, struct rme_event *events, int max)
{
    rail->out = events;
    rail->out_used = 0;
    rail->out_max = max;
    if (rail->attention)
        emit_all(rail);
    ib_cq_poll(rail);
    if (rail->attention)
        attend(rail);
    rail->out = NULL;
    rail->out_max = 0;
    return rail->out_used;
}

/* Arms the CQ, unless the CQ has failed, or the device has failed and no link is draining.
 * While links of a failed device drain, a failure to arm is ignored.  The descriptors of a
 * removed device report EPOLLERR or EPOLLHUP forever and are removed from the epoll set. */
static int arm_rail(struct ib_rail *rail)
{
    struct ib_cq *c = &rail->cq;
    int ret;
    comp_event(rail); /* one that arrived during polling */
    if (c->armed || c->broken || (rail->dev.dead && !rail->draining))
        return 0;
    ret = ibv_req_notify_cq(c->cq, 0);
    if (ret && !rail->dev.dead) /* the links of a failed device end after IB_DRAIN_MS */
        return ib_error(ret);
    c->armed = !ret;
    return 0;
}

/* ---- All rails ---- */

static bool rx_return(struct rme_fabric *f, void *rx)
{
    return ib_rx_return(f->rail[((struct ib_rx *)rx)->rail], rx);
}

/* Flushes all rails.  Kept out of line, so that flush() with one rail saves no registers. */
__attribute__((noinline)) static void flush_rails(struct rme_fabric *f)
{
    for (unsigned i = 0; i < f->rails; i++)
        ib_flush(f->rail[i]);
}

static void flush(struct rme_fabric *f)
{
    if (f->rails > 1)
        flush_rails(f);
    else
        ib_flush(f->rail[0]);
}

/* Polls the rails in rotation, because one rail can fill the caller's array. */
__attribute__((noinline)) static int poll_rails(struct rme_fabric *f, struct rme_event *events,
                                                int max)
{
    int n = 0;
    f->poll_turn++;
    for (unsigned i = 0; i < f->rails && n < max; i++)
        n += poll_rail(f->rail[(f->poll_turn + i) % f->rails], events + n, max - n);
    return n;
}

static inline int poll_queues(struct rme_fabric *f, struct rme_event *events, int max)
{
    return f->rails > 1 ? poll_rails(f, events, max) : poll_rail(f->rail[0], events, max);
}

/* Kept out of line, so that poll_all() saves no registers. */
__attribute__((noinline)) static int poll_controlled(struct rme_fabric *f,
                                                     struct rme_event *events, int max)
{
    control(f);
    return poll_queues(f, events, max);
}

static int poll_all(struct rme_fabric *f, struct rme_event *events, int max)
{
    if (atomic_load_explicit(&f->hint, memory_order_relaxed) || ++f->polls >= CONTROL_POLLS)
        return poll_controlled(f, events, max);
    return poll_queues(f, events, max);
}

static int arm(struct rme_fabric *f)
{
    int error = 0;
    for (unsigned i = 0; i < f->rails && !error; i++)
        error = arm_rail(f->rail[i]);
    return error;
}

/* Returns the rkey for a peer, without windows; 0, which is invalid, if the device was dead at
 * registration. */
static uint64_t link_key(struct rme_link *l, uint64_t key)
{
    const struct ibv_mr *m = ib_key_mr(l->rail, key);
    return m != NULL ? m->rkey : 0;
}

static const char *ib_link_peer(const struct rme_link *l)
{
    return l->peer;
}

static const struct rme_fabric_ops ops = {
    .release = RME_RELEASE,
    .size = sizeof(struct rme_fabric_ops),
    .scheme = "ib",
    .options = ib_options,
    .open = ib_open,
    .close = ib_close,
    .caps = ib_caps,
    .listen_port = ib_listen_port,
    .reg = ib_reg,
    .dereg = ib_dereg,
    .link_connect = ib_link_connect,
    .link_accept = ib_link_accept,
    .link_reject = ib_link_reject,
    .link_disconnect = ib_link_disconnect,
    .link_free = ib_link_free,
    .link_peer = ib_link_peer,
    .link_path = ib_link_path,
    .link_key = link_key,
    .rx_reserve = ib_rx_reserve,
    .rx_release = ib_rx_release,
    .rx_return = rx_return,
    .tx_get = ib_tx_get,
    .tx_put = ib_tx_put,
    .tx_send = ib_tx_send,
    .tx_send_closing = ib_tx_send_closing,
    .send_now = ib_send_now,
    .rdma_op = ib_rdma_op,
    .mw_bind = ib_mw_bind,
    .mw_invalidate = ib_mw_invalidate,
    .flush = flush,
    .poll = poll_all,
    .arm = arm,
    .wait = ib_wait,
    .wake = ib_wake,
    .deadline = ib_link_deadline,
};

const struct rme_fabric_ops *bmi_ib_fabric(void)
{
    return &ops;
}
