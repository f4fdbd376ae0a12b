/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The service thread: what a kernel and the device's own engine would do while the program
 * sleeps. It reads the inbox, notices dead peers, empties the backlogs of listening names
 * (connecting to them is only how pids are found), and runs timers: waits after an RNR, delayed
 * reads, time-outs of the connection manager. A thread of the program that polls an empty
 * completion queue runs due timers too, so that a busy machine does not delay them.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define PEER_CHECK_MS 100

enum watch { WATCH_BELL, WATCH_TIMER, WATCH_SLOT, WATCH_LISTENER, WATCH_PEER };

static struct {
    pthread_mutex_t lock;
    pthread_mutex_t turn; /* with a link: held by the thread that runs timers, before `lock` */
    bool in_order;        /* there is a link */
    pthread_cond_t done;
    struct emu_timer *head;
    _Atomic uint64_t next_due;
    int epfd, timerfd;
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    _Atomic bool check_peers; /* some have no pidfd: look after them by time */
} svc = {.lock = PTHREAD_MUTEX_INITIALIZER,
         .turn = PTHREAD_MUTEX_INITIALIZER,
         .done = PTHREAD_COND_INITIALIZER,
         .epfd = -1,
         .timerfd = -1};

uint64_t emu_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * EMU_NSEC + (uint64_t)ts.tv_nsec;
}

/* Under svc.lock. */
static void set_alarm(void)
{
    uint64_t due = svc.head ? svc.head->due : 0;
    struct itimerspec its = {0};

    atomic_store(&svc.next_due, due);
    its.it_value.tv_sec = (time_t)(due / EMU_NSEC);
    its.it_value.tv_nsec = (long)(due % EMU_NSEC);
    timerfd_settime(svc.timerfd, TFD_TIMER_ABSTIME, &its, NULL);
}

static void unlink_timer(struct emu_timer *t)
{
    if (t->prev)
        t->prev->next = t->next;
    else
        svc.head = t->next;
    if (t->next)
        t->next->prev = t->prev;
    t->armed = false;
}

/* With the lock held. */
static void link_timer(struct emu_timer *t, uint64_t due)
{
    if (t->armed)
        unlink_timer(t);
    struct emu_timer *prev = NULL, *next = svc.head;
    while (next && next->due <= due) {
        prev = next;
        next = next->next;
    }
    t->due = due;
    t->prev = prev;
    t->next = next;
    if (prev)
        prev->next = t;
    else
        svc.head = t;
    if (next)
        next->prev = t;
    t->armed = true;
    if (svc.head == t)
        set_alarm();
}

void emu_timer_arm(struct emu_dev *d, struct emu_timer *t, uint64_t due)
{
    (void)d;
    pthread_mutex_lock(&svc.lock);
    link_timer(t, due ? due : 1);
    pthread_mutex_unlock(&svc.lock);
}

void emu_timer_sooner(struct emu_dev *d, struct emu_timer *t, uint64_t due)
{
    (void)d;
    pthread_mutex_lock(&svc.lock);
    if (!t->armed || due < t->due)
        link_timer(t, due ? due : 1);
    pthread_mutex_unlock(&svc.lock);
}

void emu_timer_cancel(struct emu_timer *t)
{
    pthread_mutex_lock(&svc.lock);
    if (t->armed)
        unlink_timer(t);
    while (t->running)
        pthread_cond_wait(&svc.done, &svc.lock);
    pthread_mutex_unlock(&svc.lock);
}

static void run_due(void)
{
    pthread_mutex_lock(&svc.lock);
    uint64_t now = emu_now();
    for (struct emu_timer *t; (t = svc.head) != NULL && t->due <= now;) {
        unlink_timer(t);
        t->running++;
        pthread_mutex_unlock(&svc.lock);
        t->fn(t);
        pthread_mutex_lock(&svc.lock);
        t->running--;
        pthread_cond_broadcast(&svc.done);
    }
    set_alarm();
    pthread_mutex_unlock(&svc.lock);
}

/* What is under way on a link arrives in order: one thread at a time runs timers. */
static void run_in_order(bool wait)
{
    if (!svc.in_order) {
        run_due();
    } else if (wait ? pthread_mutex_lock(&svc.turn) == 0
                    : pthread_mutex_trylock(&svc.turn) == 0) {
        run_due();
        pthread_mutex_unlock(&svc.turn);
    }
}

void emu_timers_poll(void)
{
    uint64_t due = atomic_load_explicit(&svc.next_due, memory_order_relaxed);

    if (due && due <= emu_now())
        run_in_order(false);
}

/* Who sends datagrams is not known here else, and may die with a receive in its hands. */
static void greeted(struct emu_dev *d, uint32_t slot)
{
    struct emu_peer *p = emu_peer_get(d, slot & (EMU_MAX_SLOTS - 1));

    if (!p && (errno == ECONNREFUSED || errno == ESRCH))
        emu_peer_clear(d, slot & (EMU_MAX_SLOTS - 1)); /* it has died since */
    emu_peer_put(d, p);                                /* the table keeps it while it lives */
}

