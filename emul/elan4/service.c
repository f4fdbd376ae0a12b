/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine's thread. The thread sleeps until its eventfd is signalled, a due time is reached,
 * or a process dies that is mapped here or maps this segment. Then the thread runs the engine
 * and delivers traps. Without work the thread never wakes up.
 *
 * A thread that adds work checks `asleep` afterwards; the engine's thread checks for work after
 * setting `asleep`. So one of them sees the other.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define CHECK_PAUSE_US 100000
#define EVENTS         16

enum watch { WATCH_BELL, WATCH_TIMER, WATCH_USER, WATCH_PEER, WATCH_OWN };

static struct {
    int epfd, timerfd;
    int user_fd[EMU4_USERS];
    pthread_t thread;
} svc;

#define KEY(kind, value) ((uint64_t)(kind) << 60 | (uint64_t)(value))

static int change(int op, int fd, uint32_t events, uint64_t key)
{
    struct epoll_event ev = {.events = events, .data.u64 = key};

    return epoll_ctl(svc.epfd, op, fd, &ev);
}

static int watch(int fd, uint64_t key)
{
    return change(EPOLL_CTL_ADD, fd, EPOLLIN, key);
}

void emu4_own(int fd)
{
    change(EPOLL_CTL_ADD, fd, EPOLLET, KEY(WATCH_OWN, 0));
}

bool emu4_is_own(int fd)
{
    /* an entry is a number and its file */
    if (change(EPOLL_CTL_ADD, fd, EPOLLET, KEY(WATCH_OWN, 0)) < 0)
        return errno == EEXIST;
    change(EPOLL_CTL_DEL, fd, 0, 0);
    return false;
}

void emu4_own_close(int fd)
{
    if (change(EPOLL_CTL_DEL, fd, 0, 0) == 0)
        close(fd);
}

void emu4_service_watch(struct emu4_peer *peer)
{
    if (watch(peer->pidfd, KEY(WATCH_PEER, (uintptr_t)peer)) < 0)
        emu4_print("cannot watch process %d: %s", peer->pid, strerror(errno));
}

void emu4_service_unwatch(struct emu4_peer *peer)
{
    change(EPOLL_CTL_MOD, peer->pidfd, EPOLLET, KEY(WATCH_OWN, 0));
}

void emu4_service_wake(struct emu4_proc *p)
{
    if (p != NULL)
        emu4_ring(&p->self);
}

static void user_died(struct emu4_proc *p, uint32_t i)
{
    struct shm_user *u = &p->self.seg->user[i];

    emu4_own_close(svc.user_fd[i]);
    svc.user_fd[i] = -1;
    emu4_txn_drop_user(p, i);
    atomic_store(&u->busy, 0);
    atomic_store(&u->state, USER_LEFT);
}

/* Finds processes that have entered themselves as users since the last check. */
static void connect_users(struct emu4_proc *p)
{
    for (uint32_t i = 1; i < EMU4_USERS; i++) {
        struct shm_user *u = &p->self.seg->user[i];
        if (atomic_load(&u->state) != USER_TAKEN)
            continue;
        int pid = atomic_load(&u->pid);
        atomic_store(&u->state, USER_KNOWN);
        if (svc.user_fd[i] >= 0)
            continue; /* overwritten by a stray store */
        svc.user_fd[i] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (svc.user_fd[i] < 0 && errno == ESRCH)
            user_died(p, i);
        else if (svc.user_fd[i] < 0 || watch(svc.user_fd[i], KEY(WATCH_USER, i)) < 0)
            emu4_print("cannot watch process %d: %s", pid, strerror(errno));
    }
}

static struct emu4_peer *peer_at(struct emu4_proc *p, uint64_t value)
{
    struct emu4_peer *found = NULL;

    pthread_mutex_lock(&p->lock);
    for (struct emu4_peer *q = p->peers; q; q = q->next)
        if ((uintptr_t)q == value)
            found = q;
    pthread_mutex_unlock(&p->lock);
    return found;
}

