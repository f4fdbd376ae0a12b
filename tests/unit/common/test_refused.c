/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A peer of another protocol version: each side says so in one line, which is true, and what
 * waited for the link ends. */
#include <errno.h>
#include <stdio.h>
#include "unit.h"
#include "rme.h"
#include "wire/wire.h"
#include "tests/fuzz/script_fabric.h"

#define FOREIGN (RME_WIRE_VERSION + 1) /* the only version that the peer speaks */

static struct rme *rme;
static int lines;
static char said[512]; /* the last line */

static void take_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level > RME_LOG_WARN)
        return;
    lines++;
    snprintf(said, sizeof(said), "%s", line);
}

static int set_up(void **state)
{
    struct rme_addr *listen = NULL;
    struct rme_config config = {.fabric = &script_ops,
                                .options = "regcache_entries=0,spin_us=0,dont_fork=off,"
                                           "measure_costs=0",
                                .log = take_line};

    (void)state;
    lines = 0;
    assert_int_equal(rme_addr_parse("ib", "ib://self:1", &listen), 0);
    config.listen = listen;
    assert_int_equal(rme_open(&config, &rme), 0);
    assert_int_equal(rme_context_open(rme, 0), 0);
    rme_addr_free(listen);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rme_close(rme);
    return 0;
}

/* Progress; how many operations ended, the error of the last one in *error. */
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

static void foreign_hello(uint8_t out[RME_HELLO_MAX])
{
    const struct rme_hello hello = {.version = FOREIGN,
                                    .version_min = FOREIGN,
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

static void who_asks_us_is_refused_in_one_line(void **state)
{
    uint8_t hello[RME_HELLO_MAX];
    int error = 0;

    (void)state;
    foreign_hello(hello);
    script_request(hello, sizeof(hello));
    run(&error);
    said_once();
    assert_int_equal(script.links, 0);
    assert_int_equal(rme_counter_value(rme, "rejects"), 1);
}

/* A send to the peer, whose link the peer's answer then ends. */
static struct rme_addr *send_to_the_peer(void)
{
    static char word[] = "word";
    void *base[] = {word};
    const int64_t length[] = {sizeof(word)};
    const struct rme_list list = {base, length, 1};
    struct rme_addr *addr = NULL;
    rme_id id;
    int error = 0;

    assert_int_equal(rme_addr_parse("ib", "ib://peer:1", &addr), 0);
    assert_int_equal(rme_post_send(rme, addr, &list, 1, 0, NULL, &id), 0);
    assert_int_equal(run(&error), 0);
    assert_int_equal(script.links, 1);
    return addr;
}

static void who_refuses_us_is_named_in_one_line(void **state)
{
    const struct rme_reject why = {FOREIGN, FOREIGN, RME_REJECT_VERSION, FOREIGN};
    struct rme_addr *addr = send_to_the_peer();
    uint8_t data[RME_REJECT_SIZE];
    int error = 0;

    (void)state;
    rme_reject_encode(&why, data);
    script_refuse(0, data, sizeof(data));
    assert_int_equal(run(&error), 1);
    assert_true(error < 0);
    said_once();
    assert_non_null(strstr(said, "ib://peer:1"));
    rme_addr_free(addr);
}

static void who_takes_us_all_the_same_is_left_in_one_line(void **state)
{
    struct rme_addr *addr = send_to_the_peer();
    uint8_t hello[RME_HELLO_MAX];
    int error = 0;

    (void)state;
    foreign_hello(hello);
    script_up(0, hello, sizeof(hello));
    assert_int_equal(run(&error), 1);
    assert_true(error < 0);
    said_once();
    assert_int_equal(script.links, 0);
    rme_addr_free(addr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_asks_us_is_refused_in_one_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_refuses_us_is_named_in_one_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_takes_us_all_the_same_is_left_in_one_line, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
