/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wake.c - descriptors that end a sleep: an eventfd for ib_wake(), and an epoll set (wait.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/remedy.h"
#include "bmi_ib/device/device.h"

int ib_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? ib_errno() : 0;
}

int ib_wake_open(struct rme_fabric *f)
{
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->sleep_fd = epoll_create1(EPOLL_CLOEXEC);
    if (f->wake_fd >= 0 && f->sleep_fd >= 0)
        return 0;
    int error = ib_errno();
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
