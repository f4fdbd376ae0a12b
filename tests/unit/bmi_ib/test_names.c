/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Host names whose lookup hangs; linked with --wrap=getaddrinfo. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "rig.h"
#include "tests/lib/asleep.h"

#define MANY        12    /* more than the concurrent lookups */
#define PATIENCE_MS 60000 /* timeout of expected events */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t change;
    bool silent;              /* lookups of "silent…" hang */
    unsigned asked, answered; /* lookups of any name, begun and finished */
} server = {.mutex = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    struct addrinfo numeric = *hints;

    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(name, service, hints, list);
    pthread_mutex_lock(&server.mutex);
    server.asked++;
    while (server.silent && strncmp(name, "silent", 6) == 0)
        pthread_cond_wait(&server.change, &server.mutex);
    numeric.ai_flags |= AI_NUMERICHOST;
    int gai = strncmp(name, "silent", 6) == 0
                  ? EAI_AGAIN
                  : __real_getaddrinfo("127.0.0.1", service, &numeric, list);
    server.answered++;
    pthread_mutex_unlock(&server.mutex);
    return gai;
}

static unsigned so_far(const unsigned *count)
{
    pthread_mutex_lock(&server.mutex);
    unsigned n = *count;
    pthread_mutex_unlock(&server.mutex);
    return n;
}

static void speak(void)
{
    pthread_mutex_lock(&server.mutex);
    server.silent = false;
    pthread_cond_broadcast(&server.change);
    pthread_mutex_unlock(&server.mutex);
}

static int open_names(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    assert_int_equal(ib_resolver_open(rig.f), 0);
    server.silent = true;
    server.asked = server.answered = 0;
    return 0;
}

static struct rme_link *dial(const char *uri)
{
    struct rme_addr *addr;
    struct rme_link *l = NULL;

    assert_int_equal(rme_addr_parse("ib", uri, &addr), 0);
    assert_int_equal(ib_link_connect(rig.f, addr, 0, "", 0, 0, NULL, &l), 0);
    rme_addr_free(addr);
    return l;
}

/* Polls until the count is reached. */
static void until(const unsigned *count, unsigned wanted)
{
    for (int i = 0; i < PATIENCE_MS && so_far(count) < wanted; i++) {
        ib_link_names(rig.f);
        usleep(1000);
    }
    ib_link_names(rig.f);
    assert_int_equal(so_far(count), wanted);
}

static void fails(struct rme_link *l)
{
    ib_link_fail(l, -ETIMEDOUT, false);
    rig_count(RME_EV_LINK_DOWN, NULL);
    ib_link_free(l);
}

static void close_names(void)
{
    ib_resolver_close(rig.f);
    rig_close();
}

/* A name that resolves does not wait behind hanging lookups while one worker is free. */
static void one_that_hangs_holds_up_no_other(void **state)
{
    enum { HANG = 7 };
    struct rme_link *l[HANG], *good;
    char uri[40];
    (void)state;
    for (int i = 0; i < HANG; i++) {
        snprintf(uri, sizeof(uri), "ib://silent%d:20500", i);
        l[i] = dial(uri);
    }
    for (int i = 1; i < 4; i++) {
        good = dial("ib://good:20500");
        assert_int_equal(good->state, IB_NAMING);
        until(&rig.resolved_addr, (unsigned)i);
        assert_int_equal(good->state, IB_ADDRESSING);
        fails(good);
    }
    until(&server.asked, HANG + 3);
    speak();
    until(&server.answered, HANG + 3);
    for (int i = 0; i < HANG; i++) {
        for (int k = 0; k < PATIENCE_MS && l[i]->state == IB_NAMING; k++) {
            ib_link_names(rig.f);
            usleep(1000);
        }
        assert_int_equal(l[i]->error, -ENONET);
    }
    assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), HANG);
    for (int i = 0; i < HANG; i++)
        ib_link_free(l[i]);
    close_names();
}

/* A hanging name is looked up once at a time for any number of links, and not for links that
 * are gone. */
static void name_has_one_lookup_in_progress(void **state)
{
    struct rme_link *l[MANY];
    (void)state;
    for (int i = 0; i < MANY; i++)
        l[i] = dial("ib://silent:20500");
    until(&server.asked, 1);
    dial("ib://good:20500");
    until(&rig.resolved_addr, 1);
    assert_int_equal(so_far(&server.asked), 2);
    for (int i = 1; i < MANY; i++)
        fails(l[i]);
    speak();
    until(&server.answered, 2);
    dial("ib://good:20500");
    until(&rig.resolved_addr, 2);
    assert_int_equal(so_far(&server.asked), 3);
    close_names();
}

/* Lookups that wait for a worker start when one is free. */
static void excess_lookups_wait_for_worker(void **state)
{
    char uri[40];
    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(uri, sizeof(uri), "ib://silent%d:20500", i);
        dial(uri);
    }
    until(&server.asked, 8);
    dial("ib://good:20500");
    asleep_await_others(); /* no other thread is left that could start one */
    assert_int_equal(so_far(&server.asked), 8);
    speak();
    until(&server.answered, MANY + 1);
    until(&rig.resolved_addr, 1);
    close_names();
}

/* Closing does not wait for them. */
static void closed_while_they_hang(void **state)
{
    unsigned threads = asleep_threads();
    char uri[40];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(uri, sizeof(uri), "ib://silent%d:20500", i);
        dial(uri);
    }
    dial("ib://good:20500");
    until(&server.asked, 4);
    until(&rig.resolved_addr, 1);
    close_names();
    assert_int_equal(so_far(&server.answered), 1);
    speak();
    for (int i = 0; i < PATIENCE_MS && so_far(&server.answered) < 4; i++)
        usleep(1000);
    assert_int_equal(so_far(&server.answered), 4);
    while (asleep_threads() > threads) /* they free the resolver, which a sanitizer checks */
        usleep(1000);
}

#define TEST(f) cmocka_unit_test_setup(f, open_names)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_that_hangs_holds_up_no_other),
        TEST(name_has_one_lookup_in_progress),
        TEST(excess_lookups_wait_for_worker),
        TEST(closed_while_they_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
