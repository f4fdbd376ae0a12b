/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * probe.c - detects a TCP server at a port without an RDMA listener.
 *
 * The port may belong to bmi_tcp, or to the bmi_ib of OrangeFS, which connects by TCP; rdma_cm
 * only reports the lack of a listener.  The probe connects to the same address and port by TCP,
 * once; on success the reason of LINK_DOWN names the TCP server.  The connection is closed at
 * once, without data.
 *
 * Only LINK_DOWN of this link waits for the probe: until the socket is connected or refused,
 * probe_ms is over, or the engine abandons the link.  Without a server the refusal is as fast
 * as that of rdma_cm.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "bmi_ib/link/links.h"

void ib_probe_end(struct rme_link *l)
{
    TAILQ_REMOVE(&l->f->probes, l, probe_entry);
    close(l->probe);
    l->probe = -1;
    ib_link_down(l);
}

/* Returns true if the socket is connected to another one.  A socket that connects to an unused
 * local port may be given this port and connect to itself. */
static bool is_somebody(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t length = sizeof(own), peer_length = sizeof(peer);

    return getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_length) == 0 &&
           memcmp(&own, &peer, sizeof(own)) != 0;
}

bool ib_probe_start(struct rme_link *l)
{
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = IB_WAKES(l->f, IB_HINT_PROBE)};
    socklen_t length = l->sockaddr.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                         : sizeof(struct sockaddr_in);
    int fd = socket(l->sockaddr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return false;
    if (connect(fd, (const struct sockaddr *)&l->sockaddr, length) == 0) {
        l->by_tcp = is_somebody(fd);
    } else if (errno == EINPROGRESS &&
               epoll_ctl(l->f->sleep_fd, EPOLL_CTL_ADD, fd, &event) == 0) {
        l->probe = fd;
        l->probe_end = ib_now_ms() + (uint64_t)ib_option(l->f, "probe_ms");
        TAILQ_INSERT_TAIL(&l->f->probes, l, probe_entry);
        return true;
    }
    close(fd);
    return false;
}

void ib_probe_look(struct rme_fabric *f)
{
    uint64_t now = ib_now_ms();
    struct rme_link *l, *next;

    for (l = TAILQ_FIRST(&f->probes); l; l = next) {
        struct pollfd p = {.fd = l->probe, .events = POLLOUT};
        int error = ETIMEDOUT;
        socklen_t length = sizeof(error);

        next = TAILQ_NEXT(l, probe_entry);
        if (poll(&p, 1, 0) == 1) {
            if (getsockopt(l->probe, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
                error = errno;
            l->by_tcp = error == 0 && is_somebody(l->probe);
        } else if (now < l->probe_end) {
            continue;
        }
        ib_probe_end(l);
    }
}

uint64_t ib_probe_deadline(const struct rme_fabric *f)
{
    /* the timeout is the same for all, so the list is sorted */
    return TAILQ_EMPTY(&f->probes) ? UINT64_MAX : TAILQ_FIRST(&f->probes)->probe_end;
}