static void handle(struct emu4_proc *p, uint64_t key)
{
    uint64_t value = key & ((UINT64_C(1) << 60) - 1);
    struct emu4_peer *peer;

    switch ((enum watch)(key >> 60)) {
    case WATCH_BELL:
    case WATCH_TIMER: /* are never read */
    case WATCH_OWN:
        break;
    case WATCH_USER:
        if (svc.user_fd[value] >= 0)
            user_died(p, (uint32_t)value);
        break;
    case WATCH_PEER:
        peer = peer_at(p, value);
        if (peer != NULL)
            emu4_peer_died(p, peer);
        break;
    }
}

static void set_alarm(uint64_t due)
{
    struct itimerspec its = {0};

    its.it_value.tv_sec = (time_t)(due / EMU4_NSEC);
    its.it_value.tv_nsec = (long)(due % EMU4_NSEC);
    if (emu4_is_own(svc.timerfd))
        timerfd_settime(svc.timerfd, TFD_TIMER_ABSTIME, &its, NULL);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* Does all available work. Returns the time of the next call; 0: no limit. */
static uint64_t work(struct emu4_proc *p)
{
    if (atomic_exchange(&p->self.seg->news, 0))
        connect_users(p);
    bool stalled = emu4_cmdqs_retry(p);
    emu4_engine_serve(p); /* remaining work is noticed before the thread sleeps */
    emu4_traps_deliver(p);
    uint64_t due = emu4_engine_next_due();
    if (stalled)
        due = sooner(due, emu4_now() + p->knobs.retry_us * 1000);
    return due;
}

/* Falls back to looking by time when the program has closed descriptors of the library. A set
 * of the program may have the number. */
static int wait_in_set(struct emu4_proc *p, struct epoll_event *ev, bool again)
{
    static bool said;
    int n = emu4_is_own(p->self.bell) ? epoll_wait(svc.epfd, ev, EVENTS, again ? 0 : -1) : -1;

    if (n >= 0 || errno == EINTR)
        return n;
    if (!said)
        emu4_print(
            "the program closed descriptors of the software Elan4 (%s): its engine looks "
            "for work by a timer from now on, and processes may not be reached; close only "
            "descriptors that the program opened (not closefrom, close_range)",
            strerror(errno));
    said = true;
    if (!again)
        usleep(CHECK_PAUSE_US);
    return n;
}

static void *run(void *arg)
{
    struct emu4_proc *p = arg;
    struct epoll_event ev[EVENTS];
    uint64_t armed = 0;

    for (;;) {
        uint64_t due = work(p);
        if (due != armed)
            set_alarm(due);
        armed = due;
        atomic_store(&p->self.seg->asleep, 1);
        atomic_thread_fence(memory_order_seq_cst);
        uint64_t now_due = emu4_engine_next_due();
        bool again = atomic_load(&p->self.seg->news) || emu4_engine_has_work(p) ||
                     (now_due && (!armed || now_due < armed)) || emu4_traps_wait(p);
        int n = wait_in_set(p, ev, again);
        atomic_store(&p->self.seg->asleep, 0);
        if (n > 0)
            EMU4_COUNT(wakeups, 1);
        for (int i = 0; i < n; i++) {
            if (ev[i].data.u64 == KEY(WATCH_TIMER, 0))
                armed = 0;
            handle(p, ev[i].data.u64);
        }
    }
    return NULL;
}

int emu4_service_start(struct emu4_proc *p)
{
    sigset_t all, old;

    for (unsigned i = 0; i < EMU4_USERS; i++)
        svc.user_fd[i] = -1;
    svc.epfd = epoll_create1(EPOLL_CLOEXEC);
    if (svc.epfd < 0)
        return -1;
    svc.timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (svc.timerfd < 0)
        goto err_ep;
    if (change(EPOLL_CTL_ADD, p->self.bell, EPOLLIN | EPOLLET, KEY(WATCH_BELL, 0)) < 0 ||
        change(EPOLL_CTL_ADD, svc.timerfd, EPOLLIN | EPOLLET, KEY(WATCH_TIMER, 0)) < 0)
        goto err_timer;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&svc.thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0) {
        pthread_detach(svc.thread);
        return 0;
    }
    errno = rc;
err_timer:
    close(svc.timerfd);
err_ep:
    close(svc.epfd);
    return -1;
}
