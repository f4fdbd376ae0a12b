/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The bootstrap server, and detection of a dead peer on another node, which this node's context
 * log does not record. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/sides.h"
#include "tests/ports/ports.h"

#define FOR_EVER "elan_quarantine_ms=3600000,elan_dead_ms=3600000"

/* Memory shared by the processes. */
struct shared {
    _Atomic int begun; /* number of processes that were started */
    struct rme_mr mr;  /* of `there`, of a client */
};
static struct shared *sh;
static uint8_t here[64], there[64];

static int port; /* of the last bootstrap_at() */

static void share(void)
{
    sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(sh, MAP_FAILED);
}

static void serve_there(const char *options)
{
    struct side me;

    setenv("EMUELAN4_NODE", "1", 1);
    open_side(&me, "elan4://1:2", options);
    atomic_fetch_add(&sh->begun, 1);
    for (;;) {
        if (me.count[RME_EV_RECV])
            elan4_block_inputter(me.f->nic->ctx, 1);
        poll_side(&me);
        usleep(100);
    }
}

static void server_there(int another_key)
{
    serve_there(another_key ? FOR_EVER ",elan_key=another" : FOR_EVER);
}

/* Runs a client with links that accepts nothing more. */
static void client_there(int links)
{
    struct side me;

    setenv("EMUELAN4_NODE", "1", 1);
    open_side(&me, NULL, FOR_EVER);
    for (int i = 0; i < links; i++)
        dial(&me, "elan4://0:2");
    until(&me, NULL, RME_EV_LINK_UP, links);
    assert_int_equal(ops->reg(me.f, there, sizeof(there), RME_ACCESS_REMOTE_WRITE, &sh->mr), 0);
    elan4_block_inputter(me.f->nic->ctx, 1);
    atomic_fetch_add(&sh->begun, 1);
    for (;;)
        pause();
}

/* Starts a process that may need the other side. */
static pid_t begin_there(void (*run)(int), int arg, struct side *other)
{
    int before = atomic_load(&sh->begun);
    pid_t pid = begin_child(run, arg);

    while (atomic_load(&sh->begun) == before) {
        if (other != NULL)
            poll_side(other);
        usleep(1000);
    }
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
    uint64_t again = 0;

    while (client->count[RME_EV_LINK_DOWN] < downs) {
        if (guard_ms() >= again) {
            say(client, "is anybody there");
            again = guard_ms() + 200;
        }
        poll_side(client);
    }
}

/* Gives a server, such as "1:2", a port for its bootstrap server. */
static void bootstrap_at(const char *server)
{
    char where[60];

    port = ports_take();
    assert_true(port > 0);
    snprintf(where, sizeof(where), "%s=127.0.0.1:%d", server, port);
    setenv("BMI_ELAN4_SERVER_ADDR", where, 1);
}

/* Opens a client that meets servers of node 1 by their bootstrap server. */
static void open_client_of_there(struct side *client)
{
    share();
    bootstrap_at("1:2");
    open_side(client, NULL, FOR_EVER);
}

/* A process that was killed, was replaced, or accepts nothing is detected by a query of its
 * bootstrap server. */
static void remote_death_detected_by_query(void **state)
{
    struct side client;
    (void)state;
    open_client_of_there(&client);
    /* no process is there */
    pid_t pid = begin_there(server_there, 0, NULL);
    meet_there(&client);
    end_child(pid);
    ask_until_down(&client, 1);
    assert_int_equal(client.error, -ECONNRESET);
    /* another process is */
    pid = begin_there(server_there, 0, NULL);
    meet_there(&client);
    end_child(pid);
    pid = begin_there(server_there, 0, NULL);
    ask_until_down(&client, 2);
    assert_int_equal(client.error, -ECONNRESET);
    /* the process is there and accepts nothing */
    meet_there(&client);
    say(&client, "be deaf");
    look(&client, NULL, 200);
    while (!client.link->asked || client.link->call.fd >= 0) {
        say(&client, "again");
        for (int i = 0; i < 100; i++, usleep(1000))
            poll_side(&client); /* the other one answers in its own time */
    }
    assert_int_equal(client.count[RME_EV_LINK_DOWN], 2);
    end_child(pid);
    until(&client, NULL, RME_EV_LINK_DOWN, 3); /* of a message that was never delivered */
    close_side(&client);
    munmap(sh, sizeof(*sh));
}

/* A process at the place of the peer shows its death, even if it would refuse a connection. */
static void dead_peer_detected_by_successors_other_key(void **state)
{
    struct side client;
    (void)state;
    open_client_of_there(&client);
    pid_t pid = begin_there(server_there, 0, NULL);
    meet_there(&client);
    end_child(pid);
    pid = begin_there(server_there, 1, NULL);
    ask_until_down(&client, 1);
    assert_int_equal(client.error, -ECONNRESET);
    end_child(pid);
    close_side(&client);
    munmap(sh, sizeof(*sh));
}

