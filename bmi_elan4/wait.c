/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wait.c - sleeping and waking.
 *
 * Everything that a host waits for ends in a packet in the own input queue: messages, and, by
 * their chains, own transfers.  Polling and sleeping therefore need only the inbox, whose
 * descriptor is in an epoll set with those of wake(), of traps and of handshake.c.  While the
 * inbox is armed, its packets belong to its sleeper thread, which returns them before it makes
 * the descriptor readable.
 *
 * Conditions without a packet are polled for every few milliseconds while something waits for
 * them.  This may begin while another thread sleeps without a limit: elan_look_soon() ends that
 * sleep.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/remedy.h"
#include "bmi_elan4/elan.h"
#include "bmi_elan4/kernel.h"

enum { AT_INBOX, AT_WAKE, AT_TRAP, AT_HANDSHAKE };

static int watch(struct rme_fabric *f, int fd, uint32_t events, uint32_t what)
{
    struct epoll_event e = {.events = events, .data.u32 = what};

    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

int elan_watch(struct rme_fabric *f, int fd, uint32_t events)
{
    return watch(f, fd, events, AT_HANDSHAKE);
}

int elan_wait_open(struct rme_fabric *f)
{
    int rc;

    f->wake_fd = bmi_elan4_signal();
    f->epoll_fd = bmi_elan4_epoll();
    rc = f->wake_fd < 0 || f->epoll_fd < 0 ? -errno : watch(f, f->wake_fd, EPOLLIN, AT_WAKE);
    if (rc == 0)
        rc = watch(f, bmi_elan4_inbox_fd(f->inbox), EPOLLIN, AT_INBOX);
    if (rc == 0)
        rc = watch(f, f->nic->trap_fd, EPOLLIN, AT_TRAP);
    if (rc == 0 && f->bootstrap)
        rc = watch(f, bmi_elan4_bootstrap_fd(f->bootstrap), EPOLLIN | EPOLLET, AT_HANDSHAKE);
    if (rc < 0)
        elan_log(f, RME_LOG_ERROR, "no descriptor to sleep on: %s; %s", strerror(-rc),
                 rme_remedy(rc, "see the kernel log (dmesg)"));
    return rc;
}

void elan_wait_close(struct rme_fabric *f)
{
    if (f->epoll_fd >= 0)
        close(f->epoll_fd);
    if (f->wake_fd >= 0)
        close(f->wake_fd);
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
        if (e[i].data.u32 == AT_HANDSHAKE)
            atomic_store(&f->hint, 1);
        else
            bmi_elan4_signal_clear(e[i].data.u32 == AT_WAKE   ? f->wake_fd
                                   : e[i].data.u32 == AT_TRAP ? f->nic->trap_fd
                                                              : bmi_elan4_inbox_fd(f->inbox));
    }
}

void elan_op_wake(struct rme_fabric *f)
{
    bmi_elan4_signal_raise(f->wake_fd);
}

void elan_look_soon(struct rme_fabric *f)
{
    if (atomic_load(&f->restless) != 0) /* a sleeper has a limit already */
        return;
    atomic_store(&f->restless, ELAN_RESTLESS_MS);
    elan_op_wake(f);
}
