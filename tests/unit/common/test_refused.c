/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A peer of another protocol version: each side logs it in one correct line, and operations
 * that wait for the link fail. Messages with unknown types are ignored, invalid ones described.
 * A busy peer is asked again.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "unit.h"
#include "engine/engine.h"
#include "base/addr_int.h"
#include "base/timer.h"
#include "wire/wire.h"
#include "tests/fuzz/script_fabric.h"
#include "tests/lib/clock.h"

#define FOREIGN (RME_WIRE_VERSION + 1) /* only version of the peer */

static struct rme *rme;
static int lines;
static char said[512];      /* the last log line */
static char described[512]; /* the last line that describes an invalid message */
static enum rme_log_level at_level;
static bool unlocked; /* state of the engine's lock when the line came */

static void take_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level == RME_LOG_INFO && strstr(line, "the invalid message has") != NULL)
        snprintf(described, sizeof(described), "%s", line);
    if (level > RME_LOG_NOTICE)
        return;
    lines++;
    at_level = level;
    unlocked = rme != NULL && pthread_mutex_trylock(&rme->lock) == 0;
    if (unlocked)
        pthread_mutex_unlock(&rme->lock);
    snprintf(said, sizeof(said), "%s", line);
}

#define OPTIONS "regcache_entries=0,poll_us=0"

static void open_engine(const char *options)
{
    struct rme_addr *listen = NULL;
    struct rme_config config = {.fabric = &script_ops, .options = options, .log = take_line};

    lines = 0;
    memset(script.asked, 0, sizeof(script.asked));
    assert_int_equal(rme_addr_parse("ib", "ib://self:1", &listen), 0);
    config.listen = listen;
    assert_int_equal(rme_open(&config, &rme), 0);
    assert_int_equal(rme_context_open(rme, 0), 0);
    rme_addr_free(listen);
}

static int set_up(void **state)
{
    open_engine(*state != NULL ? *state : OPTIONS);
    return 0;
}

static int tear_down(void **state)
{
    struct rme *closing = rme;

    (void)state;
    rme = NULL; /* log lines of closing have no lock to check */
    rme_close(closing);
    return 0;
}

/* Polls; returns the number of reported operations and stores the last one's error in
 * *error. */
static int run(int *error)
{
    struct rme_done done[4];
    int ended = 0;

    do {
        int count = rme_test_context(rme, 0, done, 4, 0);

        assert_true(count >= 0);
        ended += count;
        if (count > 0)
            *error = done[count - 1].error;
    } while (!script_is_quiet());
    return ended + rme_test_context(rme, 0, done, 4, 0);
}

static void hello_of(uint8_t version, uint8_t out[RME_HELLO_MAX])
{
    const struct rme_hello hello = {.version = version,
                                    .version_min = version,
                                    .incarnation = 5,
                                    .rx_size = 4096,
                                    .credits = 4,
                                    .eager_window = 1 << 20,
                                    .unexpected_window = 1 << 20,
                                    .rts_max = 64};

    memset(out, 0, RME_HELLO_MAX);
    rme_hello_encode(&hello, out);
}

static void said_once(void)
{
    assert_int_equal(lines, 1);
    assert_non_null(strstr(said, "no common protocol version"));
}

static void foreign_requester_refused_in_one_line(void **state)
{
    uint8_t hello[RME_HELLO_MAX];
    int error = 0;

    (void)state;
    hello_of(FOREIGN, hello);
    script_request(hello, sizeof(hello));
    run(&error);
    said_once();
    assert_int_equal(script.links, 0);
    assert_int_equal(rme_counter_value(rme, "rejects"), 1);
    assert_true(unlocked);
}

/* Posts a send to the peer, which has not answered the connection request yet. */
static struct rme_addr *send_to(const char *name)
{
    static char word[] = "word";
    void *base[] = {word};
    const int64_t length[] = {sizeof(word)};
    const struct rme_list list = {base, length, 1};
    struct rme_addr *addr = NULL;
    rme_id id;
    int error = 0;

    assert_int_equal(rme_addr_parse("ib", name, &addr), 0);
    assert_int_equal(rme_post_send(rme, addr, &list, 1, 0, NULL, &id), 0);
    assert_int_equal(run(&error), 0);
    assert_int_equal(script.links, 1);
    return addr;
}

static struct rme_addr *send_to_the_peer(void)
{
    return send_to("ib://peer:1");
}

/* Accepts the engine's request; returns the number of its operations that end. */
static int accept_with(uint8_t version, int *error)
{
    uint8_t hello[RME_HELLO_MAX];

    hello_of(version, hello);
    script_up(0, hello, sizeof(hello));
    return run(error);
}

static void cut(struct rme_addr *addr)
{
    int error;

    script_cut();
    run(&error);
    rme_addr_free(addr);
}

