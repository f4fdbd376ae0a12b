/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory that an unfinished DMA may still use stays reserved until the DMA ends: the host's
 * memory if the peer is silent; our own packets and events if it is dead. The peers are
 * processes that are stopped and killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/sides.h"

#define BYTES    (1 << 20)
#define FOR_EVER "elan_quarantine_ms=3600000,elan_dead_ms=3600000"

/* Memory shared by both processes. */
struct shared {
    _Atomic int begun; /* progress of the child */
    struct rme_mr mr;
    uint8_t memory[BYTES];
};
static struct shared *sh;

static void set_up(void)
{
    sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(sh, MAP_FAILED);
}

/* Opens a server. */
static void begin(struct side *server, const char *options)
{
    set_up();
    open_side(server, "elan4://0:2", options);
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
}

static bool fail_malloc; /* of the fabric */

void *__real_malloc(size_t size);
__attribute__((visibility("default"))) void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fail_malloc ? NULL : __real_malloc(size);
}

static uint64_t kept(const struct side *s)
{
    return s->stats.value[RME_C_QUARANTINED];
}

static struct rme_rdma_op whole(uint8_t *here, struct rme_sge *seg, struct rme_rdma_seg *piece)
{
    *seg = (struct rme_sge){here, BYTES, 0};
    *piece = (struct rme_rdma_seg){(uintptr_t)sh->memory, sh->mr.rkey, seg, 1};
    return (struct rme_rdma_op){
        .notify = RME_NOTIFY_IMM, .imm = 1, .piece = piece, .npiece = 1, .bytes = BYTES};
}

/* Writes all of the shared memory until its link is down. */
static void writer(int unused)
{
    static uint8_t here[BYTES];
    struct side me;
    struct rme_sge seg;
    struct rme_rdma_seg piece;
    (void)unused;
    memset(here, 'w', BYTES);
    open_side(&me, NULL, FOR_EVER);
    dial(&me, "elan4://0:2");
    until(&me, NULL, RME_EV_LINK_UP, 1);
    struct rme_rdma_op x = whole(here, &seg, &piece);
    while (atomic_load(&sh->begun) != 1)
        poll_side(&me);
    ops->rdma_op(me.link, &x);
    ops->flush(me.f);
    atomic_store(&sh->begun, 2);
    until(&me, NULL, RME_EV_LINK_DOWN, 1);
    close_side(&me);
}

/* Opens a server whose client is stopped in the middle of a write. */
static pid_t stop_in_mid_transfer(struct side *server, const char *options)
{
    begin(server, options);
    assert_int_equal(ops->reg(server->f, sh->memory, BYTES, RME_ACCESS_REMOTE_WRITE, &sh->mr),
                     0);
    pid_t pid = begin_child(writer, 0);
    until(server, NULL, RME_EV_LINK_UP, 1);
    assert_int_equal(elan4_block_inputter(server->f->nic->ctx, 1), 0);
    atomic_store(&sh->begun, 1);
    while (atomic_load(&sh->begun) != 2)
        usleep(1000);
    stop_child(pid);
    assert_int_equal(elan4_block_inputter(server->f->nic->ctx, 0), 0);
    assert_int_equal(sh->memory[BYTES - 1], 0);
    ops->link_disconnect(server->link, -ESHUTDOWN);
    return pid;
}

static void until_kept(struct side *s, uint64_t n)
{
    while (kept(s) != n)
        poll_side(s);
}

static void done_with(struct side *server)
{
    close_side(server);
    munmap(sh, sizeof(*sh));
}