/* Opens a server with a client on another node, which accepts nothing more, and a notification
 * on the last link that waits for data. */
static pid_t open_server_and_stuck_client(struct side *server, int links, const char *options)
{
    static struct rme_sge seg = {here, sizeof(here), 0};
    static struct rme_rdma_seg piece;
    static struct rme_rdma_op silent, told;

    share();
    open_side(server, "elan4://0:2", options);
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    pid_t pid = begin_there(client_there, links, server);
    until(server, NULL, RME_EV_LINK_UP, links);
    while (server->f->account[server->link->peer.vp].out) /* ACCEPT */
        poll_side(server);
    piece = (struct rme_rdma_seg){(uintptr_t)there, sh->mr.rkey, &seg, 1};
    told = silent = (struct rme_rdma_op){.piece = &piece, .npiece = 1, .bytes = sizeof(here)};
    told.notify = RME_NOTIFY_IMM;
    ops->rdma_op(server->link, &silent);
    ops->rdma_op(server->link, &told);
    ops->flush(server->f);
    assert_false(list_empty(&server->link->queued)); /* `told` */
    return pid;
}

/* Kills the client and probes its links until they are down. */
static void probe_until_down(struct side *server, pid_t pid, int links)
{
    struct rme_link *l;

    end_child(pid);
    while (server->count[RME_EV_LINK_DOWN] < links) {
        list_for_each(l, &server->f->links, all)
            ops->link_probe(l);
        poll_side(server);
    }
    assert_int_equal(server->error, -ETIMEDOUT);
    assert_int_equal(server->count[RME_EV_RDMA_DONE], 0);
    close_side(server);
    munmap(sh, sizeof(*sh));
}

/* A client is killed while a notification waits for data to it, and the host cannot send: a
 * probe detects this. */
static void remote_death_detected_behind_waiting_notification(void **state)
{
    struct side server;
    (void)state;
    pid_t pid =
        open_server_and_stuck_client(&server, 1, "elan_dead_ms=200,elan_quarantine_ms=0");
    probe_until_down(&server, pid, 1);
}

/* Queued messages use up the account of a dead client, none of them in flight: one packet, on
 * one of its links, detects this for all of them. */
static void dead_client_with_full_account_probed_once(void **state)
{
    enum { LINKS = 3 };
    struct side server;
    struct rme_link *l;
    (void)state;
    pid_t pid = open_server_and_stuck_client(
        &server, LINKS, "elan_tx_buffers=64,elan_dead_ms=200,elan_quarantine_ms=0");
    for (char *tx; (tx = ops->tx_get(server.link)) != NULL;)
        ops->tx_send(server.link, strcpy(tx, "behind the notification"), 24);
    const struct elan_account *o = &server.f->account[server.link->peer.vp];
    assert_int_equal(o->out, server.f->tx_per_link);
    for (int i = 0; i < 2; i++)
        list_for_each(l, &server.f->links, all)
            ops->link_probe(l);
    assert_int_equal(o->out, server.f->tx_per_link + 1);
    probe_until_down(&server, pid, LINKS);
}

static unsigned slept; /* before leaving began */

/* Connects to a leaving server's bootstrap server, and lets the server leave. */
static void *ask_leaving(void *arg)
{
    struct side *client = arg;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    while (clock_sleeps() - slept < 3)
        usleep(1000);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool met = connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    close(fd);
    return elan4_block_inputter(client->f->nic->ctx, 0) == 0 && met ? NULL : arg;
}

/* A refused query says that nothing of the server is in flight: its port is open until the
 * server has left the context, for which a peer with work may make it wait. */
static void refuses_only_after_leaving(void **state)
{
    struct side server, client;
    pthread_t thread;
    void *failed;
    (void)state;
    bootstrap_at("0:2");
    open_pair(&server, &client, "", "");
    assert_int_equal(elan4_block_inputter(client.f->nic->ctx, 1), 0);
    clock_stop(); /* stays for as long as that takes */
    slept = clock_sleeps();
    assert_int_equal(pthread_create(&thread, NULL, ask_leaving, &client), 0);
    close_side(&server);
    clock_run();
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    close_side(&client);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(remote_death_detected_by_query),
        cmocka_unit_test(dead_peer_detected_by_successors_other_key),
        cmocka_unit_test(remote_death_detected_behind_waiting_notification),
        cmocka_unit_test(dead_client_with_full_account_probed_once),
        cmocka_unit_test(refuses_only_after_leaving),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