static void refusing_peer_named_in_one_line(void **state)
{
    const struct rme_reject why = {.reason = RME_REJECT_VERSION, .acceptable = FOREIGN};
    struct rme_addr *addr = send_to_the_peer();
    uint8_t data[RME_REJECT_SIZE];
    int error = 0;

    (void)state;
    rme_reject_encode(&why, data);
    script_refuse(0, -EACCES, data, sizeof(data));
    assert_int_equal(run(&error), 1);
    assert_true(error < 0);
    said_once();
    assert_non_null(strstr(said, "ib://peer:1"));
    rme_addr_free(addr);
}

static void accepting_foreign_peer_is_left(void **state)
{
    struct rme_addr *addr = send_to_the_peer();
    int error = 0;

    (void)state;
    assert_int_equal(accept_with(FOREIGN, &error), 1);
    assert_true(error < 0);
    said_once();
    assert_int_equal(script.links, 0);
    rme_addr_free(addr);
}

/* A later version may use further message types: unknown ones are ignored. */
static void unknown_types_are_ignored(void **state)
{
    static const uint8_t type[] = {0, 100, 255};
    struct rme_addr *addr = send_to_the_peer();
    uint8_t message[RME_WIRE_HEADER_SIZE] = {0};
    struct rme_unexpected got;
    unsigned words;
    int error = 0;

    (void)state;
    assert_int_equal(accept_with(RME_WIRE_VERSION, &error), 1);
    words = script.spent;
    for (unsigned i = 0; i < sizeof(type); i++) {
        rme_wire_encode(
            &(struct rme_wire_message){.type = type[i], .flags = RME_WIRE_F_OPTIONAL}, message);
        script_message(0, message, sizeof(message));
        assert_int_equal(run(&error), 0);
        assert_int_equal(rme_test_unexpected(rme, &got, 1, 0), 0);
    }
    assert_int_equal(script.spent, words);
    assert_int_equal(script.links, 1);
    cut(addr);
}

/* A line describes the message that ended the link: one of a wrong form, and one of a wrong
 * content. */
static void invalid_messages_are_described(void **state)
{
    static const struct {
        uint8_t bytes[RME_WIRE_HEADER_SIZE];
        const char *text;
    } wrong[] = {
        {{RME_WIRE_FIN, RME_WIRE_F_EAGER}, "type FIN (4), flags 0x02 and 16 bytes"},
        {{99, RME_WIRE_F_STALLED}, "type unknown (99), flags 0x01 and 16 bytes"},
        {{RME_WIRE_CREDIT, RME_WIRE_F_RELEASE}, "type CREDIT (6), flags 0x10 and 16 bytes"},
    };
    int error = 0;

    (void)state;
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct rme_addr *addr = send_to_the_peer();

        assert_int_equal(accept_with(RME_WIRE_VERSION, &error), 1);
        described[0] = '\0';
        script_message(0, wrong[i].bytes, sizeof(wrong[i].bytes));
        run(&error);
        assert_int_equal(rme_counter_value(rme, "protocol_errors"), i + 1);
        assert_non_null(strstr(described, wrong[i].text));
        cut(addr);
    }
}

/* ---- The peer's connection backlog is full ---- */

/* Polls until the engine has made that many connection requests; returns the number of
 * operations reported meanwhile. */
static int until_asked(unsigned times, int *error)
{
    int ended = 0;

    while (script.asked[0] < times && ended == 0) {
        clock_step_ns(10000);
        ended = run(error);
    }
    return ended;
}

static void busy(void)
{
    script_refuse(0, -EBUSY, NULL, 0);
}

static void busy_peer_connect_is_retried_silently(void **state)
{
    struct rme_addr *addr = send_to_the_peer();
    int error = 0;

    (void)state;
    for (unsigned times = 1; times <= 5; times++) {
        assert_int_equal(script.asked[0], times);
        busy();
        assert_int_equal(until_asked(times + 1, &error), 0);
    }
    assert_int_equal(rme_counter_value(rme, "connects_again"), 5);
    assert_int_equal(accept_with(RME_WIRE_VERSION, &error), 1);
    assert_int_equal(error, 0);
    assert_int_equal(rme_counter_value(rme, "link_failures"), 0);
    assert_int_equal(lines, 0);
    cut(addr);
}

/* The host frees an address in the pause between two attempts, while a call still holds the
 * peer, as rme_addr_reach() does: no attempt follows, and the peer ends with the call. */
static void freed_address_is_not_connected_again(void **state)
{
    struct rme_addr *addr = send_to_the_peer();
    struct rme_peer *peer = addr->peer;
    int error = 0;

    (void)state;
    busy();
    assert_int_equal(run(&error), 0);
    assert_int_equal(peer->state, RME_PEER_BACKOFF);
    peer->refcount++;
    rme_addr_free(addr);
    assert_int_equal(run(&error), 1);
    assert_int_equal(error, -ECONNRESET);
    for (int i = 0; i < 1000; i++) {
        clock_step_ns(10000000);
        assert_int_equal(run(&error), 0);
    }
    assert_int_equal(script.asked[0], 1);
    assert_int_equal(script.links, 0);
    pthread_mutex_lock(&rme->lock);
    rme_peer_put(peer);
    assert_int_equal(rme->npeer, 0);
    pthread_mutex_unlock(&rme->lock);
}

