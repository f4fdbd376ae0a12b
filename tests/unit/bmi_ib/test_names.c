/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Host names whose lookup hangs; linked with --wrap=getaddrinfo. A name that resolves leads to
 * an address where nobody listens. */
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "tests/lib/asleep.h"
#include "wire_host.h"

enum { MANY = 12, MOST = 8 }; /* names; concurrent lookups */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t change;
    bool silent;              /* lookups of "silent…" hang */
    unsigned asked, answered; /* lookups of any name, begun and finished */
} dns = {.mutex = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static struct wire w;
static int downs; /* links that have ended */

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(name, service, hints, list);
    bool silent = strncmp(name, "silent", 6) == 0;
    pthread_mutex_lock(&dns.mutex);
    dns.asked++;
    while (dns.silent && silent)
        pthread_cond_wait(&dns.change, &dns.mutex);
    dns.answered++;
    pthread_mutex_unlock(&dns.mutex);
    return silent ? EAI_AGAIN : __real_getaddrinfo("127.0.0.1", service, hints, list);
}

static unsigned so_far(const unsigned *count)
{
    pthread_mutex_lock(&dns.mutex);
    unsigned n = *count;
    pthread_mutex_unlock(&dns.mutex);
    return n;
}

static void speak(void)
{
    pthread_mutex_lock(&dns.mutex);
    dns.silent = false;
    pthread_cond_broadcast(&dns.change);
    pthread_mutex_unlock(&dns.mutex);
}

static int open_names(void **state)
{
    (void)state;
    wire_open(&w, NULL);
    dns.silent = true;
    dns.asked = dns.answered = 0;
    downs = 0;
    return 0;
}

/* Sleeps until that many links have ended; a lost wake-up fails the test. */
static void until_down(int count)
{
    time_t end = wire_now() + PATIENCE_S;
    for (;;) {
        assert_int_equal(w.ops->arm(w.f), 0);
        wire_poll(&w);
        if (wire_count(&w, RME_EV_LINK_DOWN) >= count)
            return;
        w.ops->wait(w.f, PATIENCE_S * 1000);
        assert_true(wire_now() < end);
    }
}

static void dial_silent(int number)
{
    char uri[40];
    snprintf(uri, sizeof(uri), "ib://silent%d:20500", number);
    (void)wire_dial(&w, uri);
}

/* Dials a name that resolves; its link ends. */
static void dial_good(void)
{
    struct rme_link *link = wire_dial(&w, wire_uri("good"));
    until_down(++downs);
    const struct wire_seen *down = wire_event(&w, RME_EV_LINK_DOWN, downs - 1);
    assert_ptr_equal(down->link, link);
    assert_int_equal(down->error, -ECONNREFUSED);
}

static void close_names(void)
{
    for (int i = 0; i < wire_count(&w, RME_EV_LINK_DOWN); i++)
        w.ops->link_free(wire_event(&w, RME_EV_LINK_DOWN, i)->link);
    wire_close(&w);
}

/* A name that resolves does not wait behind hanging lookups while one worker is free. */
static void hanging_lookups_delay_no_other(void **state)
{
    (void)state;
    for (int i = 0; i < MOST - 1; i++)
        dial_silent(i);
    for (int i = 0; i < 3; i++)
        dial_good();
    speak();
    until_down(downs + MOST - 1);
    for (int i = downs; i < downs + MOST - 1; i++)
        assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, i)->error, -ENONET);
    assert_int_equal(so_far(&dns.asked), MOST - 1 + 3);
    close_names();
}

/* A hanging name is looked up once at a time for any number of links. A link that is dropped
 * meanwhile ends, and a sleep with it: no descriptor reports that. */
static void name_has_one_lookup_in_progress(void **state)
{
    struct rme_link *link[MANY];
    (void)state;
    for (int i = 0; i < MANY; i++)
        link[i] = wire_dial(&w, "ib://silent:20500");
    dial_good();
    assert_int_equal(so_far(&dns.asked), 2);
    for (int i = 0; i < MANY; i++) {
        time_t end = wire_now() + PATIENCE_S;
        assert_int_equal(w.ops->arm(w.f), 0);
        wire_poll(&w);
        w.ops->link_disconnect(link[i], -ETIMEDOUT);
        w.ops->wait(w.f, PATIENCE_S * 1000);
        assert_true(wire_now() < end);
        until_down(++downs);
        assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, downs - 1)->error, -ETIMEDOUT);
    }
    speak();
    dial_good();
    assert_int_equal(so_far(&dns.asked), 3);
    close_names();
}

/* Lookups that wait for a worker start when one is free. */
static void excess_lookups_wait_for_worker(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        dial_silent(i);
    while (so_far(&dns.asked) < MOST)
        wire_poll(&w);
    asleep_await_others(); /* no other thread is left that could start one */
    assert_int_equal(so_far(&dns.asked), MOST);
    speak();
    until_down(MANY);
    assert_int_equal(so_far(&dns.answered), MANY);
    close_names();
}

/* Closing does not wait for them. */
static void fabric_closes_while_lookups_hang(void **state)
{
    unsigned threads = asleep_threads();
    (void)state;
    for (int i = 0; i < 3; i++)
        dial_silent(i);
    dial_good();
    close_names();
    assert_int_equal(so_far(&dns.answered), 1);
    speak();
    while (so_far(&dns.answered) < 4)
        usleep(1000);
    while (asleep_threads() > threads) /* they free the resolver, which a sanitizer checks */
        usleep(1000);
}

#define TEST(f) cmocka_unit_test_setup(f, open_names)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(hanging_lookups_delay_no_other),
        TEST(name_has_one_lookup_in_progress),
        TEST(excess_lookups_wait_for_worker),
        TEST(fabric_closes_while_lookups_hang),
    };
    wire_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
