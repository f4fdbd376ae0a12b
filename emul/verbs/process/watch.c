/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Descriptors watched by the service thread. The data of each names its kind, and a socket or a
 * peer. No descriptor announces that a peer executes another program, or that a peer could not
 * wake this process. So both are also checked at intervals, which are shorter without pidfds.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define PEER_CHECK_MS   1000
#define PEER_WITHOUT_MS 100 /* without pidfds */

static struct {
    int epfd, bell;
    _Atomic bool without;    /* some peers have no pidfd */
    _Atomic unsigned peers;  /* number of watched peers */
    pthread_mutex_t lock;    /* protects the rest; innermost */
    uint64_t closed, waited; /* number of closed descriptors; the same before the last wait */
} set = {.epfd = -1, .bell = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

int emu_watch_open(void)
{
    atomic_store(&set.without, false);
    atomic_store(&set.peers, 0);
    set.epfd = sys_no_stream(epoll_create1(EPOLL_CLOEXEC));
    return set.epfd < 0 ? -errno : 0;
}

void emu_watch_close(void)
{
    sys_close(set.epfd);
    set.epfd = -1;
}

void emu_watch_forked(void)
{
    pthread_mutex_init(&set.lock, NULL);
    if (emu_is_own(set.bell)) /* then so is the set */
        emu_watch_close();
    set.epfd = -1;
}

static int change(int op, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};

    return epoll_ctl(set.epfd, op, fd, &ev) < 0 ? -errno : 0;
}

int emu_watch(int fd, enum emu_watch what)
{
    bool edge = what == EMU_WATCH_BELL || what == EMU_WATCH_TIMER; /* are never read */

    if (what == EMU_WATCH_BELL)
        set.bell = fd;
    emu_own(fd);
    return change(EPOLL_CTL_MOD, fd, edge ? EPOLLIN | EPOLLET : EPOLLIN,
                  ((uint64_t)fd << 3) | what);
}

void emu_unwatch_close(int fd)
{
    pthread_mutex_lock(&set.lock);
    set.closed++;
    emu_own_close(fd);
    pthread_mutex_unlock(&set.lock);
}

bool emu_watch_hold(void)
{
    pthread_mutex_lock(&set.lock);
    if (set.closed == set.waited)
        return true;
    pthread_mutex_unlock(&set.lock);
    return false;
}

void emu_watch_let_go(void)
{
    pthread_mutex_unlock(&set.lock);
}

void emu_watch_peer(struct emu_dev *d, struct emu_peer *p)
{
    bool first = atomic_fetch_add(&set.peers, 1) == 0;

    if (p->pidfd >= 0)
        change(EPOLL_CTL_MOD, p->pidfd, EPOLLIN, (uint64_t)(uintptr_t)p | EMU_WATCH_PEER);
    else if (!atomic_exchange(&set.without, true) || first)
        emu_service_wake(d); /* shortens its interval */
}

void emu_unwatch_peer(struct emu_peer *p)
{
    if (p->pidfd >= 0)
        change(EPOLL_CTL_MOD, p->pidfd, EPOLLET, EMU_WATCH_OWN);
    atomic_fetch_sub(&set.peers, 1);
}

/* Returns the check interval. Also used without peers: an unknown peer may lack a descriptor to
 * wake this process. */
static int period_ms(void)
{
    return atomic_load(&set.peers) && atomic_load(&set.without) ? PEER_WITHOUT_MS
                                                                : PEER_CHECK_MS;
}

uint64_t emu_watch_period(void)
{
    return (uint64_t)period_ms() * (EMU_NSEC / 1000);
}

/* Reports that the program has closed descriptors of the library, as daemons may, and falls
 * back to checks at intervals. */
static void poll_by_time(int err)
{
    static _Atomic int said;

    if (!atomic_exchange(&said, 1))
        fprintf(
            stderr,
            "emuverbs: the program closed descriptors of the software HCA (%s): events are "
            "found by a timer from now on, and connections may be lost; close only descriptors "
            "that the program opened (not closefrom, close_range)\n",
            strerror(err));
    atomic_store(&set.without, true);
    usleep(PEER_WITHOUT_MS * 1000);
}

int emu_watch_wait(struct emu_watched *seen, int most)
{
    struct epoll_event ev[EMU_WATCHED_MAX];

    pthread_mutex_lock(&set.lock);
    set.waited = set.closed;
    pthread_mutex_unlock(&set.lock);
    /* a set of the program may have the number */
    int n = emu_is_own(set.bell) ? epoll_wait(set.epfd, ev, most, period_ms()) : -1;

    if (n < 0 && errno != EINTR)
        poll_by_time(errno);
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

void emu_own(int fd)
{
    change(EPOLL_CTL_ADD, fd, EPOLLET, EMU_WATCH_OWN); /* an error is seen once */
}

bool emu_is_own(int fd)
{
    /* an entry is a number and its file */
    int err = change(EPOLL_CTL_ADD, fd, EPOLLET, EMU_WATCH_OWN);

    if (!err) {
        epoll_ctl(set.epfd, EPOLL_CTL_DEL, fd, NULL);
        errno = EBADF;
    }
    return err == -EEXIST;
}

void emu_own_drop(int fd)
{
    if (emu_is_own(fd))
        sys_close(fd);
}

void emu_own_close(int fd)
{
    if (epoll_ctl(set.epfd, EPOLL_CTL_DEL, fd, NULL) == 0)
        sys_close(fd);
}

int emu_events_open(int *counter, int flags)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int fd = sys_no_stream(epoll_create1(EPOLL_CLOEXEC));

    if (fd < 0)
        return -1;
    *counter = sys_no_stream(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE | flags));
    if (*counter >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, *counter, &ev) == 0) {
        emu_own(*counter);
        emu_own(fd);
        return fd;
    }
    int err = errno;
    if (*counter >= 0)
        sys_close(*counter);
    sys_close(fd);
    errno = err;
    return -1;
}

void emu_events_close(int fd, int counter)
{
    emu_own_close(fd);
    emu_own_close(counter);
}

int emu_events_take(int fd, int counter)
{
    uint64_t one;
    struct iovec v = {&one, sizeof(one)};
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || !emu_is_own(counter)) {
        errno = EBADF;
        return -1;
    }
    return (flags & O_NONBLOCK ? preadv2(counter, &v, 1, -1, RWF_NOWAIT)
                               : read(counter, &one, sizeof(one))) < 0
               ? -1
               : 0;
}

bool emu_kick(int fd)
{
    uint64_t one = 1;
    ssize_t n;

    if (!emu_is_own(fd)) {
        errno = EBADF;
        return false;
    }
    do
        n = sys_write(fd, &one, sizeof(one));
    while (n < 0 && errno == EINTR);
    return n > 0;
}

void emu_service_wake(struct emu_dev *d)
{
    emu_kick(d->seg->bell_fd);
}