static void busy_peer_fails_after_connect_timeout(void **state)
{
    uint64_t begin = rme_now();
    struct rme_addr *addr = send_to_the_peer();
    int error = 0, ended = 0;

    (void)state;
    for (unsigned times = 1; ended == 0 && times < 10000; times++) {
        busy();
        ended = until_asked(times + 1, &error);
    }
    assert_in_range(rme_now() - begin, 50, 52); /* the pauses have steps of a millisecond */
    assert_int_equal(ended, 1);
    assert_int_equal(error, -ECONNREFUSED);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(said, "ib://peer:1: cannot connect: "));
    /* logged at a low level, because the host reports the error */
    assert_int_equal(at_level, RME_LOG_NOTICE);
    assert_true(rme_counter_value(rme, "connects_again") >= 1);
    assert_int_equal(rme_counter_value(rme, "connects_again") + 1, script.asked[0]);
    rme_addr_free(addr);
}

/* One busy address suffices, in any position; but only in its round. */
static void busy_address_retries_all_parts(void **state)
{
    static const int answers[][2] = {
        {-EBUSY, -ECONNREFUSED}, {-ECONNREFUSED, -EBUSY}, {-ECONNREFUSED, -ECONNREFUSED}};
    struct rme_addr *addr = send_to("ib://peer:1,ib://other:2");
    int error = 0;

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(script.asked[0], round + 1);
        script_refuse(0, answers[round][0], NULL, 0);
        assert_int_equal(run(&error), 0);
        assert_int_equal(script.asked[1], round + 1);
        script_refuse(0, answers[round][1], NULL, 0);
        assert_int_equal(until_asked(round + 2, &error), round == 2);
    }
    assert_int_equal(error, -ECONNREFUSED);
    assert_int_equal(rme_counter_value(rme, "connects_again"), 2);
    assert_int_equal(lines, 1);
    rme_addr_free(addr);
}

/* ---- A thread that is cancelled ---- */

/* Posts while a cancellation is pending, and is cancellable afterwards as before. */
static void *post_when_cancelled(void *addr)
{
    static char word[] = "word";
    void *base[] = {word};
    const int64_t length[] = {sizeof(word)};
    const struct rme_list list = {base, length, 1};
    rme_id id;
    int error, state = -1;

    pthread_cancel(pthread_self());
    error = rme_post_send(rme, addr, &list, 1, 0, NULL, &id);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return error == 0 && state == PTHREAD_CANCEL_ENABLE ? addr : NULL;
}

/* Connecting is a system call of the fabric under the engine's lock. */
static void connecting_post_is_no_cancellation_point(void **state)
{
    struct rme_addr *addr = NULL;
    pthread_t thread;
    void *ended;
    int error = 0;

    (void)state;
    script.connecting = pthread_testcancel;
    assert_int_equal(rme_addr_parse("ib", "ib://peer:1", &addr), 0);
    assert_int_equal(pthread_create(&thread, NULL, post_when_cancelled, addr), 0);
    assert_int_equal(pthread_join(thread, &ended), 0);
    script.connecting = NULL;
    if (ended == PTHREAD_CANCELED) {
        fprintf(stderr, "cancelled with the engine's lock, for which the end would wait\n");
        exit(1);
    }
    assert_ptr_equal(ended, addr);
    assert_int_equal(run(&error), 0);
    script_refuse(0, -ECONNREFUSED, NULL, 0);
    assert_int_equal(run(&error), 1);
    assert_int_equal(error, -ECONNREFUSED);
    rme_addr_free(addr);
}

#define CASE(name, options)                                                                    \
    {                                                                                          \
#name, name, set_up, tear_down, (void *)(uintptr_t)(options)                           \
    }
#define PATIENT OPTIONS ",connect_timeout_ms=600000,backoff_max_ms=1"

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(foreign_requester_refused_in_one_line, OPTIONS),
        CASE(refusing_peer_named_in_one_line, OPTIONS),
        CASE(accepting_foreign_peer_is_left, OPTIONS),
        CASE(connecting_post_is_no_cancellation_point, OPTIONS),
        CASE(unknown_types_are_ignored, OPTIONS),
        CASE(invalid_messages_are_described, OPTIONS),
        CASE(busy_peer_connect_is_retried_silently, PATIENT),
        CASE(freed_address_is_not_connected_again, PATIENT),
        CASE(busy_peer_fails_after_connect_timeout,
             OPTIONS ",connect_timeout_ms=25,backoff_max_ms=1"),
        CASE(busy_address_retries_all_parts, PATIENT),
    };

    return cmocka_run_group_tests_name("refused", tests, clock_setup, NULL);
}
