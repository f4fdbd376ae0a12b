/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * poll.c - events, sleeping and waking.
 *
 * All that a host waits for ends in a packet in our input queue: messages, and by their chains
 * our own transfers. So one thing is looked at, and one slept for: the inbox, whose descriptor
 * is in one epoll with that for wake(), that for traps, and those of greet.c. While the inbox
 * is armed its packets are left to its sleeper, which hands them back before it makes the
 * descriptor readable.
 *
 * What has no packet is found by looking again: that the memory of a message is free, that a
 * peer's command queue is, that an ending link's time is over. deadline() asks for that only
 * while somebody waits for it.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"

enum { AT_INBOX, AT_WAKE, AT_TRAP, AT_GREET };

int64_t elan_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int watch(struct rme_fabric *f, int fd, uint32_t events, uint32_t what)
{
    struct epoll_event e = {.events = events, .data.u32 = what};

    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

int elan_watch(struct rme_fabric *f, int fd, uint32_t events)
{
    return watch(f, fd, events, AT_GREET);
}

int elan_wait_open(struct rme_fabric *f)
{
    int rc;

    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    rc = f->wake_fd < 0 || f->epoll_fd < 0 ? -errno : watch(f, f->wake_fd, EPOLLIN, AT_WAKE);
    if (rc == 0)
        rc = watch(f, bmi_elan4_inbox_fd(f->inbox), EPOLLIN, AT_INBOX);
    if (rc == 0)
        rc = watch(f, f->nic->trap_fd, EPOLLIN, AT_TRAP);
    if (rc == 0 && f->desk)
        rc = watch(f, bmi_elan4_desk_fd(f->desk), EPOLLIN, AT_GREET);
    if (rc < 0)
        elan_log(f, RME_LOG_ERROR,
                 "no descriptor to sleep on: %s; raise the limit of open files", strerror(-rc));
    return rc;
}

void elan_wait_close(struct rme_fabric *f)
{
    if (f->epoll_fd >= 0)
        close(f->epoll_fd);
    if (f->wake_fd >= 0)
        close(f->wake_fd);
}

/* ---- Events ---- */

struct rme_event *elan_emit(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l)
{
    struct rme_event *e = &f->out[f->used++];

    *e = (struct rme_event){.type = type, .link = l, .owner = l->owner};
    return e;
}

static void emit_hello(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l)
{
    struct rme_event *e = elan_emit(f, type, l);

    if (!l->heard)
        return;
    e->hello = l->hello;
    e->hello_length = l->hello_length;
}

/* LINK_DOWN is the last of it. */
void elan_tell(struct rme_link *l)
{
    struct rme_fabric *f = l->f;

    if (l->tell_request && elan_room(f)) {
        l->tell_request = false;
        emit_hello(f, RME_EV_LINK_REQUEST, l);
    }
    if (l->tell_up && elan_room(f)) {
        l->tell_up = false;
        emit_hello(f, RME_EV_LINK_UP, l);
    }
    if (l->tell_room && elan_room(f)) {
        l->tell_room = false;
        elan_emit(f, RME_EV_TX_ROOM, l);
    }
    if (l->tell_down && elan_room(f)) {
        l->tell_down = false;
        emit_hello(f, RME_EV_LINK_DOWN, l);
        f->out[f->used - 1].error = l->error;
    }
}

static void tell_all(struct rme_fabric *f)
{
    struct rme_link *l;

    while (elan_room(f) && (l = TAILQ_FIRST(&f->eventful)) != NULL) {
        TAILQ_REMOVE(&f->eventful, l, eventful_next);
        l->eventful = false;
        elan_tell(l);
        if (l->tell_request || l->tell_up || l->tell_room || l->tell_down)
            elan_link_eventful(l);
    }
}

static void look_around(struct rme_fabric *f)
{
    bool hint = atomic_exchange(&f->hint, 0);
    int64_t now = elan_now();

    if (hint || f->callings || f->polls % 64 == 0)
        elan_greet_calls(f, now);
    elan_links_check(f, now);
    if (!TAILQ_EMPTY(&f->owed))
        elan_links_tell(f);
    if (f->kept_moves && f->polls % 64 == 0)
        elan_moves_check(f, now);
    elan_tx_overdue(f, now);
    if (f->died)
        elan_owners_check(f);
}

/* When to look again for what is found by that only, in milliseconds; 0: there is nothing. */
static int restless(const struct rme_fabric *f)
{
    if (!TAILQ_EMPTY(&f->ending) || elan_tx_restless(f) || !TAILQ_EMPTY(&f->ready) ||
        !TAILQ_EMPTY(&f->eventful) || f->died)
        return ELAN_RESTLESS_MS;
    return !TAILQ_EMPTY(&f->resting) || !TAILQ_EMPTY(&f->owed) ? ELAN_LOOK_MS : 0;
}

int elan_op_poll(struct rme_fabric *f, struct rme_event *events, int max)
{
    f->out = events;
    f->used = 0;
    f->max = max;
    f->polls++;
    if (atomic_load(&f->hint) || f->callings || !TAILQ_EMPTY(&f->ending) || f->died ||
        f->polls % 64 == 0)
        look_around(f);
    if (atomic_load_explicit(&f->nic->traps, memory_order_relaxed) != f->traps)
        elan_refusals(f);
    tell_all(f);
    elan_rx_ready(f);
    elan_rx_take(f);
    elan_tx_landed(f);
    if (!TAILQ_EMPTY(&f->dirty))
        elan_op_flush(f);
    tell_all(f);
    f->out = NULL;
    f->max = 0;
    atomic_store_explicit(&f->restless, restless(f), memory_order_relaxed);
    return f->used;
}

/* ---- Sleeping ---- */

int elan_op_arm(struct rme_fabric *f)
{
    bmi_elan4_inbox_arm(f->inbox);
    return 0;
}

void elan_op_wait(struct rme_fabric *f, int timeout_ms)
{
    struct epoll_event e[4];
    eventfd_t count;
    int most = atomic_load(&f->restless);
    int n = epoll_wait(f->epoll_fd, e, 4,
                       most && (timeout_ms < 0 || timeout_ms > most) ? most : timeout_ms);

    if (n == 0)
        atomic_store(&f->hint, 1); /* perhaps it was the time for something */
    for (int i = 0; i < n; i++) {
        if (e[i].data.u32 == AT_GREET)
            atomic_store(&f->hint, 1);
        else
            eventfd_read(e[i].data.u32 == AT_WAKE   ? f->wake_fd
                         : e[i].data.u32 == AT_TRAP ? f->nic->trap_fd
                                                    : bmi_elan4_inbox_fd(f->inbox),
                         &count);
    }
}

void elan_op_wake(struct rme_fabric *f)
{
    eventfd_write(f->wake_fd, 1);
}

int elan_op_deadline(struct rme_fabric *f)
{
    int64_t desk = f->desk ? bmi_elan4_desk_deadline(f->desk) : -1;

    if (restless(f))
        return restless(f);
    if (!TAILQ_EMPTY(&f->sending))
        return ELAN_LOOK_MS;
    if (desk < 0)
        return -1;
    desk -= elan_now();
    return desk < 0 ? 0 : (int)desk;
}