/* The client continues, and writes: only then is the host's memory released. */
static void silent_peer_goes_on(void **state)
{
    struct side server;
    (void)state;
    pid_t pid = stop_in_mid_transfer(&server, FOR_EVER);
    until_kept(&server, 1);
    look(&server, NULL, 300);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    /* checked now and then, not at each poll */
    assert_true(server.link->kept &&
                list_first(&server.f->ending, struct rme_link, ending_next) == server.link);
    assert_int_equal(ops->deadline(server.f), ELAN_CHECK_MS);
    assert_int_equal(kill(pid, SIGCONT), 0);
    until(&server, NULL, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, -ESHUTDOWN);
    assert_int_equal(sh->memory[0], 'w');
    assert_int_equal(sh->memory[BYTES - 1], 'w');
    memset(sh->memory, 'o', BYTES); /* released to the host */
    child_ends(pid);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(sh->memory[i], 'o');
    until_kept(&server, 0);
    done_with(&server);
}

/* The client is killed: no more writes are possible. */
static void silent_peer_dies(void **state)
{
    struct side server;
    (void)state;
    pid_t pid = stop_in_mid_transfer(&server, FOR_EVER);
    until_kept(&server, 1);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    end_child(pid);
    until(&server, NULL, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, -ESHUTDOWN);
    assert_int_equal(sh->memory[BYTES - 1], 0);
    /* BYE, if the client was stopped with the lock of its context */
    assert_true(kept(&server) <= 1);
    done_with(&server);
}

/* The client stays stopped: the wait is bounded, and a sleeping thread wakes up. */
static void silent_peer_stays(void **state)
{
    struct side server;
    int passed = 0;
    (void)state;
    clock_stop();
    pid_t pid = stop_in_mid_transfer(&server, "elan_quarantine_ms=200");
    for (poll_side(&server); !server.count[RME_EV_LINK_DOWN]; poll_side(&server)) {
        assert_int_equal(ops->arm(server.f), 0);
        ops->wait(server.f, ops->deadline(server.f));
        passed += 10;
        clock_step(10);
    }
    assert_in_range(passed, ELAN_DRAIN_MS + 200, ELAN_DRAIN_MS + 200 + ELAN_CHECK_MS);
    clock_run();
    assert_int_equal(server.error, -ESHUTDOWN);
    assert_true(kept(&server) <= 1);
    end_child(pid);
    done_with(&server);
}

/* Waits until HELLO is delivered, whose buffer could serve later. */
static void until_greeted(struct side *client, struct side *server)
{
    while (client->f->norphans)
        look(client, server, 1);
}

/* A peer that drops a link before it could send BYE reports that; else an idle server keeps
 * it. */
static void dropped_link_is_reported_before_bye(void **state)
{
    static uint8_t here[BYTES];
    struct side server, client;
    struct rme_sge seg;
    struct rme_rdma_seg piece;
    (void)state;
    set_up();
    open_pair(&server, &client, FOR_EVER, "elan_quarantine_ms=0");
    assert_int_equal(ops->reg(server.f, sh->memory, BYTES, RME_ACCESS_REMOTE_WRITE, &sh->mr),
                     0);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 1), 0);
    struct rme_rdma_op x = whole(here, &seg, &piece);
    ops->rdma_op(client.link, &x);
    ops->flush(client.f);
    ops->link_disconnect(client.link, -ESHUTDOWN);
    until(&client, NULL, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -ESHUTDOWN);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    /* the client's transfers in flight may still arrive */
    until_kept(&server, 1);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    close_side(&client); /* not any more */
    until(&server, NULL, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, -ECONNRESET);
    done_with(&server);
}

/* Uses up the fabric's memory and sets its free buffers aside. */
static void take_all(struct side *s, struct list_head *aside)
{
    while (bmi_elan4_main(s->f->nic, 64, 4096) != NULL)
        ;
    list_init(aside);
    list_move_all(&s->f->free[ELAN_TX], aside);
}

/* Without a buffer for BYE the link has not ended: the peer may still write. */
static void bye_without_a_buffer(void **state)
{
    struct side server, client;
    struct list_head aside;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    until_greeted(&client, &server);
    take_all(&client, &aside);
    ops->link_disconnect(client.link, -ESHUTDOWN);
    look(&client, &server, 300);
    assert_int_equal(client.count[RME_EV_LINK_DOWN], 0);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    list_move_all(&aside, &client.f->free[ELAN_TX]);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -ESHUTDOWN);
    assert_int_equal(server.error, -ECONNRESET);
    close_both(&client, &server);
}

