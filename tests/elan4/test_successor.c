/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A server dies when its queue has accepted a request, and another process takes its place at
 * once: nothing of ours is in flight, so only its bootstrap server shows that no answer will
 * come. A dead server sends no BYE to a server that it connected to, either: the bootstrap
 * server of its place shows the death. The death of a client shows only by undelivered packets.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
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
    struct rme_config config = {
        .fabric = bmi_elan4_fabric(), .listen = at, .options = options, .log = log_line};
    assert_int_equal(rme_open(&config, &rme), 0);
    assert_int_equal(rme_context_open(rme, 0), 0);
    return rme;
}

/* Waits for its turn, accepts requests, reports that, and never answers. */
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

/* Makes progress for that time, or until an operation fails; returns its error, or 1. */
static int progress(struct rme *rme, int ms)
{
    struct rme_done done;

    for (uint64_t end = rme_now() + (uint64_t)ms; rme_now() < end;)
        if (rme_test_context(rme, 0, &done, 1, 10) == 1 && done.error)
            return done.error;
    return 1;
}

/* The server dies `ms` after it got the request. */
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
    snprintf(options, sizeof(options), "%s/log", folder);
    assert_int_equal(setenv("BMI_ELAN4_LOG", options, 1), 0);
    snprintf(options, sizeof(options), "elan_servers=1:2=127.0.0.1:%d", port);
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
    assert_int_equal(progress(rme, ms), 1); /* a slow server is not taken for dead */
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

/* ---- Servers as clients ---- */

#define QUARANTINE_MS 30000
#define NUMBER(n)     NUMBER_(n) /* as text */
#define NUMBER_(n)    #n

static void open_server(struct side *s, const char *node, const char *listen)
{
    setenv("EMUELAN4_NODE", node, 1);
    open_side(s, listen, "elan_quarantine_ms=" NUMBER(QUARANTINE_MS));
}

/* Connects to the tested server, and is killed when both have a link to each other. */
static _Noreturn void neighbour(int up)
{
    struct side me;

    alarm(60);
    open_server(&me, "1", "elan4://1:2");
    dial(&me, "elan4://0:2");
    until(&me, NULL, RME_EV_LINK_UP, 1);
    assert_int_equal(write(up, "u", 1), 1);
    for (;;)
        poll_side(&me);
}

/* Returns whether a link asks a bootstrap server. */
static bool asks(const struct side *s)
{
    const struct rme_link *l;

    list_for_each(l, &s->f->links, all)
        if (l->call.fd >= 0)
            return true;
    return false;
}

/* Ends a link of the first and returns the milliseconds until it is down. Stops the clock
 * during bootstrap queries. Stores in *both whether both links of the first are down. */
static uint64_t end_link(struct side *s, struct side *other, struct rme_link *l, bool *both)
{
    uint64_t end = guard_ms() + PATIENCE_MS, passed = 0;

    ops->link_disconnect(l, -ESHUTDOWN);
    while (s->ended[0] != l && s->ended[1] != l) {
        assert_true(guard_ms() < end);
        if (!asks(s)) {
            pass(s, 10);
            passed += 10;
        }
        poll_side(s);
        if (other)
            poll_side(other);
    }
    *both = s->count[RME_EV_LINK_DOWN] == 2;
    return passed;
}

