/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Order of completions: one thread deregisters the memory of a completed operation and is
 * delayed before it reports it. Later completions must not be reported first. A thread that
 * waits for that operation, and sleeps again meanwhile, must be woken, like one that sleeps
 * while a link is requested or ended. A leader that leaves hands over to the next thread.
 */
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "scripted.h"

#define LARGE (1 << 20) /* too large to be copied: registered */
#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,pool_bytes=64M,pack_threshold=0,"                            \
    "fragment_bytes=1M,rndv=write,early_cts=0,keepalive_ms=0"

static char memory[3][LARGE];
static const struct rme_wire_segment target = {.address = 4096, .key = 7, .length = LARGE};

/* The deregistering thread is stopped where it takes the engine's lock again. */
static sem_t held_up, go_on;
static _Thread_local bool may_be_late, is_late;

static void deregisters(void)
{
    is_late = may_be_late;
    may_be_late = false;
}

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (is_late && lock == &scripted.rme->lock) {
        is_late = false;
        sem_post(&held_up);
        sem_wait(&go_on);
    }
    return __real_pthread_mutex_lock(lock);
}

/* Polls once; returns the number of completions. */
static int look(struct rme_done *done)
{
    return rme_test_context(scripted.rme, 0, done, 4, 0);
}

static void *look_once(void *arg)
{
    struct rme_done *done = arg;

    may_be_late = true;
    return (void *)(intptr_t)look(done);
}

/* Posts a receive that the peer is about to write; returns its handle. */
static uint32_t receive(struct posted *p, int32_t tag)
{
    scripted_hush();
    scripted_recv(p, memory[tag], LARGE, tag);
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_RTS,
                                                  .tag = tag,
                                                  .from = 100 + (uint32_t)tag,
                                                  .total = LARGE,
                                                  .nsegment = 1,
                                                  .shape = 1},
                        &target);
    assert_non_null(scripted_word(RME_WIRE_CTS, 0));
    return scripted_word(RME_WIRE_CTS, 0)->message.from;
}

static void say_eager(uint8_t flags, int32_t tag)
{
    scripted_put((struct rme_wire_message){.type = RME_WIRE_EAGER, .flags = flags, .tag = tag},
                 NULL);
}

