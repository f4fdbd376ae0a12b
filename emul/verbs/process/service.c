/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The service thread: the work of kernel and device while the program sleeps. The thread reads
 * the inbox, notices dead peers, accepts connections to listening names (used to look up
 * process IDs only), and runs timers: RNR waits, delayed reads, time-outs of the connection
 * manager.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_t thread;
    bool started;
    _Atomic enum { RUNS, STOPS, ENDS } stop;
    sem_t up; /* the thread has entered itself in the segment */
} svc;

/* Maps a sender of datagrams, which would be unknown otherwise and may die while it holds a
 * receive. Without descriptors or memory the attempt is repeated later. */
static void greeted(struct emu_dev *d, uint32_t slot)
{
    slot &= EMU_MAX_SLOTS - 1;
    struct emu_peer *p = emu_peer_get(d, slot);
    uint64_t *word = &d->unmet[slot / 64], bit = UINT64_C(1) << (slot % 64);
    int err = p != NULL ? 0 : errno;

    *word &= ~bit;
    if (err == EMFILE || err == ENFILE || err == ENOMEM || err == EAGAIN)
        *word |= bit;
    else if (err == ECONNREFUSED || err == ESRCH)
        emu_peer_clear(d, slot); /* died meanwhile */
    emu_peer_put(d, p);          /* the table keeps it while it lives */
}

static void connect_late(struct emu_dev *d)
{
    for (uint32_t w = 0; w < EMU_MAX_SLOTS / 64; w++)
        for (uint64_t bits = d->unmet[w]; bits; bits &= bits - 1)
            greeted(d, w * 64 + (uint32_t)__builtin_ctzll(bits));
}

void emu_inbox_read(struct emu_dev *d)
{
    struct shm_msg *m;

    while ((m = shm_ring_peek(d->seg, &d->seg->inbox, 0)) != NULL) {
        struct shm_msg copy;
        /* before the message leaves the inbox, see emu_mr_drain() */
        if (m->kind == INBOX_HELLO)
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
            emu_above_notified(d, &copy);
        }
    }
    if (atomic_load_explicit(&d->seg->untold, memory_order_relaxed) &&
        atomic_exchange(&d->seg->untold, 0))
        emu_above_untold(d);
}

static int spare = -1; /* spare descriptor for accept4() at the descriptor limit; -1: none */

static bool has_waiter(int listener)
{
    struct pollfd p = {listener, POLLIN, 0};

    return poll(&p, 1, 0) > 0;
}

/*
 * Accepts and closes all connections of a backlog; otherwise they would wake this thread again.
 * At the descriptor limit the spare descriptor is released for accept4(). The kernel allocates
 * a descriptor before it checks for connections, so an empty backlog also yields EMFILE: the
 * spare is released only if a connection is waiting.
 */
static void empty_backlog(int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && spare >= 0 &&
            has_waiter(listener)) {
            emu_own_close(spare);
            spare = -1;
            fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        }
        if (fd < 0)
            return;
        if (spare < 0)
            emu_own(spare = sys_no_stream(fd));
        else
            sys_close(fd);
    }
}

static void check_peers(struct emu_dev *d)
{
    struct emu_peer *p;

    emu_inbox_read(d);
    connect_late(d);
    while ((p = emu_peer_unseen(d)) != NULL) {
        emu_inbox_read(d); /* earlier messages first */
        emu_peer_died(d, p);
    }
}

/*
 * Robust list of the service thread, with the segment's word as its entry: the kernel processes
 * the list when the thread ends. Robust mutexes of the C library use the same list; the thread
 * has none.
 */
static struct {
    struct robust_list_head head;
    struct robust_list entry;
} kept;

static void keep(struct emu_dev *d)
{
    atomic_store(&d->seg->keeper, (uint32_t)gettid());
    kept.head.list.next = &kept.entry;
    kept.entry.next = &kept.head.list;
    kept.head.futex_offset = (long)((uintptr_t)&d->seg->keeper - (uintptr_t)&kept.entry);
    syscall(SYS_set_robust_list, &kept.head, sizeof(kept.head));
}

