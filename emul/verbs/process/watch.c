/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the service thread waits for. Each descriptor says what it is, and which: a socket, or a
 * peer. Where the kernel has no pidfds, peers are looked after by time.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <sys/epoll.h>

#define PEER_CHECK_MS 100

static struct {
    int epfd;
    _Atomic bool check_peers; /* some have no pidfd */
} set = {.epfd = -1};

int emu_watch_open(void)
{
    atomic_store(&set.check_peers, false);
    set.epfd = epoll_create1(EPOLL_CLOEXEC);
    return set.epfd < 0 ? -errno : 0;
}

void emu_watch_forked(void)
{
    sys_close(set.epfd);
}

static int add(int fd, uint64_t data)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

    return epoll_ctl(set.epfd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

int emu_watch(int fd, enum emu_watch what)
{
    return add(fd, ((uint64_t)fd << 3) | what);
}

void emu_watch_peer(struct emu_dev *d, struct emu_peer *p)
{
    if (p->pidfd >= 0) {
        add(p->pidfd, (uint64_t)(uintptr_t)p | EMU_WATCH_PEER);
    } else if (!atomic_exchange(&set.check_peers, true)) {
        emu_service_wake(d);
    }
}

void emu_unwatch_peer(struct emu_peer *p)
{
    if (p->pidfd >= 0)
        epoll_ctl(set.epfd, EPOLL_CTL_DEL, p->pidfd, NULL);
}

bool emu_watch_by_time(void)
{
    return atomic_load(&set.check_peers);
}

int emu_watch_wait(struct emu_watched *seen, int most)
{
    struct epoll_event ev[EMU_WATCHED_MAX];
    int n = epoll_wait(set.epfd, ev, most, emu_watch_by_time() ? PEER_CHECK_MS : -1);

    for (int i = 0; i < n; i++) {
        uint64_t data = ev[i].data.u64;
        seen[i].what = (enum emu_watch)(data & 7);
        if (seen[i].what == EMU_WATCH_PEER)
            seen[i].peer = (struct emu_peer *)(uintptr_t)(data & ~UINT64_C(7));
        else
            seen[i].fd = (int)(data >> 3);
    }
    return n;
}

bool emu_kick(int fd)
{
    uint64_t one = 1;
    ssize_t n;

    do
        n = sys_write(fd, &one, sizeof(one));
    while (n < 0 && errno == EINTR);
    return n > 0;
}

void emu_service_wake(struct emu_dev *d)
{
    emu_kick(d->seg->bell_fd);
}
