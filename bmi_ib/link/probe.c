/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * probe.c - who is there, when nobody listens for us?
 *
 * bmi_tcp, and the bmi_ib that OrangeFS brings, which connects by TCP, may have been given the
 * port that we were sent to.  rdma_cm only says that nobody listens.  So the same address and
 * port are connected to once by TCP; if that succeeds, the link's end says so.  Nothing is
 * sent, and the connection is closed at once.
 *
 * Nobody waits for it but the link: its device is done with it, only LINK_DOWN is held back
 * until the socket is connected or refused, probe_ms is over, or the engine gives the link up.
 * On a machine that has nobody there at all the refusal comes back as soon as rdma_cm's did.
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

/* A socket that connects to a port that nobody listens at may be given that very port, and
 * meets itself. */
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
    /* all have the same patience, so the first is over first */
    return TAILQ_EMPTY(&f->probes) ? UINT64_MAX : TAILQ_FIRST(&f->probes)->probe_end;
}
