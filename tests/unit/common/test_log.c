/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <pthread.h>

#include "unit.h"
#include "fake_fabric.h"
#include "log.h"

static void lines_wait_for_the_drain(void **state)
{
    struct fake_log seen = {0};
    struct rme_log *log = rme_log_new(fake_log_line, &seen);

    (void)state;
    assert_false(rme_log_pending(log));
    rme_log_put(log, RME_LOG_INFO, "first %d", 1);
    rme_log_from_fabric(log, RME_LOG_ERROR, "second %s", "line");
    assert_int_equal(seen.lines, 0);
    assert_true(rme_log_pending(log));
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
    assert_non_null(strstr(seen.last, "7 log lines were lost"));
    rme_log_drain(log);
    assert_int_equal(seen.lines, RME_LOG_QUEUE + 1);
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

/* A host that logs again, and drains, from inside its callback. */
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

static void the_callback_may_log(void **state)
{
    struct nested nested = {0};

    (void)state;
    nested.log = rme_log_new(nested_line, &nested);
    rme_log_put(nested.log, RME_LOG_INFO, "start");
    rme_log_drain(nested.log);
    assert_int_equal(nested.lines, 5);
    rme_log_free(nested.log);
}

static void no_host(void **state)
{
    struct rme_log *log = rme_log_new(NULL, NULL);

    (void)state;
    rme_log_put(log, RME_LOG_INFO, "dropped");
    assert_false(rme_log_pending(log));
    rme_log_drain(log);
    rme_log_free(log);
    rme_log_put(NULL, RME_LOG_INFO, "dropped");
    rme_log_drain(NULL);
    rme_log_free(NULL);
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

/* Every line is either delivered or counted as lost; delivery is by one thread at a time. */
struct sum {
    int inside;
    long lines, lost;
};

static void sum_line(void *arg, enum rme_log_level level, const char *line)
{
    struct sum *sum = arg;
    const char *lost = strstr(line, "log lines were lost");

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_wait_for_the_drain),
        cmocka_unit_test(too_many_lines_are_counted),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(the_callback_may_log),
        cmocka_unit_test(no_host),
        cmocka_unit_test(many_threads),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
