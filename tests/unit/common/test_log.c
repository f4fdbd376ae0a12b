/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <pthread.h>

#include "unit.h"
#include "fake_fabric.h"
#include "base/log.h"
#include "engine/engine.h"
#include "tests/lib/clock.h"

static void lines_wait_for_the_drain(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    rme_log_put(log, RME_LOG_INFO, "first %d", 1);
    rme_log_put(log, RME_LOG_ERROR, "second %s", "line");
    assert_int_equal(seen.lines, 0);
    rme_log_drain(log);
    assert_int_equal(seen.lines, 2);
    assert_string_equal(seen.last, "second line");
    rme_log_put(log, RME_LOG_INFO, "third");
    rme_log_free(log);
    assert_int_equal(seen.lines, 3);
}

static void too_many_lines_are_counted(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    for (int i = 0; i < RME_LOG_QUEUE + 7; i++)
        rme_log_put(log, RME_LOG_INFO, "line %d", i);
    rme_log_drain(log);
    assert_int_equal(seen.lines, RME_LOG_QUEUE + 1);
    assert_non_null(strstr(seen.last, "7 log lines lost"));
    rme_log_drain(log);
    assert_int_equal(seen.lines, RME_LOG_QUEUE + 1);
    rme_log_free(log);
}

/* A host that shows no DEBUG lines misses no warning because of them, and reads of no loss. */
static void debug_flood_leaves_room_for_warnings(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    for (int i = 0; i < 2 * RME_LOG_QUEUE; i++)
        rme_log_put(log, RME_LOG_DEBUG, "line %d", i);
    rme_log_put(log, RME_LOG_WARN, "warning");
    rme_log_drain(log);
    assert_string_equal(seen.before, "warning");
    assert_int_equal(seen.level_before, RME_LOG_WARN);
    assert_non_null(strstr(seen.last, "log lines lost"));
    assert_int_equal(seen.level, RME_LOG_DEBUG);
    for (int i = 0; i < RME_LOG_QUEUE + 1; i++)
        rme_log_put(log, i == RME_LOG_QUEUE ? RME_LOG_ERROR : RME_LOG_INFO, "line %d", i);
    rme_log_put(log, RME_LOG_WARN, "lost");
    rme_log_drain(log);
    assert_non_null(strstr(seen.last, "2 log lines lost"));
    assert_int_equal(seen.level, RME_LOG_ERROR);
    rme_log_free(log);
}

static void long_lines_are_cut(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    rme_log_put(log, RME_LOG_INFO, "%02000d", 1);
    rme_log_drain(log);
    assert_int_equal(strlen(seen.last), RME_LOG_LINE - 1);
    rme_log_free(log);
}

/* A host that logs and drains again from inside its callback. */
struct nested {
    struct rme_log *log;
    int lines;
};

static void nested_line(void *arg, enum rme_log_level level, const char *line)
{
    struct nested *nested = arg;

    (void)line;
    if (++nested->lines < 5)
        rme_log_put(nested->log, level, "again");
    rme_log_drain(nested->log);
}

static void callback_may_log(void **state)
{
    struct nested nested = {0};

    (void)state;
    nested.log = rme_log_new(nested_line, &nested);
    rme_log_put(nested.log, RME_LOG_INFO, "start");
    rme_log_drain(nested.log);
    assert_int_equal(nested.lines, 5);
    rme_log_free(nested.log);
}

#define PER_THREAD 2000

static void *logger(void *arg)
{
    for (int i = 0; i < PER_THREAD; i++) {
        rme_log_put(arg, RME_LOG_INFO, "%d", i);
        rme_log_drain(arg);
    }
    return NULL;
}

/* Every line is either delivered or counted as lost; one thread at a time delivers. */
struct sum {
    int inside;
    long lines, lost;
};

static void sum_line(void *arg, enum rme_log_level level, const char *line)
{
    struct sum *sum = arg;
    const char *lost = strstr(line, "log lines lost");

    (void)level;
    sum->inside++;
    if (sum->inside != 1)
        sum->lines = -1000000;
    if (lost != NULL)
        sum->lost += strtol(line, NULL, 10);
    else
        sum->lines++;
    sum->inside--;
}

static void many_threads(void **state)
{
    struct sum sum = {0};
    struct rme_log *log = rme_log_new(sum_line, &sum);
    pthread_t thread[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, logger, log), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    rme_log_free(log);
    assert_int_equal(sum.lines + sum.lost, 4 * PER_THREAD);
}

/* Logs a line about host and port, and delivers the lines. */
static void about(struct rme_log *log, enum rme_log_level level, const char *host, int port)
{
    char name[96];

    snprintf(name, sizeof(name), "%s:%d", host, port);
    rme_log_put(log, level, "%s: gone", name);
    rme_log_drain(log);
}