void emu_inbox_read(struct emu_dev *d)
{
    struct shm_msg *m;

    while ((m = shm_ring_peek(d->seg, &d->seg->inbox, 0)) != NULL) {
        struct shm_msg copy;
        if (m->kind == INBOX_HELLO) /* before it leaves the inbox: see emu_mr_drain */
            greeted(d, m->index);
        memcpy(&copy.kind, &m->kind, sizeof(copy) - offsetof(struct shm_msg, kind));
        shm_ring_pop(d->seg, &d->seg->inbox);
        switch ((enum inbox_kind)copy.kind) {
        case INBOX_SIGNAL:
            if ((copy.arg & 1) && atomic_load(&shm_chan(d->seg, copy.index)->gen) == copy.arg)
                emu_peer_signal_chan(d, &d->self, copy.index);
            break;
        case INBOX_HELLO:
            break;
        default:
            emu_above_told(d, &copy);
        }
    }
}

static void *service_main(void *arg)
{
    struct emu_dev *d = arg;
    struct epoll_event ev[32];

    while (!atomic_load(&svc.stop)) {
        int n =
            epoll_wait(svc.epfd, ev, 32, atomic_load(&svc.check_peers) ? PEER_CHECK_MS : -1);
        if (atomic_load(&svc.check_peers)) {
            emu_inbox_read(d);
            emu_peers_check(d);
        }
        for (int i = 0; i < n && !atomic_load(&svc.stop); i++) {
            uint64_t drop;
            ssize_t got;
            int fd;
            switch ((enum watch)(ev[i].data.u64 & 7)) {
            case WATCH_BELL:
                got = sys_read(d->seg->bell_fd, &drop, sizeof(drop));
                (void)got;
                emu_inbox_read(d);
                break;
            case WATCH_TIMER:
                got = sys_read(svc.timerfd, &drop, sizeof(drop));
                (void)got;
                run_in_order(true);
                break;
            case WATCH_SLOT: /* somebody asks who we are, or rings without our eventfd */
            case WATCH_LISTENER:
                while ((fd = accept4((int)(ev[i].data.u64 >> 3), NULL, NULL, SOCK_CLOEXEC)) >=
                       0)
                    sys_close(fd);
                if ((ev[i].data.u64 & 7) == WATCH_SLOT)
                    emu_inbox_read(d);
                break;
            case WATCH_PEER:
                emu_inbox_read(d); /* what it said before it died comes first */
                emu_peer_died(d, (struct emu_peer *)(uintptr_t)(ev[i].data.u64 & ~UINT64_C(7)));
                break;
            }
        }
    }
    return NULL;
}

static int watch(int fd, uint64_t data)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

    return epoll_ctl(svc.epfd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

int emu_service_watch_listener(int sock)
{
    return watch(sock, ((uint64_t)sock << 3) | WATCH_LISTENER);
}

void emu_service_watch_peer(struct emu_dev *d, struct emu_peer *p)
{
    if (p->pidfd >= 0) {
        watch(p->pidfd, (uint64_t)(uintptr_t)p | WATCH_PEER);
    } else if (!atomic_exchange(&svc.check_peers, true)) {
        emu_service_wake(d);
    }
}

void emu_service_unwatch_peer(struct emu_dev *d, struct emu_peer *p)
{
    (void)d;
    if (p->pidfd >= 0)
        epoll_ctl(svc.epfd, EPOLL_CTL_DEL, p->pidfd, NULL);
}

void emu_service_wake(struct emu_dev *d)
{
    emu_peer_ring_bell(d, &d->self);
}

int emu_service_start(struct emu_dev *d)
{
    sigset_t all, old;
    int err = 0;

    pthread_mutex_init(&svc.lock, NULL);
    pthread_mutex_init(&svc.turn, NULL);
    svc.in_order = emu_link_on(d);
    pthread_cond_init(&svc.done, NULL);
    svc.head = NULL;
    atomic_store(&svc.next_due, 0);
    atomic_store(&svc.stop, false);
    atomic_store(&svc.check_peers, false);
    svc.epfd = epoll_create1(EPOLL_CLOEXEC);
    svc.timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    d->seg->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (svc.epfd < 0 || svc.timerfd < 0 || d->seg->bell_fd < 0)
        return -errno;
    err = watch(d->seg->bell_fd, WATCH_BELL);
    if (!err)
        err = watch(svc.timerfd, WATCH_TIMER);
    if (!err)
        err = watch(d->slot_sock, ((uint64_t)d->slot_sock << 3) | WATCH_SLOT);
    if (err)
        return err;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&svc.thread, NULL, service_main, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return -err;
    pthread_setname_np(svc.thread, "emuverbs");
    svc.started = true;
    return 0;
}

void emu_service_stop(void)
{
    if (!svc.started)
        return;
    atomic_store(&svc.stop, true);
    svc.started = false;
    struct emu_dev *d = emu_dev_peek();
    if (d) {
        struct timespec until;
        emu_service_wake(d);
        /* not for ever: exit may have been called by a thread that holds one of our locks */
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        pthread_timedjoin_np(svc.thread, NULL, &until);
    }
}

void emu_service_forked(void)
{
    sys_close(svc.epfd);
    sys_close(svc.timerfd);
    svc.started = false;
}