static void *service_main(void *arg)
{
    struct emu_dev *d = arg;
    struct emu_watched seen[EMU_WATCHED_MAX];
    uint64_t checked = emu_now();

    keep(d);
    sem_post(&svc.up);
    while (!atomic_load(&svc.stop)) {
        int n = emu_watch_wait(seen, EMU_WATCHED_MAX);
        emu_count(COUNT_service_rounds, 1);
        for (int i = 0; i < n && !atomic_load(&svc.stop); i++) {
            switch (seen[i].what) {
            case EMU_WATCH_BELL:
                emu_inbox_read(d);
                break;
            case EMU_WATCH_TIMER:
                emu_timers_run(true);
                break;
            /* a peer looks up this process, or wakes it without its eventfd */
            case EMU_WATCH_SLOT:
            case EMU_WATCH_LISTENER:
                if (!emu_watch_hold())
                    break; /* the number may be reused; waiting peers are seen again */
                if (emu_is_own(seen[i].fd))
                    empty_backlog(seen[i].fd);
                emu_watch_let_go();
                if (seen[i].what == EMU_WATCH_SLOT)
                    emu_inbox_read(d);
                break;
            case EMU_WATCH_PEER:
                emu_inbox_read(d); /* messages sent before its death first */
                emu_peer_died(d, seen[i].peer);
                break;
            case EMU_WATCH_OWN:
                break;
            }
        }
        /* afterwards: the peers above must exist until handled */
        if (!atomic_load(&svc.stop) && emu_now() - checked >= emu_watch_period()) {
            check_peers(d);
            checked = emu_now();
        }
    }
    if (atomic_load(&svc.stop) == STOPS)
        kept.head.list.next = &kept.head.list; /* the process continues */
    return NULL;
}

int emu_service_start(struct emu_dev *d)
{
    sigset_t all, old;
    int timer, err;

    atomic_store(&svc.stop, RUNS);
    err = emu_watch_open();
    if (err)
        return err;
    timer = emu_timers_open(d);
    if (timer < 0) {
        err = timer;
        goto no_timer;
    }
    d->seg->bell_fd = sys_no_stream(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (d->seg->bell_fd < 0) {
        err = -errno;
        goto no_bell;
    }
    err = emu_watch(d->seg->bell_fd, EMU_WATCH_BELL);
    if (!err)
        err = emu_watch(timer, EMU_WATCH_TIMER);
    if (!err)
        err = emu_watch(d->slot_sock, EMU_WATCH_SLOT);
    if (err)
        goto no_thread;
    emu_own(spare = sys_no_stream(eventfd(0, EFD_CLOEXEC))); /* optional: -1 if not available */
    sem_init(&svc.up, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&svc.thread, NULL, service_main, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) {
        err = -err;
        goto no_thread;
    }
    pthread_setname_np(svc.thread, "emuverbs");
    while (sem_wait(&svc.up) < 0 && errno == EINTR)
        ;
    svc.started = true;
    return 0;

no_thread:
    if (spare >= 0)
        sys_close(spare);
    spare = -1;
    sys_close(d->seg->bell_fd);
no_bell:
    sys_close(timer);
no_timer:
    emu_watch_close();
    return err;
}

void emu_service_stop(struct emu_dev *d)
{
    if (!svc.started)
        return;
    atomic_store(&svc.stop, STOPS);
    svc.started = false;
    emu_service_wake(d);
    pthread_join(svc.thread, NULL);
    d->self.tid = d->pid;
}

void emu_service_end(struct emu_dev *d)
{
    struct timespec until;

    if (!svc.started)
        return;
    atomic_store(&svc.stop, ENDS);
    emu_service_wake(d);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_timedjoin_np(svc.thread, NULL, &until);
}

void emu_service_forked(void)
{
    emu_own_drop(spare);
    spare = -1;
    emu_timers_forked();
    emu_watch_forked();
    svc.started = false;
}