/* Lines about one host are limited by their format, for all ports; others pass. */
static void lines_about_a_host_are_limited(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    clock_set();
    for (int i = 0; i < 100; i++) {
        about(log, RME_LOG_NOTICE, "10.1.2.3", 4000 + i);
        assert_int_equal(seen.lines, min_u64((uint64_t)i + 1, RME_LOG_BURST));
    }
    for (int i = 0; i < 100; i++) {
        rme_log_put(log, RME_LOG_WARN, "gone: %s", "10.1.2.3:4000");
        rme_log_put(log, RME_LOG_DEBUG, "%s: gone", "10.1.2.3:4000");
        rme_log_drain(log);
    }
    assert_int_equal(seen.lines, RME_LOG_BURST + 200);
    about(log, RME_LOG_WARN, "10.1.2.4", 4000);
    rme_log_put(log, RME_LOG_WARN, "%s: came", "10.1.2.3:4000");
    rme_log_drain(log);
    assert_int_equal(seen.lines, RME_LOG_BURST + 202);
    clock_step_ms(RME_LOG_PERIOD_MS - 1);
    rme_log_put(log, RME_LOG_WARN, "within the period");
    rme_log_drain(log);
    assert_int_equal(seen.lines, RME_LOG_BURST + 203);
    clock_step_ms(1);
    seen.lines = 0;
    rme_log_put(log, RME_LOG_WARN, "behind the period");
    rme_log_drain(log);
    assert_int_equal(seen.lines, 2);
    assert_string_equal(seen.before, "90 similar lines suppressed; the last one: "
                                     "10.1.2.3:4099: gone");
    assert_int_equal(seen.level_before, RME_LOG_NOTICE);
    for (int i = 0; i < RME_LOG_BURST + 1; i++)
        about(log, RME_LOG_WARN, "10.1.2.3", 4000);
    assert_int_equal(seen.lines, 2 + RME_LOG_BURST);
    rme_log_free(log);
    assert_non_null(strstr(seen.last, "1 similar lines"));
    clock_release();
}

/* Occasional lines are never suppressed, and the number of lines does not grow with the number
 * of hosts. */
static void log_limit_is_fair(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);
    char host[64];

    (void)state;
    clock_set();
    for (int i = 0; i < 100000; i++) {
        clock_step_ms(RME_LOG_PERIOD_MS / RME_LOG_BURST + 1);
        about(log, RME_LOG_WARN, "host", 1);
    }
    assert_int_equal(seen.lines, 100000);
    seen.lines = 0;
    clock_step_ms(RME_LOG_PERIOD_MS);
    for (unsigned i = 0; i < 100000; i++) {
        snprintf(host, sizeof(host), "10.%u.%u.%u", i >> 16, i >> 8 & 255, i & 255);
        about(log, RME_LOG_WARN, host, 1);
    }
    assert_in_range(seen.lines, RME_LOG_BURST, RME_LOG_BURST * 64);
    rme_log_free(log);
    clock_release();
}

/* Lines left out are reported with the next line, or at the end, when their queue is full. */
static void suppressed_lines_are_reported(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    for (int i = 0; i < RME_LOG_BURST + 5; i++)
        rme_log_put(log, RME_LOG_WARN, "%s: number %d", "host:1", i);
    rme_log_drain(log);
    assert_int_equal(seen.lines, RME_LOG_BURST);
    rme_log_put(log, RME_LOG_DEBUG, "%s: number %d", "host:1", 0);
    rme_log_drain(log);
    assert_int_equal(seen.lines, RME_LOG_BURST + 1);
    for (int i = 0; i < RME_LOG_QUEUE; i++)
        rme_log_put(log, RME_LOG_WARN, "full");
    rme_log_free(log);
    assert_int_equal(seen.lines, RME_LOG_BURST + 1 + RME_LOG_QUEUE + 1);
    assert_non_null(strstr(seen.last, "5 similar lines"));
    assert_non_null(strstr(seen.last, "host:1: number 14"));
}

/* Remedies of limits appear only in messages about limits. */
static void limits_have_remedies(void **state)
{
    (void)state;
    assert_non_null(strstr(rme_remedy(-EMFILE, "else"), "ulimit -n"));
    assert_non_null(strstr(rme_remedy(-ENFILE, "else"), "fs.file-max"));
    assert_non_null(strstr(rme_remedy(-ENOMEM, "else"), "memory"));
    assert_string_equal(rme_remedy(-EACCES, "else"), "else");
    assert_null(rme_remedy(0, NULL));
}

/* A forked child in which another thread holds the lock of the log's queue. This thread plays
 * that one: the child acts while the lock is held. */
static struct {
    struct rme_log *log; /* NULL: no child */
    bool child;
} fork_of;

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    static struct rme_engine engine;

    if (fork_of.child) {
        fork_of.child = false;
        fail_msg("a child asks for a lock");
    }
    int ret = __real_pthread_mutex_lock(lock);
    if (fork_of.log != NULL) {
        engine.rme.log = fork_of.log;
        fork_of.log = NULL;
        fork_of.child = true;
        rme_forked_explain(&engine.rme);
        fork_of.child = false;
    }
    return ret;
}

static void child_asks_for_no_lock(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    fork_of.log = log;
    rme_log_put(log, RME_LOG_INFO, "of the parent");
    assert_null(fork_of.log);
    assert_int_equal(seen.lines, 1);
    assert_non_null(strstr(seen.last, "a fork of the one that initialized BMI"));
    rme_log_drain(log);
    assert_int_equal(seen.lines, 2);
    assert_string_equal(seen.last, "of the parent");
    rme_log_free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_wait_for_the_drain),
        cmocka_unit_test(too_many_lines_are_counted),
        cmocka_unit_test(debug_flood_leaves_room_for_warnings),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(callback_may_log),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(lines_about_a_host_are_limited),
        cmocka_unit_test(log_limit_is_fair),
        cmocka_unit_test_setup_teardown(suppressed_lines_are_reported, clock_setup,
                                        clock_teardown),
        cmocka_unit_test(limits_have_remedies),
        cmocka_unit_test(child_asks_for_no_lock),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
