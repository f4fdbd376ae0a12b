/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The service thread: what a kernel and the device's own engine would do while the program
 * sleeps. It reads the inbox, notices dead peers, empties the backlogs of listening names
 * (connecting to them is only how pids are found), and runs timers: waits after an RNR, delayed
 * reads, time-outs of the connection manager.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_t thread;
    bool started;
    _Atomic bool stop;
} svc;

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
    struct emu_watched seen[EMU_WATCHED_MAX];

    while (!atomic_load(&svc.stop)) {
        int n = emu_watch_wait(seen, EMU_WATCHED_MAX);
        if (emu_watch_by_time()) {
            emu_inbox_read(d);
            emu_peers_check(d);
        }
        for (int i = 0; i < n && !atomic_load(&svc.stop); i++) {
            uint64_t drop;
            ssize_t got;
            int fd;
            switch (seen[i].what) {
            case EMU_WATCH_BELL:
                got = sys_read(seen[i].fd, &drop, sizeof(drop));
                (void)got;
                emu_inbox_read(d);
                break;
            case EMU_WATCH_TIMER:
                got = sys_read(seen[i].fd, &drop, sizeof(drop));
                (void)got;
                emu_timers_run(true);
                break;
            case EMU_WATCH_SLOT: /* somebody asks who we are, or rings without our eventfd */
            case EMU_WATCH_LISTENER:
                while ((fd = accept4(seen[i].fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
                    sys_close(fd);
                if (seen[i].what == EMU_WATCH_SLOT)
                    emu_inbox_read(d);
                break;
            case EMU_WATCH_PEER:
                emu_inbox_read(d); /* what it said before it died comes first */
                emu_peer_died(d, seen[i].peer);
                break;
            }
        }
    }
    return NULL;
}

int emu_service_start(struct emu_dev *d)
{
    sigset_t all, old;
    int timer, err;

    atomic_store(&svc.stop, false);
    err = emu_watch_open();
    if (err)
        return err;
    timer = emu_timers_open(d);
    if (timer < 0)
        return timer;
    d->seg->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->seg->bell_fd < 0)
        return -errno;
    err = emu_watch(d->seg->bell_fd, EMU_WATCH_BELL);
    if (!err)
        err = emu_watch(timer, EMU_WATCH_TIMER);
    if (!err)
        err = emu_watch(d->slot_sock, EMU_WATCH_SLOT);
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

void emu_service_stop(struct emu_dev *d)
{
    struct timespec until;

    if (!svc.started)
        return;
    atomic_store(&svc.stop, true);
    svc.started = false;
    emu_service_wake(d);
    /* not for ever: exit may have been called by a thread that holds one of our locks */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_timedjoin_np(svc.thread, NULL, &until);
}

void emu_service_forked(void)
{
    emu_watch_forked();
    emu_timers_forked();
    svc.started = false;
}