/* Without memory for a packet that has to wait, both sides end in order. */
static void lost_packet_ends_both_sides(void **state)
{
    struct side server, client;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    ops->rx_release(server.link, RX); /* so that the packet has to wait */
    fail_malloc = true;
    say(&client, "lost");
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    fail_malloc = false;
    assert_int_equal(server.error, -ENOMEM);
    assert_int_equal(client.error, -ECONNRESET);
    assert_int_equal(server.count[RME_EV_RECV], 0);
    close_both(&client, &server);
}

/* ---- Our own buffers ---- */

/* Runs a client with a number of links that then accepts nothing more. */
static void deaf(int links)
{
    struct side me;

    open_side(&me, NULL, FOR_EVER);
    for (int i = 1; i <= links; i++) {
        dial(&me, "elan4://0:2");
        until(&me, NULL, RME_EV_LINK_UP, i);
    }
    while (atomic_load(&sh->begun) < 1)
        poll_side(&me);
    elan4_block_inputter(me.f->nic->ctx, 1);
    assert_int_equal(ops->reg(me.f, sh->memory, BYTES, RME_ACCESS_REMOTE_WRITE, &sh->mr), 0);
    atomic_fetch_add(&sh->begun, 1);
    for (;;)
        pause();
}

#define DEAD_MS   200
#define DEAD_SOON ",elan_dead_ms=200"

/* Opens a server with an unresponsive client, to whose last link it has a packet in flight. The
 * clock is stopped on return. */
static pid_t talk_to_deaf(struct side *server, int links, const char *options)
{
    clock_stop();
    begin(server, options);
    pid_t pid = begin_child(deaf, links);
    until(server, NULL, RME_EV_LINK_UP, links);
    until_landed(server);
    atomic_store(&sh->begun, 1);
    while (atomic_load(&sh->begun) != 2)
        poll_side(server);
    say(server, "nobody hears");
    return pid;
}

/* A client that accepts nothing for elan_dead_ms may be alive, and write. It has one queue: one
 * undelivered message counts for all its links, even idle ones. */
static void deaf_peer_loses_all_links(void **state)
{
    enum { LINKS = 5 };
    struct side server;
    (void)state;
    pid_t pid = talk_to_deaf(&server, LINKS, "elan_quarantine_ms=3600000" DEAD_SOON);
    pass(&server, DEAD_MS / 2);
    assert_int_equal(kept(&server), 0);
    pass(&server, 3 * DEAD_MS);
    assert_int_equal(kept(&server), LINKS);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    clock_run();
    end_child(pid);
    until(&server, NULL, RME_EV_LINK_DOWN, LINKS);
    assert_int_equal(server.error, -ETIMEDOUT);
    done_with(&server);
}

/* Remains of any number of links that end with it do not prevent others from connecting. */
static void deaf_peer_hinders_nobody(void **state)
{
    enum { LINKS = 150 }; /* more than the buffers that may wait in all */
    struct side server, client;
    (void)state;
    pid_t pid =
        talk_to_deaf(&server, LINKS, "elan_tx_buffers=128,elan_quarantine_ms=100" DEAD_SOON);
    while (server.count[RME_EV_LINK_DOWN] < LINKS)
        pass(&server, 100);
    assert_in_range(server.f->norphans, 1, 40);
    open_client(&client, &server, FOR_EVER);
    leave(&client, &server);
    clock_run();
    end_child(pid);
    done_with(&server);
}

/* A process that was stopped itself cannot tell whether packets were accepted: the peer's
 * timeout starts again. */