static void closing_beside(bool replaced)
{
    struct side server, second;
    struct rme_link *called, *calls;
    int up[2], ports[2] = {ports_take(), ports_take()};
    char table[100], byte;

    assert_true(ports[0] > 0 && ports[1] > 0);
    snprintf(table, sizeof(table), "0:2=127.0.0.1:%d,1:2=127.0.0.1:%d", ports[0], ports[1]);
    setenv("BMI_ELAN4_SERVER_ADDR", table, 1);
    assert_int_equal(pipe(up), 0);
    open_server(&server, "0", "elan4://0:2");
    pid_t pid = fork_quietly();
    assert_true(pid >= 0);
    if (pid == 0)
        neighbour(up[1]);
    until(&server, NULL, RME_EV_LINK_UP, 1);
    called = server.link;
    dial(&server, "elan4://1:2");
    until(&server, NULL, RME_EV_LINK_UP, 2);
    calls = server.link;
    assert_int_equal(read(up[0], &byte, 1), 1);
    while (!list_empty(&server.f->sending))
        poll_side(&server);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    if (replaced)
        open_server(&second, "1", "elan4://1:2");
    clock_stop();
    struct side *other = replaced ? &second : NULL;
    bool both;
    assert_in_range(end_link(&server, other, called, &both), 0, QUARANTINE_MS / 10);
    if (!both) /* the active side's link ended already, by the bootstrap server */
        assert_in_range(end_link(&server, other, calls, &both), 0, QUARANTINE_MS / 10);
    assert_true(both);
    unsigned sleeps = clock_sleeps();
    close_side(&server);
    assert_int_equal(clock_sleeps(), sleeps); /* no peer is left to notify */
    clock_run();
    if (replaced)
        close_side(&second);
    close(up[0]);
    close(up[1]);
}

static void close_beside_replaced_neighbour_is_immediate(void **state)
{
    (void)state;
    closing_beside(true);
}

static void close_beside_dead_neighbour_is_immediate(void **state)
{
    (void)state;
    closing_beside(false);
}

/* ---- Clients of other nodes ---- */

/* Connects to the server, accepts nothing more, and is killed. */
static _Noreturn void client_of_another_node(int up)
{
    struct side me;

    alarm(60);
    setenv("EMUELAN4_NODE", "1", 1);
    open_side(&me, NULL, "");
    dial(&me, "elan4://0:2");
    until(&me, NULL, RME_EV_LINK_UP, 1);
    assert_int_equal(elan4_block_inputter(me.f->nic->ctx, 1), 0);
    assert_int_equal(write(up, "u", 1), 1);
    for (;;)
        pause();
}

/* The client's death is not reported, but it has accepted nothing for long when the server
 * closes. A second wait at closing would hang, because the clock is stopped. */
static void closing_after_a_dead_client(const char *more, bool ended)
{
    struct side server;
    int up[2];
    char byte;

    assert_int_equal(pipe(up), 0);
    setenv("EMUELAN4_NODE", "0", 1);
    open_side(&server, "elan4://0:2", more);
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    pid_t pid = fork_quietly();
    assert_true(pid >= 0);
    if (pid == 0)
        client_of_another_node(up[1]);
    until(&server, NULL, RME_EV_LINK_UP, 1);
    assert_int_equal(read(up[0], &byte, 1), 1);
    while (!list_empty(&server.f->sending))
        poll_side(&server);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    clock_stop();
    if (ended)
        ops->link_disconnect(server.link, -ESHUTDOWN);
    else
        say(&server, "nobody hears");
    for (uint64_t end = guard_ms() + PATIENCE_MS; !server.count[RME_EV_LINK_DOWN];) {
        assert_true(guard_ms() < end);
        pass(&server, 10);
    }
    assert_false(list_empty(&server.f->orphans));
    unsigned sleeps = clock_sleeps();
    close_side(&server);
    assert_int_equal(clock_sleeps(), sleeps);
    clock_run();
    close(up[0]);
    close(up[1]);
}

static void close_after_missing_bye_waits_once(void **state)
{
    (void)state;
    closing_after_a_dead_client("", true);
}

static void close_after_dropped_client_waits_once(void **state)
{
    (void)state;
    closing_after_a_dead_client("elan_dead_ms=1000,elan_quarantine_ms=0", false);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(dies_at_once),
        cmocka_unit_test(dies_after_a_while),
        cmocka_unit_test(close_beside_replaced_neighbour_is_immediate),
        cmocka_unit_test(close_beside_dead_neighbour_is_immediate),
        cmocka_unit_test(close_after_missing_bye_waits_once),
        cmocka_unit_test(close_after_dropped_client_waits_once),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
