/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Clock and timers. The service thread runs due timers; so does a thread of the program that
 * polls an empty CQ, so that a busy machine does not delay them. */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>

#define LOCKED_TICK (EMU_NSEC / 50000)

static struct {
    pthread_mutex_t lock;
    pthread_mutex_t
        turn;      /* link model: held by the thread that runs timers; taken before `lock` */
    bool in_order; /* link model enabled */
    pthread_cond_t done;
    struct emu_timer *head;
    _Atomic uint64_t next_due;
    int fd;
} timers = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .turn = PTHREAD_MUTEX_INITIALIZER,
            .done = PTHREAD_COND_INITIALIZER,
            .fd = -1};

/* Time of the clock while stopped by a test; 0: running. */
static _Atomic uint64_t stopped;

uint64_t emu_now(void)
{
    uint64_t at = atomic_load_explicit(&stopped, memory_order_relaxed);
    struct timespec ts;

    if (__builtin_expect(at != 0, 0))
        return at;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * EMU_NSEC + (uint64_t)ts.tv_nsec;
}

/* Under timers.lock. */
static void set_alarm(void)
{
    uint64_t due = timers.head != NULL ? timers.head->due : 0;
    struct itimerspec its = {0};

    atomic_store(&timers.next_due, due);
    if (atomic_load(&stopped)) /* the kernel's clock continues: only due timers may trigger */
        due = due && due <= emu_now();
    its.it_value.tv_sec = (time_t)(due / EMU_NSEC);
    its.it_value.tv_nsec = (long)(due % EMU_NSEC);
    if (emu_is_own(timers.fd))
        timerfd_settime(timers.fd, TFD_TIMER_ABSTIME, &its, NULL);
}

static void unlink_timer(struct emu_timer *t)
{
    if (t->prev != NULL)
        t->prev->next = t->next;
    else
        timers.head = t->next;
    if (t->next != NULL)
        t->next->prev = t->prev;
    t->armed = false;
}

/* Under timers.lock. */
static void link_timer(struct emu_timer *t, uint64_t due)
{
    if (t->armed)
        unlink_timer(t);
    struct emu_timer *prev = NULL, *next = timers.head;
    while (next != NULL && next->due <= due) {
        prev = next;
        next = next->next;
    }
    t->due = due;
    t->prev = prev;
    t->next = next;
    if (prev != NULL)
        prev->next = t;
    else
        timers.head = t;
    if (next != NULL)
        next->prev = t;
    t->armed = true;
    if (timers.head == t)
        set_alarm();
}

void emu_timer_arm(struct emu_dev *d, struct emu_timer *t, uint64_t due)
{
    (void)d;
    pthread_mutex_lock(&timers.lock);
    link_timer(t, due ? due : 1);
    pthread_mutex_unlock(&timers.lock);
}

void emu_timer_sooner(struct emu_dev *d, struct emu_timer *t, uint64_t due)
{
    (void)d;
    pthread_mutex_lock(&timers.lock);
    if (!t->armed || due < t->due)
        link_timer(t, due ? due : 1);
    pthread_mutex_unlock(&timers.lock);
}

void emu_timer_again(struct emu_dev *d, struct emu_timer *t)
{
    emu_timer_arm(d, t, emu_now() + (atomic_load(&stopped) ? 1 : LOCKED_TICK));
}

void emu_timer_cancel(struct emu_timer *t)
{
    pthread_mutex_lock(&timers.lock);
    for (;;) {
        if (t->armed) /* a run that has just ended may have armed it again */
            unlink_timer(t);
        if (!t->running)
            break;
        pthread_cond_wait(&timers.done, &timers.lock);
    }
    pthread_mutex_unlock(&timers.lock);
}

static void run_due(void)
{
    pthread_mutex_lock(&timers.lock);
    uint64_t now = emu_now();
    for (struct emu_timer *t; (t = timers.head) != NULL && t->due <= now;) {
        unlink_timer(t);
        t->running++;
        pthread_mutex_unlock(&timers.lock);
        t->fn(t);
        pthread_mutex_lock(&timers.lock);
        t->running--;
        pthread_cond_broadcast(&timers.done);
    }
    set_alarm();
    pthread_mutex_unlock(&timers.lock);
}

/* With the link model one thread at a time runs timers, so that requests arrive in order. */
void emu_timers_run(bool wait)
{
    if (!timers.in_order) {
        run_due();
    } else if (wait ? pthread_mutex_lock(&timers.turn) == 0
                    : pthread_mutex_trylock(&timers.turn) == 0) {
        run_due();
        pthread_mutex_unlock(&timers.turn);
    }
}

void emu_timers_poll(void)
{
    uint64_t due = atomic_load_explicit(&timers.next_due, memory_order_relaxed);

    if (due && due <= emu_now())
        emu_timers_run(false);
}

/* Called by tests, through dlsym; see doc/emuverbs.md. */
EMU_EXPORT uint64_t emuverbs_clock(uint64_t ns);
EMU_EXPORT uint64_t emuverbs_clock(uint64_t ns)
{
    uint64_t now = emu_now() + ns;

    if (ns == UINT64_MAX)
        now = 0;
    atomic_store(&stopped, now);
    emu_timers_run(true);
    return now;
}

int emu_timers_open(const struct emu_dev *d)
{
    pthread_mutex_init(&timers.lock, NULL);
    pthread_mutex_init(&timers.turn, NULL);
    timers.in_order = emu_link_on(d);
    pthread_cond_init(&timers.done, NULL);
    timers.head = NULL;
    atomic_store(&timers.next_due, 0);
    timers.fd = sys_no_stream(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    return timers.fd < 0 ? -errno : timers.fd;
}

void emu_timers_forked(void)
{
    emu_own_drop(timers.fd);
}