static void stopped_process_restarts_peer_timeout(void **state)
{
    struct side server, client;
    (void)state;
    clock_stop();
    open_pair(&server, &client, "elan_dead_ms=1500", FOR_EVER);
    elan4_block_inputter(client.f->nic->ctx, 1);
    say(&server, "you will hear");
    look(&server, NULL, 200);
    clock_step(2000);
    look(&server, NULL, 200);
    assert_int_equal(server.count[RME_EV_LINK_DOWN] + kept(&server), 0);
    elan4_block_inputter(client.f->nic->ctx, 0);
    until(&client, &server, RME_EV_RECV, 1);
    assert_string_equal(client.text, "you will hear");
    assert_int_equal(server.count[RME_EV_LINK_DOWN] + client.count[RME_EV_LINK_DOWN], 0);
    part(&server, &client);
    clock_run();
    close_both(&client, &server);
}

/* Clients die together, each with `messages` and a write in flight to it. */
static void die_deaf(struct side *server, int clients, int messages)
{
    static uint8_t here[BYTES];
    struct rme_sge seg;
    struct rme_rdma_seg piece;
    struct rme_rdma_op x[2];
    struct rme_link *link[2];
    pid_t pid[2];
    int ups = server->count[RME_EV_LINK_UP], downs = server->count[RME_EV_LINK_DOWN];

    atomic_store(&sh->begun, 0);
    for (int i = 0; i < clients; i++) {
        pid[i] = begin_child(deaf, 1);
        until(server, NULL, RME_EV_LINK_UP, ups + i + 1);
        until_landed(server);
        link[i] = server->link;
    }
    atomic_store(&sh->begun, 1);
    while (atomic_load(&sh->begun) != 1 + clients)
        poll_side(server);
    for (int i = 0; i < clients; i++) {
        server->link = link[i];
        x[i] = whole(here, &seg, &piece);
        ops->rdma_op(server->link, &x[i]);
        ops->flush(server->f);
        for (int k = 0; k < messages; k++)
            say(server, "nobody hears");
    }
    assert_int_equal(server->count[RME_EV_RDMA_DONE], 0);
    for (int i = 0; i < clients; i++)
        end_child(pid[i]);
    until(server, NULL, RME_EV_LINK_DOWN, downs + clients);
    assert_int_equal(server->error, -ECONNRESET);
}

static void until_given_back(struct side *server, struct side *client)
{
    while (kept(server)) {
        int before = server->count[RME_EV_RECV];
        say(client, "still here");
        until(server, client, RME_EV_RECV, before + 1);
        look(server, client, 64);
    }
    assert_int_equal(server->f->norphans + server->f->kept_moves, 0);
}

/* Runs the next owner of the client's context, which gets the DMAs, and ends without a link. */
static void next_owner(int refusals)
{
    struct side me;

    open_side(&me, NULL, FOR_EVER);
    while (atomic_load(&me.f->nic->traps) < (uint64_t)refusals)
        usleep(1000);
}

/* The next owner of a dead client's context gets none of its messages. Their buffers are given
 * back when an owner has been there for a while; one that dies, too, delays that. */
static void dead_peers_buffers(void **state)
{
    enum { MESSAGES = 5 };
    struct side server, client;
    (void)state;
    begin(&server, "elan_quarantine_ms=100,elan_dead_ms=3600000");
    die_deaf(&server, 1, MESSAGES);
    child_ends(begin_child(next_owner, MESSAGES + 1));
    look(&server, NULL, 200);
    assert_int_equal(kept(&server), MESSAGES + 1);
    open_client(&client, &server, FOR_EVER);
    for (int i = 1; i <= 50; i++) {
        char text[20];
        snprintf(text, sizeof(text), "%d", i);
        say(&server, text);
        until(&client, &server, RME_EV_RECV, i);
        assert_string_equal(client.text, text);
    }
    until_given_back(&server, &client);
    leave(&client, &server);
    done_with(&server);
}

