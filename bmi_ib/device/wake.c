/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wake.c - sleeping.
 *
 * One epoll set has the completion channels, the rdma_cm channel, the devices' asynchronous
 * events and the eventfd of ib_wake().  A sleeper that finds rdma_cm or asynchronous events
 * sets a hint bit for the next poll, which runs with the lock.  Completions need no hint,
 * because each poll reads the CQ; its event is fetched before the CQ is armed again.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/log.h"
#include "bmi_ib/device/device.h"

int ib_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? ib_errno() : 0;
}

int ib_wake_open(struct rme_fabric *f)
{
    int error;
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->sleep_fd = epoll_create1(EPOLL_CLOEXEC);
    if (f->wake_fd >= 0 && f->sleep_fd >= 0)
        return ib_wait_add(f, f->wake_fd, IB_HINT_WAKE);
    error = ib_errno();
    ib_log(f, RME_LOG_ERROR, "no descriptor to sleep on: %s; %s", strerror(-error),
           rme_remedy(error, "see the kernel log (dmesg)"));
    return error;
}

void ib_wake_close(struct rme_fabric *f)
{
    if (f->sleep_fd >= 0)
        close(f->sleep_fd);
    if (f->wake_fd >= 0)
        close(f->wake_fd);
    f->sleep_fd = f->wake_fd = -1;
}

/* The resolver's threads call this, too; eventfd_write() instead of write(): see thread.h. */
void ib_wake(struct rme_fabric *f)
{
    if (eventfd_write(f->wake_fd, 1) < 0 && errno != EAGAIN) /* EAGAIN: a wake-up is pending */
        ib_log(f, RME_LOG_WARN, "writing the wake descriptor: %s", strerror(errno));
}

int ib_wait_add(struct rme_fabric *f, int fd, unsigned hint)
{
    struct epoll_event event = {.events = EPOLLIN,
                                .data.u64 = (uint64_t)(unsigned)fd << 32 | hint};
    int error = epoll_ctl(f->sleep_fd, EPOLL_CTL_ADD, fd, &event) ? ib_errno() : 0;
    if (error)
        ib_log(f, RME_LOG_ERROR, "cannot wait for events: %s", strerror(-error));
    return error;
}

int ib_wait_watch(struct ib_rail *rail)
{
    int error = ib_wait_add(rail->fabric, rail->comp->fd, 0);
    return error ? error
                 : ib_wait_add(rail->fabric, rail->dev.ctx->async_fd,
                               IB_HINT_ASYNC(rail->number));
}

void ib_wait_unwatch(struct ib_rail *rail)
{
    if (rail->comp != NULL)
        epoll_ctl(rail->fabric->sleep_fd, EPOLL_CTL_DEL, rail->comp->fd, NULL);
    if (rail->dev.ctx != NULL)
        epoll_ctl(rail->fabric->sleep_fd, EPOLL_CTL_DEL, rail->dev.ctx->async_fd, NULL);
}

/* Removes a descriptor of a failed device, which would end each sleep.  Once the device is
 * opened again, the number may be that of a descriptor without an error. */
static void unwatch_dead(struct rme_fabric *f, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (pthread_rwlock_tryrdlock(&f->regs.rails))
        return;
    if (poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLHUP) && !(p.revents & POLLIN))
        epoll_ctl(f->sleep_fd, EPOLL_CTL_DEL, fd, NULL);
    pthread_rwlock_unlock(&f->regs.rails);
}

void ib_wait(struct rme_fabric *f, int timeout_ms)
{
    struct epoll_event event[4];
    int n = epoll_wait(f->sleep_fd, event, 4, timeout_ms);
    unsigned woken = 0;
    for (int i = 0; i < n; i++) {
        uint64_t data = event[i].data.u64;
        woken |= (unsigned)data;
        if (event[i].events & (EPOLLERR | EPOLLHUP) && !(event[i].events & EPOLLIN))
            unwatch_dead(f, (int)(data >> 32));
    }
    if (woken & ~IB_HINT_WAKE)
        atomic_fetch_or(&f->hint, woken & ~IB_HINT_WAKE);
    if (woken & IB_HINT_WAKE) {
        eventfd_t count;
        if (eventfd_read(f->wake_fd, &count) < 0 && errno != EAGAIN)
            ib_log(f, RME_LOG_WARN, "reading the wake descriptor: %s", strerror(errno));
    }
}
