/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * event.c - events of a poll, sleeping and waking.
 *
 * Everything that a host waits for ends in a packet in the own input queue: messages, and, by
 * their chains, own transfers.  Polling and sleeping therefore need only the inbox.  One
 * signal, the nic's, ends a sleep.  An armed inbox, traps and wake() raise the signal, whose
 * descriptor is in an epoll set with those of handshake.c.  While the inbox is armed, its
 * packets belong to its sleeper thread, which returns them before it raises the signal.
 *
 * Conditions without a packet are polled for every few milliseconds while something waits for
 * them.  Such a wait may begin while another thread sleeps without a limit: elan_check_soon()
 * ends that sleep.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "bmi_elan4/elan.h"
#include "bmi_elan4/kernel.h"

struct rme_event *elan_emit(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l)
{
    struct rme_event *e = &f->out[f->used++];

    *e = (struct rme_event){.type = type, .link = l, .owner = l->owner};
    return e;
}

void elan_report(struct rme_link *l)
{
    for (int type = 0; type <= RME_EV_TX_ROOM && elan_room(l->f); type++) {
        struct rme_event *e;
        if (!(l->reports & 1u << type)) /* enum elan_report */
            continue;
        l->reports &= ~(1u << type);
        e = elan_emit(l->f, (enum rme_event_type)type, l);
        if (l->has_hello) {
            e->hello = l->hello;
            e->hello_length = l->hello_length;
        }
        if (type == RME_EV_LINK_DOWN) {
            e->error = l->error;
            e->why = l->why;
        }
    }
}

void elan_report_all(struct rme_fabric *f)
{
    struct rme_link *l;

    while (elan_room(f) &&
           (l = list_first(&f->eventful, struct rme_link, eventful_next)) != NULL) {
        ELAN_REMOVE(l, eventful);
        elan_report(l);
        if (l->reports)
            ELAN_ADD(l, eventful);
    }
}

/* ---- Sleeping ---- */

int elan_watch(struct rme_fabric *f, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.fd = fd};

    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

int elan_wait_open(struct rme_fabric *f)
{
    int rc;

    f->epoll_fd = bmi_elan4_epoll();
    rc = f->epoll_fd < 0 ? -errno : elan_watch(f, f->nic->signal.fd, EPOLLIN);
    if (rc == 0 && f->bootstrap.listener >= 0)
        rc = elan_watch(f, f->bootstrap.listener, EPOLLIN | EPOLLET);
    if (rc < 0)
        elan_log(f, RME_LOG_ERROR, "no descriptor to sleep on: %s; %s", strerror(-rc),
                 rme_remedy(rc, "see the kernel log (dmesg)"));
    return rc;
}

int elan_op_arm(struct rme_fabric *f)
{
    bmi_elan4_inbox_arm(f->inbox);
    return 0;
}

void elan_op_wait(struct rme_fabric *f, int timeout_ms)
{
    struct epoll_event e[4];
    int most = atomic_load(&f->restless);
    int n = epoll_wait(f->epoll_fd, e, 4,
                       most && (timeout_ms < 0 || timeout_ms > most) ? most : timeout_ms);

    if (n == 0)
        atomic_store(&f->hint, 1); /* a timeout may be due */
    for (int i = 0; i < n; i++) {
        if (e[i].data.fd == f->nic->signal.fd)
            bmi_elan4_signal_clear(&f->nic->signal);
        else
            atomic_store(&f->hint, 1);
    }
}

void elan_op_wake(struct rme_fabric *f)
{
    bmi_elan4_signal_raise(&f->nic->signal);
}

void elan_check_soon(struct rme_fabric *f)
{
    if (atomic_load(&f->restless) != 0) /* a sleeper has a limit already */
        return;
    atomic_store(&f->restless, ELAN_RESTLESS_MS);
    elan_op_wake(f);
}