/* Reserved buffers are bounded: at the limit new links are refused, and existing ones stay. */
static void quarantined_buffers_stay_bounded(void **state)
{
    struct side server, client, late;
    (void)state;
    set_up();
    open_pair(&server, &client, FOR_EVER ",elan_tx_buffers=32", FOR_EVER);
    struct rme_link *first = server.link;
    assert_int_equal(server.f->tx_per_link, 8);
    die_deaf(&server, 2, 7);
    die_deaf(&server, 2, 7);
    assert_int_equal(kept(&server), 32);
    open_side(&late, NULL, FOR_EVER);
    dial(&late, "elan4://0:2");
    until(&late, &server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(late.error, -EBUSY);
    close_side(&late);
    server.link = first;
    for (int i = 1; i <= 40; i++) {
        say(&server, "still here");
        until(&client, &server, RME_EV_RECV, i);
    }
    leave(&client, &server);
    done_with(&server);
}

#define STOPPED_SLOTS 16 /* of a stopped client's queue */
#define STOPPED_TX    8  /* most buffers of a link */

/* Runs a client that receives the expected number of messages. */
static void listener(int unused)
{
    struct side me;
    (void)unused;
    open_side(&me, NULL, "elan_tx_buffers=16"); /* STOPPED_SLOTS */
    dial(&me, "elan4://0:2");
    until(&me, NULL, RME_EV_LINK_UP, 1);
    while (!atomic_load(&sh->begun) || me.count[RME_EV_RECV] < atomic_load(&sh->begun))
        poll_side(&me);
    ops->link_disconnect(me.link, -ESHUTDOWN);
    until(&me, NULL, RME_EV_LINK_DOWN, 1);
    close_side(&me);
}

/* Sends a message if the link has a buffer; returns the number sent, 1 or 0. */
static int say_if_there_is_room(struct side *s, struct rme_link *l)
{
    char *tx = ops->tx_get(l);

    if (tx == NULL)
        return 0;
    ops->tx_send(l, strcpy(tx, "are you there"), 14);
    ops->flush(s->f);
    return 1;
}

/* A client is stopped while its server keeps sending: its queue fills up, and the link's quota
 * of buffers is in flight; others are served. When it continues it receives everything. */
static void stopped_client(void **state)
{
    struct side server, other;
    int given = 0;
    (void)state;
    begin(&server, "elan_tx_buffers=64");
    pid_t pid = begin_child(listener, 0);
    until(&server, NULL, RME_EV_LINK_UP, 1);
    struct rme_link *stopped = server.link;
    until_landed(&server);
    open_client(&other, &server, "");
    stop_child(pid);
    for (int i = 1; i <= 200; i++) {
        given += say_if_there_is_room(&server, stopped);
        say(&server, "you are");
        until(&other, &server, RME_EV_RECV, i);
        say(&other, "I am");
        until(&server, &other, RME_EV_RECV, i);
    }
    assert_in_range(given, STOPPED_TX, STOPPED_SLOTS + STOPPED_TX);
    assert_in_range(server.f->account[stopped->peer.vp].out, 1, STOPPED_TX);
    assert_in_range(server.f->tx_count, 1, 3 * STOPPED_TX);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    atomic_store(&sh->begun, given);
    assert_int_equal(kill(pid, SIGCONT), 0);
    until(&server, &other, RME_EV_LINK_DOWN, 1);
    child_ends(pid);
    leave(&other, &server);
    done_with(&server);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_peer_goes_on),
        cmocka_unit_test(silent_peer_dies),
        cmocka_unit_test(silent_peer_stays),
        cmocka_unit_test(dropped_link_is_reported_before_bye),
        cmocka_unit_test(bye_without_a_buffer),
        cmocka_unit_test(lost_packet_ends_both_sides),
        cmocka_unit_test(deaf_peer_loses_all_links),
        cmocka_unit_test(deaf_peer_hinders_nobody),
        cmocka_unit_test(stopped_process_restarts_peer_timeout),
        cmocka_unit_test(dead_peers_buffers),
        cmocka_unit_test(quarantined_buffers_stay_bounded),
        cmocka_unit_test(stopped_client),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
