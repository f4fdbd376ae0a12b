/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A server dies when its queue has taken a request, and another process has its place at once:
 * nothing of ours is under way any more, so only its desk tells that the answer never comes.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rme.h"
#include "tests/elan4/sides.h"
#include "tests/ports/ports.h"

#define FOUND_MS 1800 /* after the request; the engine's own probe is due after 2000 */

static char options[200];

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level <= RME_LOG_WARN)
        fprintf(stderr, "%s\n", line);
}

static struct rme *open_engine(const char *node, const char *listen)
{
    struct rme_addr *at = NULL;
    struct rme *rme = NULL;

    setenv("EMUELAN4_NODE", node, 1);
    if (listen)
        assert_int_equal(rme_addr_parse("elan4", listen, &at), 0);
    struct rme_config config = {.fabric = bmi_elan4_fabric(),
                                .listen = at,
                                .options = options,
                                .options_are_mine = true,
                                .log = log_line};
    assert_int_equal(rme_open(&config, &rme), 0);
    assert_int_equal(rme_context_open(rme, 0), 0);
    return rme;
}

/* Waits for its turn, then takes requests, says so, and never answers. */
static void serve(int turn, int taken)
{
    struct rme_unexpected u;
    char byte;

    alarm(60);
    assert_int_equal(read(turn, &byte, 1), 1);
    struct rme *rme = open_engine("1", "elan4://1:2");
    for (;;)
        if (rme_test_unexpected(rme, &u, 1, 100) == 1)
            assert_int_equal(write(taken, "t", 1), 1);
}

struct server {
    pid_t pid;
    int turn, taken;
};

static void start(struct server *s)
{
    int turn[2], taken[2];

    assert_int_equal(pipe(turn), 0);
    assert_int_equal(pipe(taken), 0);
    s->pid = fork_quietly();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        serve(turn[0], taken[1]);
    close(turn[0]);
    close(taken[1]);
    s->turn = turn[1];
    s->taken = taken[0];
}

static void stop(struct server *s)
{
    assert_int_equal(kill(s->pid, SIGKILL), 0);
    assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
    close(s->turn);
    close(s->taken);
}

/* Progress for that time, or until something fails: its error, or 1. */
static int progress(struct rme *rme, int ms)
{
    struct rme_done done;

    for (uint64_t end = rme_now() + (uint64_t)ms; rme_now() < end;)
        if (rme_test_context(rme, 0, &done, 1, 10) == 1 && done.error)
            return done.error;
    return 1;
}

/* The server lives for so long after it has got the request. */
static void dies_after(int ms)
{
    int64_t length = 8;
    char request[8] = "request", answer[8], byte;
    void *out = request, *in = answer;
    struct rme_list send = {&out, &length, 1}, receive = {&in, &length, 1};
    struct rme_addr *to;
    struct server first, second;
    rme_id id;
    int port = ports_take();

    assert_true(port > 0);
    snprintf(options, sizeof(options), "elan_log=%s/log,elan_servers=1:2=127.0.0.1:%d", folder,
             port);
    start(&first);
    start(&second);
    assert_int_equal(write(first.turn, "g", 1), 1);
    struct rme *rme = open_engine("0", NULL);
    assert_int_equal(rme_addr_parse("elan4", "elan4://1:2", &to), 0);
    for (int tries = 0; rme_addr_reach(rme, to, 1000) != 0; tries++)
        assert_true(tries < 100);
    assert_int_equal(rme_post_recv(rme, to, &receive, 5, 0, NULL, NULL, &id), 0);
    assert_true(rme_post_unexpected(rme, to, &send, 5, 0, NULL, &id) >= 0);
    uint64_t asked = rme_now();
    assert_int_equal(progress(rme, ms), 1); /* one that is slow is not taken for dead */
    assert_int_equal(read(first.taken, &byte, 1), 1);
    stop(&first);
    assert_int_equal(write(second.turn, "g", 1), 1);
    assert_int_equal(progress(rme, 10000), -ECONNRESET);
    assert_in_range(rme_now() - asked, 0, FOUND_MS);
    rme_context_close(rme, 0);
    rme_close(rme);
    rme_addr_free(to);
    stop(&second);
}

static void dies_at_once(void **state)
{
    (void)state;
    dies_after(50);
}

static void dies_after_a_while(void **state)
{
    (void)state;
    dies_after(700);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(dies_at_once),
        cmocka_unit_test(dies_after_a_while),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
