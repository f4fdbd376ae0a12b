/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wait.c - polling, sleeping and waking.
 *
 * Sleep: one epoll set has the completion channel, the rdma_cm channel, the device's
 * asynchronous events and the eventfd of wake().  A sleeper that finds rdma_cm or asynchronous
 * events sets a hint bit for the next poll, which runs with the lock.  Completions need no
 * hint, because each poll reads the CQ; its event is fetched before the CQ is armed again.
 *
 * Poll: reads the CQ, without a system call.  Every few polls, other descriptors are checked
 * if a link is being set up or drained, or if the coarse clock has advanced.  All other work
 * sets `attention`, so that a poll without events tests one word.
 *
 * Lost wake-ups: arm() requests an event of the CQ; the engine then polls the CQ again and
 * sleeps only if it is empty.  A later completion makes the channel readable.  A CQ stays
 * armed until its event is fetched.  A link event raised outside its rail's poll writes the
 * eventfd (ib_tells()).
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "bmi_ib/link/links.h"
#include "bmi_ib/wait.h"

#define ACK_BATCH     64 /* completion events per acknowledgement, which takes a lock */
#define CONTROL_POLLS 64 /* polls per check of the other descriptors */

int ib_wait_watch(struct rme_fabric *f)
{
    const struct {
        int fd;
        uint32_t hint;
    } watched[] = {{f->comp->fd, 0},
                   {f->dev.ctx->async_fd, IB_HINT_ASYNC},
                   {f->wake_fd, IB_HINT_WAKE}, /* head only, with the next one */
                   {f->cm->fd, IB_HINT_CM}};
    for (unsigned i = 0; i < (f == f->head ? 4 : 2); i++) {
        struct epoll_event event = {.events = EPOLLIN,
                                    .data.u64 = IB_WAKES(watched[i].fd, f, watched[i].hint)};
        if (epoll_ctl(f->sleep_fd, EPOLL_CTL_ADD, watched[i].fd, &event) != 0) {
            int error = ib_errno();
            ib_log(f, RME_LOG_ERROR, "device %s: cannot wait for events: %s", f->dev.name,
                   strerror(-error));
            return error;
        }
    }
    return 0;
}

/* ---- Polling ---- */

/* Fetches the completion event of an armed CQ. */
static void comp_event(struct rme_fabric *f)
{
    struct ib_cq *c = &f->cq;
    struct ibv_cq *cq;
    void *context;
    if (!c->armed || ibv_get_cq_event(f->comp, &cq, &context))
        return;
    c->armed = false;
    if (++c->unacked == ACK_BATCH) {
        ibv_ack_cq_events(cq, c->unacked);
        c->unacked = 0;
    }
}

/* Handles everything except completions, unless nothing can have happened. */
__attribute__((noinline)) static void control(struct rme_fabric *f)
{
    uint64_t now = ib_now_ms();
    bool moved = now != f->control_tick;
    f->control_tick = now;
    f->polls = 0;
    if (!moved && !atomic_load_explicit(&f->hint, memory_order_relaxed) &&
        !f->head->connecting && TAILQ_EMPTY(&f->draining))
        return;
    unsigned hint = atomic_exchange(&f->hint, 0);
    struct pollfd p[] = {{.fd = f->dev.ctx->async_fd, .events = POLLIN},
                         {.fd = f->cm->fd, .events = POLLIN}};
    /* also with a hint, so that a busy source does not hide the other one */
    poll(p, f == f->head ? 2 : 1, 0);
    if ((hint & IB_HINT_ASYNC) || p[0].revents)
        ib_async_events(f);
    if ((hint & IB_HINT_CM) || p[1].revents)
        ib_cm_events(f);
    if (hint & IB_HINT_NAME)
        ib_link_names(f);
    ib_link_timers(f);
}

/* Delivers events in the order: links up, messages, completed transfers, links down. */
__attribute__((noinline)) static void emit_all(struct rme_fabric *f)
{
    ib_emit_links(f);
    ib_emit_ready(f);
    ib_emit_done(f);
    ib_emit_downs(f);
}

/* Does the work of a poll behind its completions. */
__attribute__((noinline)) static void attend(struct rme_fabric *f)
{
    if (!TAILQ_EMPTY(&f->drained))
        ib_link_free_drained(f);
    if (!TAILQ_EMPTY(&f->tx_waiters))
        ib_tx_rooms(f);
    if (f->resume) {
        f->resume = false;
        ib_flush(f);
    }
    emit_all(f);
    f->attention = f->resume || f->done.head || !TAILQ_EMPTY(&f->drained) ||
                   !TAILQ_EMPTY(&f->tx_waiters) || !TAILQ_EMPTY(&f->eventful) ||
                   !STAILQ_EMPTY(&f->rx_ready) || !TAILQ_EMPTY(&f->downs);
}

int ib_poll(struct rme_fabric *f, struct rme_event *events, int max)
{
    f->out = events;
    f->out_used = 0;
    f->out_max = max;
    if (atomic_load_explicit(&f->hint, memory_order_relaxed) || ++f->polls >= CONTROL_POLLS)
        control(f);
    if (f->attention)
        emit_all(f);
    ib_cq_poll(f);
    if (f->attention)
        attend(f);
    f->out = NULL;
    f->out_max = 0;
    return f->out_used;
}

/* ---- Sleeping ---- */

/*
 * Returns true if the device has failed and no completions are pending.  Flushed requests are
 * awaited as usual.  After the last QP is gone no CQ is armed, and a failure to arm is ignored.
 * The descriptors of a removed device report EPOLLERR or EPOLLHUP forever and are removed from
 * the epoll set.
 */
static bool is_silent(const struct rme_fabric *f)
{
    return f->dev.dead && TAILQ_EMPTY(&f->draining);
}

int ib_arm(struct rme_fabric *f)
{
    struct ib_cq *c = &f->cq;
    comp_event(f); /* one that arrived during polling */
    if (is_silent(f) || c->armed || c->broken)
        return 0;
    int ret = ibv_req_notify_cq(c->cq, 0);
    if (ret && !f->dev.dead) /* the links of a failed device end after IB_DRAIN_MS */
        return ib_error(ret);
    c->armed = !ret;
    return 0;
}

void ib_wait(struct rme_fabric *f, int timeout_ms)
{
    struct epoll_event event[4];
    int n = epoll_wait(f->sleep_fd, event, 4, timeout_ms);
    unsigned woken = 0;
    for (int i = 0; i < n; i++) {
        uint64_t data = event[i].data.u64;
        unsigned hint = data & 0xff;
        woken |= hint;
        hint &= IB_HINT_CM | IB_HINT_ASYNC;
        if (hint)
            atomic_fetch_or(&f->rail[data >> 8 & 0xff]->hint, hint);
        /* a descriptor of a failed device, which would end each sleep */
        if (event[i].events & (EPOLLERR | EPOLLHUP) && !(event[i].events & EPOLLIN))
            epoll_ctl(f->sleep_fd, EPOLL_CTL_DEL, (int)(data >> 32), NULL);
    }
    if (woken & IB_HINT_WAKE) {
        eventfd_t count;
        if (eventfd_read(f->wake_fd, &count) < 0 && errno != EAGAIN)
            ib_log(f, RME_LOG_WARN, "reading the wake descriptor: %s", strerror(errno));
    }
}