static void open_held(void)
{
    struct rme_hello hello = scripted_hello();

    scripted_open(OPTIONS, &hello);
    assert_int_equal(sem_init(&held_up, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
}

/* Ends a receive by its immediate in a thread, which stops between the end of the operation and
 * its report. */
static pthread_t hold_up(uint32_t name, struct rme_done *done)
{
    pthread_t thread;

    script.deregistering = deregisters;
    script_imm(0, name);
    assert_int_equal(pthread_create(&thread, NULL, look_once, done), 0);
    sem_wait(&held_up);
    return thread;
}

/* Lets the thread go on; returns the number of its completions. */
static int let_go(pthread_t thread)
{
    void *found;

    sem_post(&go_on);
    assert_int_equal(pthread_join(thread, &found), 0);
    sem_destroy(&held_up);
    sem_destroy(&go_on);
    return (int)(intptr_t)found;
}

static void operation_ended_meanwhile_reported_later(void **state)
{
    struct rme_unexpected unexpected;
    struct rme_done first[4], later[4];
    struct posted large[2], small;
    uint32_t name[2];

    (void)state;
    open_held();
    for (int i = 0; i < 2; i++)
        name[i] = receive(&large[i], i);
    scripted_recv(&small, memory[2], LARGE, 2);

    pthread_t thread = hold_up(name[0], first);

    /* an operation without memory to deregister, one with, and an unexpected message */
    say_eager(0, 2);
    int early = look(later);
    script_imm(0, name[1]);
    early += look(later);
    say_eager(RME_WIRE_F_UNEXPECTED, 3);
    early += rme_test_unexpected(scripted.rme, &unexpected, 1, 0);
    int reported = let_go(thread);
    assert_int_equal(early, 0);

    /* the first thread has reported some of them; poll for the rest */
    assert_in_range(reported, 1, 3);
    memcpy(later, first, sizeof(later));
    if (reported < 3)
        assert_int_equal(look(&later[reported]), 3 - reported);
    assert_ptr_equal(later[0].user, &large[0]);
    assert_ptr_equal(later[1].user, &small);
    assert_ptr_equal(later[2].user, &large[1]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(later[i].error, 0);
    assert_int_equal(rme_test_unexpected(scripted.rme, &unexpected, 1, 0), 1);
    assert_int_equal(rme_unexpected_free(scripted.rme, unexpected.buffer), 0);
}

/* Nor is an unexpected message that arrives meanwhile behind one that was not fetched. */
static void message_behind_unfetched_one_waits(void **state)
{
    struct rme_unexpected unexpected[2];
    struct rme_done first[4];
    struct posted large;

    (void)state;
    open_held();
    uint32_t name = receive(&large, 0);
    say_eager(RME_WIRE_F_UNEXPECTED, 3);
    assert_int_equal(look(first), 0);

    pthread_t thread = hold_up(name, first);

    say_eager(RME_WIRE_F_UNEXPECTED, 4);
    int early = rme_test_unexpected(scripted.rme, unexpected, 2, 0);
    assert_int_equal(let_go(thread), 1);
    assert_int_equal(early, 1);
    assert_int_equal(rme_test_unexpected(scripted.rme, &unexpected[1], 1, 0), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(unexpected[i].tag, 3 + i);
        assert_int_equal(rme_unexpected_free(scripted.rme, unexpected[i].buffer), 0);
    }
}

/* A peer that sends something and disconnects meanwhile is not over before its message was
 * reported. */
static void message_precedes_end_of_its_peer(void **state)
{
    struct rme_unexpected unexpected;
    struct rme_done first[4], later[4];
    struct posted large;

    (void)state;
    open_held();
    uint32_t name = receive(&large, 0);
    assert_false(rme_addr_is_over(scripted.peer));

    pthread_t thread = hold_up(name, first);

    say_eager(RME_WIRE_F_UNEXPECTED, 3);
    int early = look(later);
    script_cut();
    early += look(later);
    early += rme_test_unexpected(scripted.rme, &unexpected, 1, 0);
    bool dead = rme_addr_is_dead(scripted.peer), over = rme_addr_is_over(scripted.peer);
    assert_int_equal(let_go(thread), 1);
    assert_int_equal(early, 0);
    assert_true(dead);
    assert_false(over);

    assert_false(rme_addr_is_over(scripted.peer));
    assert_int_equal(rme_test_unexpected(scripted.rme, &unexpected, 1, 0), 1);
    assert_int_equal(unexpected.tag, 3);
    assert_false(rme_addr_is_over(scripted.peer)); /* the host has a message of it */
    assert_int_equal(rme_unexpected_free(scripted.rme, unexpected.buffer), 0);
    assert_true(rme_addr_is_over(scripted.peer));
}

/* ---- A thread sleeps meanwhile ---- */

#define WAIT_MS 600000
#define NAP_S   120 /* timeout of a sleep that is not ended */

static sem_t asleep, nap_over;
static atomic_uint wakes;

static void sleeps(void)
{
    struct timespec until;

    sem_post(&asleep);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += NAP_S;
    while (sem_timedwait(&nap_over, &until) != 0 && errno == EINTR)
        continue;
}

static void wakes_it(void)
{
    atomic_fetch_add(&wakes, 1);
    sem_post(&nap_over);
}

static void nap_begin(void)
{
    assert_int_equal(sem_init(&asleep, 0, 0), 0);
    assert_int_equal(sem_init(&nap_over, 0, 0), 0);
    wakes = 0;
    script.sleeping = sleeps;
    script.waking = wakes_it;
}

static void nap_end(void)
{
    script.sleeping = script.waking = NULL;
    sem_destroy(&asleep);
    sem_destroy(&nap_over);
}

static void *wait_for_it(void *arg)
{
    struct rme_done *done = arg;

    return (void *)(intptr_t)rme_test_context(scripted.rme, 0, done, 4, WAIT_MS);
}

static void *wait_for_another(void *arg)
{
    struct rme_done *done = arg;

    may_be_late = true;
    return (void *)(intptr_t)rme_test_context(scripted.rme, 1, done, 4, WAIT_MS);
}

static void continued_wait_wakes_sleeper(void **state)
{
    struct rme_hello hello = scripted_hello();
    struct rme_done first[4], second[4];
    struct rme_unexpected unexpected;
    pthread_t leader, follower;
    void *of_leader, *of_follower;
    struct posted large;
    uint32_t name;

    (void)state;
    scripted_open(OPTIONS, &hello);
    assert_int_equal(rme_context_open(scripted.rme, 1), 0);
    assert_int_equal(sem_init(&held_up, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    nap_begin();
    name = receive(&large, 0);
    script.deregistering = deregisters;

    assert_int_equal(pthread_create(&leader, NULL, wait_for_it, first), 0);
    sem_wait(&asleep);
    script_imm(0, name);
    assert_int_equal(pthread_create(&follower, NULL, wait_for_another, second), 0);
    sem_wait(&held_up);
    sem_post(&nap_over); /* the same event wakes the leader, which finds nothing yet */
    sem_wait(&asleep);
    sem_post(&go_on);
    assert_int_equal(pthread_join(leader, &of_leader), 0);

    /* the other thread leads now; this message wakes it */
    sem_wait(&asleep);
    say_eager(RME_WIRE_F_UNEXPECTED, 3);
    sem_post(&nap_over);
    assert_int_equal(pthread_join(follower, &of_follower), 0);

    assert_int_equal((intptr_t)of_leader, 1);
    assert_ptr_equal(first[0].user, &large);
    assert_int_equal(first[0].error, 0);
    assert_int_equal((intptr_t)of_follower, 0);
    assert_int_equal(wakes, 1);
    assert_int_equal(rme_test_unexpected(scripted.rme, &unexpected, 1, 0), 1);
    assert_int_equal(rme_unexpected_free(scripted.rme, unexpected.buffer), 0);
    sem_destroy(&held_up);
    sem_destroy(&go_on);
    nap_end();
}

/* A link request may complete or fail without an event that ends a sleep. */
static void link_request_or_end_wakes_sleeper(void **state)
{
    struct rme_hello hello = scripted_hello();
    int64_t length = LARGE;
    void *base = memory[0];
    struct rme_list list = {&base, &length, 1};
    struct rme_addr *other;
    struct rme_done done[4];
    pthread_t sleeper;
    void *found;
    rme_id id;

    (void)state;
    scripted_open(OPTIONS ",connect_timeout_ms=600000", &hello);
    assert_int_equal(rme_addr_parse("ib", "ib://other:1", &other), 0);
    nap_begin();

    assert_int_equal(pthread_create(&sleeper, NULL, wait_for_it, done), 0);
    sem_wait(&asleep);
    assert_int_equal(rme_post_recv(scripted.rme, other, &list, 0, 0, NULL, NULL, &id), 0);
    sem_wait(&asleep);
    int wakes_to_connect = (int)wakes;
    rme_addr_free(other);
    assert_int_equal(pthread_join(sleeper, &found), 0);

    assert_int_equal(wakes_to_connect, 1);
    assert_int_equal(wakes, 2);
    assert_int_equal((intptr_t)found, 1);
    assert_int_equal(done[0].id, id);
    assert_int_equal(done[0].error, -ECONNRESET);
    nap_end();
}

/* ---- The leader leaves ---- */

#define TERM_MS 600000 /* a wait that ends when the test lets time pass */

static _Atomic uint64_t passed_s; /* time that the test has let pass */

int __real_clock_gettime(clockid_t which, struct timespec *now);
int __wrap_clock_gettime(clockid_t which, struct timespec *now);

int __wrap_clock_gettime(clockid_t which, struct timespec *now)
{
    int error = __real_clock_gettime(which, now);

    now->tv_sec += (time_t)passed_s;
    return error;
}

enum way { BY_TIME, BY_RESULT, BY_ERROR, BY_UNEXPECTED, BY_CLOSED_CONTEXT, WAYS };

struct waiting {
    pthread_t thread;
    int ctx, wait_ms, found;
    struct rme_done done[4];
};

static void *waits(void *arg)
{
    struct waiting *w = arg;

    w->found = rme_test_context(scripted.rme, w->ctx, w->done, 4, w->wait_ms);
    return NULL;
}

static int followers(void)
{
    struct list_head *at;
    int n = 0;

    pthread_mutex_lock(&scripted.rme->lock);
    for (at = scripted.rme->followers.next; at != &scripted.rme->followers; at = at->next)
        n++;
    pthread_mutex_unlock(&scripted.rme->lock);
    return n;
}

/* Starts a thread that waits for a context; a follower is asleep at the
 * return. Contexts are in the order of the threads. */
static void waiting_start(struct waiting *w, int ctx, int wait_ms)
{
    *w = (struct waiting){.ctx = ctx, .wait_ms = wait_ms};
    assert_int_equal(pthread_create(&w->thread, NULL, waits, w), 0);
    while (ctx > 0 && followers() < ctx)
        usleep(1000);
}

static void leads_now(void)
{
    struct timespec until;

    __real_clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += NAP_S;
    if (sem_timedwait(&asleep, &until) != 0) {
        print_error("the leader left, and no thread leads\n");
        abort(); /* the threads use objects of the case */
    }
}

static void time_passes(void)
{
    passed_s += 2 * TERM_MS / 1000;
    sem_post(&nap_over);
}

static void leave(enum way how, const struct posted *own)
{
    if (how == BY_ERROR) {
        assert_int_equal(rme_cancel(scripted.rme, own->id), 0); /* wakes the leader */
    } else if (how == BY_TIME || how == BY_CLOSED_CONTEXT) {
        if (how == BY_CLOSED_CONTEXT)
            rme_context_close(scripted.rme, 0);
        time_passes();
    } else {
        say_eager(how == BY_UNEXPECTED ? RME_WIRE_F_UNEXPECTED : 0, 0);
        sem_post(&nap_over);
    }
}

/* The leader leaves; the next thread leads, or, if its own time is over, the one behind it. */
static void one_leaves(enum way how)
{
    struct rme_hello hello = scripted_hello();
    struct waiting leader, next, last;
    struct rme_unexpected unexpected;
    static struct posted own; /* may be reported at the end of the case */
    int64_t length = LARGE;
    void *base = memory[1];
    struct rme_list list = {&base, &length, 1};
    rme_id id;

    scripted_open(OPTIONS, &hello);
    for (int ctx = 1; ctx < 3; ctx++)
        assert_int_equal(rme_context_open(scripted.rme, ctx), 0);
    scripted_recv(&own, memory[0], LARGE, 0);
    assert_int_equal(rme_post_recv(scripted.rme, scripted.peer, &list, 1, 2, NULL, NULL, &id),
                     0);
    nap_begin();
    waiting_start(&leader, 0, TERM_MS);
    leads_now();
    waiting_start(&next, 1, TERM_MS);
    waiting_start(&last, 2, INT_MAX);
    leave(how, &own);
    pthread_join(leader.thread, NULL);
    assert_int_equal(leader.found, how == BY_RESULT || how == BY_ERROR);
    if (how != BY_UNEXPECTED) { /* which calls all of them away */
        leads_now();
        say_eager(0, 1);
        sem_post(&nap_over);
    }
    pthread_join(last.thread, NULL);
    assert_int_equal(last.found, how != BY_UNEXPECTED);
    if (how == BY_RESULT || how == BY_ERROR) {
        leads_now();
        time_passes();
    }
    pthread_join(next.thread, NULL);
    assert_int_equal(next.found, 0);
    if (how == BY_UNEXPECTED) {
        assert_int_equal(rme_test_unexpected(scripted.rme, &unexpected, 1, 0), 1);
        assert_int_equal(rme_unexpected_free(scripted.rme, unexpected.buffer), 0);
    }
    if (how == BY_CLOSED_CONTEXT)
        assert_int_equal(rme_context_open(scripted.rme, 0), 0);
    nap_end();
}

static void leader_leaves_next_thread_leads(void **state)
{
    for (enum way how = BY_TIME; how < WAYS; how++) {
        one_leaves(how);
        if (how + 1 < WAYS)
            scripted_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(operation_ended_meanwhile_reported_later),
        SCRIPTED_TEST(message_behind_unfetched_one_waits),
        SCRIPTED_TEST(message_precedes_end_of_its_peer),
        SCRIPTED_TEST(continued_wait_wakes_sleeper),
        SCRIPTED_TEST(link_request_or_end_wakes_sleeper),
        SCRIPTED_TEST(leader_leaves_next_thread_leads),
    };

    alarm(600); /* a thread that is never stopped or never continues fails the test */
    return cmocka_run_group_tests_name("ends", tests, NULL, NULL);
}
