/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A dead server sends no BYE to a server that it connected to: the bootstrap server of its
 * place shows the death. The death of a client shows only by undelivered packets. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/sides.h"
#include "tests/ports/ports.h"

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
    uint64_t passed = 0;

    ops->link_disconnect(l, -ESHUTDOWN);
    while (s->ended[0] != l && s->ended[1] != l) {
        if (!asks(s)) {
            pass(s, 10);
            passed += 10;
        }
        poll_side(s);
        if (other != NULL)
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
    while (!server.count[RME_EV_LINK_DOWN])
        pass(&server, 10);
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
        cmocka_unit_test(close_beside_replaced_neighbour_is_immediate),
        cmocka_unit_test(close_beside_dead_neighbour_is_immediate),
        cmocka_unit_test(close_after_missing_bye_waits_once),
        cmocka_unit_test(close_after_dropped_client_waits_once),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
