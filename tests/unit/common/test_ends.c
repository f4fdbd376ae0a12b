/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The order of ends: one thread has deregistered the memory of an operation that has ended, and
 * comes late to report it.  What ends meanwhile is not reported before.
 */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "engine/engine.h"
#include "scripted.h"

#define LARGE (1 << 20) /* surely registered, not copied */
#define OPTIONS                                                                                \
    "regcache_entries=0,spin_us=0,zone_bytes=64M,dont_fork=off,pack_threshold=0,"              \
    "unit=1M,rndv=write,invite=0,keepalive_ms=0"

static char memory[3][LARGE];
static const struct rme_wire_segment target = {.address = 4096, .key = 7, .length = LARGE};

/* The thread that deregisters is held up where it takes the engine's lock again. */
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

/* One look; returns how many completions it finds. */
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

/* A receive that the peer is about to write; returns our name of it. */
static uint32_t receive(struct posted *p, int32_t tag)
{
    scripted_hush();
    scripted_recv(p, memory[tag], LARGE, tag);
    scripted_say((struct rme_wire_message){.type = RME_WIRE_RTS,
                                           .tag = tag,
                                           .from = 100 + (uint32_t)tag,
                                           .total = LARGE,
                                           .nsegment = 1,
                                           .shape = 1},
                 &target);
    assert_non_null(scripted_word(RME_WIRE_CTS, 0));
    return scripted_word(RME_WIRE_CTS, 0)->message.from;
}

static void say_eager(uint8_t type, int32_t tag)
{
    scripted_put((struct rme_wire_message){.type = type, .tag = tag}, NULL);
}

static void what_ends_meanwhile_comes_later(void **state)
{
    struct rme_hello hello = scripted_hello();
    struct rme_unexpected unexpected;
    struct rme_done first[4], later[4];
    struct posted large[2], small;
    uint32_t name[2];
    pthread_t thread;
    void *found;

    (void)state;
    scripted_open(OPTIONS, &hello);
    assert_int_equal(sem_init(&held_up, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    for (int i = 0; i < 2; i++)
        name[i] = receive(&large[i], i);
    scripted_recv(&small, memory[2], LARGE, 2);
    script.deregistering = deregisters;

    script_imm(0, name[0]);
    assert_int_equal(pthread_create(&thread, NULL, look_once, first), 0);
    sem_wait(&held_up);

    /* one that has no memory to be deregistered, one that has, and an unexpected message */
    say_eager(RME_WIRE_EAGER, 2);
    int early = look(later);
    script_imm(0, name[1]);
    early += look(later);
    say_eager(RME_WIRE_UNEXPECTED, 3);
    early += rme_test_unexpected(scripted.rme, &unexpected, 1, 0);
    sem_post(&go_on);
    assert_int_equal(pthread_join(thread, &found), 0);
    assert_int_equal(early, 0);

    /* the first thread has reported some of them, the rest is still there */
    int reported = (int)(intptr_t)found;
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
    sem_destroy(&held_up);
    sem_destroy(&go_on);
}

static int close_it(void **state)
{
    (void)state;
    scripted_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_ends_meanwhile_comes_later, close_it),
    };

    alarm(60); /* who is never held up, or never goes on, fails the test */
    return cmocka_run_group_tests_name("ends", tests, NULL, NULL);
}
