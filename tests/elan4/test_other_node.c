/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Detection of a dead peer on another node, which this node's context log does not record. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/sides.h"
#include "tests/ports/ports.h"

#define FOR_EVER "elan_quarantine_ms=3600000,elan_dead_ms=3600000"

static _Atomic int *begun; /* number of servers that were started; shared by the processes */

static void end_child(pid_t pid)
{
    int st;

    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &st, 0), pid);
}

static _Noreturn void server_there(void)
{
    struct side me;

    alarm(120);
    setenv("EMUELAN4_NODE", "1", 1);
    open_side(&me, "elan4://1:2", FOR_EVER);
    atomic_fetch_add(begun, 1);
    for (;;) {
        if (me.count[RME_EV_RECV])
            elan4_block_inputter(me.f->nic->ctx, 1);
        poll_side(&me);
        usleep(100);
    }
}

static pid_t begin_there(void)
{
    int before = atomic_load(begun);
    pid_t pid = fork_quietly();

    assert_true(pid >= 0);
    if (pid == 0)
        server_there();
    while (atomic_load(begun) == before)
        usleep(1000);
    return pid;
}

static void meet_there(struct side *client)
{
    int ups = client->count[RME_EV_LINK_UP];

    dial(client, "elan4://1:2");
    until(client, NULL, RME_EV_LINK_UP, ups + 1);
}

/* Sends until the link is down: its death may be noticed a moment later, after a message was
 * delivered to its queue. */
static void ask_until_down(struct side *client, int downs)
{
    uint64_t again = 0, end = guard_ms() + PATIENCE_MS;

    while (client->count[RME_EV_LINK_DOWN] < downs) {
        assert_true(guard_ms() < end);
        if (guard_ms() >= again) {
            say(client, "is anybody there");
            again = guard_ms() + 200;
        }
        poll_side(client);
    }
}

/* A process that was killed, was replaced, or accepts nothing is detected by a query of its
 * bootstrap server. */
static void dead_peer_on_another_node_detected_by_query(void **state)
{
    struct side client;
    char where[60];
    int port = ports_take();
    (void)state;
    assert_true(port > 0);
    begun =
        mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(begun, MAP_FAILED);
    snprintf(where, sizeof(where), "1:2=127.0.0.1:%d", port);
    setenv("BMI_ELAN4_SERVER_ADDR", where, 1);
    open_side(&client, NULL, FOR_EVER);
    /* no process is there any more */
    pid_t pid = begin_there();
    meet_there(&client);
    end_child(pid);
    ask_until_down(&client, 1);
    assert_int_equal(client.error, -ECONNRESET);
    /* another process is */
    pid = begin_there();
    meet_there(&client);
    end_child(pid);
    pid = begin_there();
    ask_until_down(&client, 2);
    assert_int_equal(client.error, -ECONNRESET);
    /* the process is there and accepts nothing */
    meet_there(&client);
    say(&client, "be deaf");
    for (int i = 0; i < 200; i++)
        poll_side(&client);
    uint64_t end = guard_ms() + PATIENCE_MS;
    while (!client.link->asked || client.link->call.fd >= 0) {
        assert_true(guard_ms() < end);
        say(&client, "again");
        for (int i = 0; i < 100; i++, usleep(1000))
            poll_side(&client); /* the other one answers in its own time */
    }
    assert_int_equal(client.count[RME_EV_LINK_DOWN], 2);
    end_child(pid);
    until(&client, NULL, RME_EV_LINK_DOWN, 3); /* of a message that was never delivered */
    close_side(&client);
    munmap(begun, sizeof(*begun));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_peer_on_another_node_detected_by_query),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
