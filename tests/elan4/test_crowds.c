/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cost of dead, unresponsive and foreign processes for others: at most that of one link. Many
 * processes are killed in turn without leaving, many send requests and die, one has many links.
 * Others are served meanwhile, buffers in flight are bounded, and finally the state is the
 * initial one.
 *
 * An unresponsive process blocks its inputter, so that no packet is accepted; deaths on nodes
 * other than the server's are not visible in its log.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/sides.h"

#define PER_LINK 8  /* most buffers of a link */
#define BUFFERS  64 /* of all links */
#define LINKS    12 /* of the process with many */
#define TURNS    24 /* processes killed in turn at one address */
/* processes killed together: all contexts of the server's node but its own */
#define CROWD     7
#define STRANGERS 80 /* foreign processes, each on its own node */
#define BYTES     4096
#define TRANSFERS 24 /* to the unresponsive process; a quarter of BUFFERS are in flight */
#define STALE     50 /* answers to an unknown link */
#define SMALL     "elan_tx_buffers=64,elan_nodes=0-99,elan_contexts=2-9"
#define FOR_EVER  ",elan_quarantine_ms=3600000,elan_dead_ms=3600000"
/* buffers return soon after another process has come */
#define SOON ",elan_quarantine_ms=100,elan_dead_ms=3600000"

/* Memory shared by the processes. */
struct shared {
    _Atomic int asked, ready; /* numbers of children that have got there */
    uint64_t generation;      /* the server's */
    unsigned vp;
    E4_Addr queue;
    uint8_t memory[BYTES]; /* a client's */
    struct rme_mr mr;
};
static struct shared *sh;

static void on_node(int node)
{
    char text[20];

    snprintf(text, sizeof(text), "%d", node);
    setenv("EMUELAN4_NODE", text, 1);
}

static void begin(struct side *server, const char *more)
{
    char options[300];

    snprintf(options, sizeof(options), SMALL "%s", more);
    on_node(0);
    open_side(server, "elan4://0:2", options);
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    sh->generation = server->f->nic->generation;
    sh->vp = server->f->nic->vp;
    sh->queue = bmi_elan4_inbox_queue(server->f->inbox);
    atomic_store(&sh->asked, 0);
    atomic_store(&sh->ready, 0);
}

/* Connects a client and serves it. */
static void come(struct side *client, struct side *server, int node)
{
    on_node(node);
    open_client(client, server, SMALL FOR_EVER);
}

/* Sends a text, when there is a buffer. */
static void say_to(struct side *s, struct side *other, const char *text)
{
    char *tx;

    while ((tx = ops->tx_get(s->link)) == NULL)
        look(s, other, 1);
    ops->tx_send(s->link, strcpy(tx, text), strlen(text) + 1);
    ops->flush(s->f);
}

static void talk(struct side *client, struct side *server, struct rme_link *l, int times)
{
    int heard = client->count[RME_EV_RECV], asked = server->count[RME_EV_RECV];

    server->link = l;
    for (int i = 1; i <= times; i++) {
        say_to(client, server, "are you there");
        until(server, client, RME_EV_RECV, asked + i);
        say_to(server, client, "I am");
        until(client, server, RME_EV_RECV, heard + i);
    }
}

/* Polls: takes packets, and gets delivered buffers back. */
static void settle(struct side *s)
{
    look(s, NULL, 128);
}

static void until_so_far(struct side *server, _Atomic int *how_many, int n)
{
    while (atomic_load(how_many) < n)
        poll_side(server);
}

/* Sends on the link as much as it accepts; returns the number of messages. */
static uint32_t fill(struct side *server, struct rme_link *l)
{
    uint32_t n = 0;
    char *tx;

    for (; (tx = ops->tx_get(l)) != NULL; n++)
        ops->tx_send(l, strcpy(tx, "nobody hears"), 13);
    ops->flush(server->f);
    return n;
}

/* Waits until packets without a link are delivered: requests, and those that a test sends
 * itself. */
static void until_asked(struct side *s)
{
    while (s->f->norphans)
        poll_side(s);
}

static uint32_t out_at(const struct side *s, unsigned vp)
{
    return s->f->account[vp].out + s->f->account[vp].former;
}

/* Checks that all of the server's buffers are free and no account has any. */
static void as_at_the_start(struct side *server)
{
    settle(server);
    assert_true(list_empty(&server->f->links));
    assert_int_equal(server->f->norphans + server->f->kept_moves + server->f->answers.taken, 0);
    assert_int_equal(server->stats.value[RME_C_QUARANTINED], 0);
    for (unsigned vp = 0; vp < BMI_ELAN4_MAX_VPS; vp++)
        assert_int_equal(out_at(server, vp), 0);
    assert_in_range(server->f->tx_count, 1, 2 * BUFFERS);
    close_side(server);
}

/* Connects the context's next owner, which stays until no packet is in flight. */
static void take_the_place(struct side *server, int node)
{
    struct side client;

    on_node(node);
    open_side(&client, NULL, SMALL FOR_EVER);
    unsigned vp = client.f->nic->vp;
    while (!client.count[RME_EV_LINK_UP]) {
        int downs = client.count[RME_EV_LINK_DOWN];
        dial(&client, "elan4://0:2");
        for (uint64_t again = guard_ms() + 50;
             guard_ms() < again && !client.count[RME_EV_LINK_UP];) {
            poll_side(server);
            poll_side(&client);
        }
        if (!client.count[RME_EV_LINK_UP] && client.count[RME_EV_LINK_DOWN] == downs) {
            ops->link_disconnect(client.link, -ETIMEDOUT); /* not answered */
            until(&client, server, RME_EV_LINK_DOWN, downs + 1);
        }
    }
    while (out_at(server, vp)) {
        int before = server->count[RME_EV_RECV];
        say_to(&client, server, "still here");
        until(server, &client, RME_EV_RECV, before + 1);
        look(server, &client, 64);
    }
    leave(&client, server);
}

/* ---- Killed in turn ---- */

/* Connects, and blocks its inputter when the link is up. */
static void rude(int links)
{
    struct side me;

    open_side(&me, NULL, SMALL FOR_EVER);
    for (int i = 0; i < links; i++)
        dial(&me, "elan4://0:2");
    for (bool asked = false; !asked || me.count[RME_EV_LINK_UP] < links;) {
        poll_side(&me);
        if (!asked && !me.f->norphans) { /* its requests are delivered */
            asked = true;
            atomic_fetch_add(&sh->asked, 1);
        }
    }
    elan4_block_inputter(me.f->nic->ctx, 1);
    atomic_fetch_add(&sh->ready, 1);
    for (;;)
        pause();
}

/* Runs one of them; returns whether it was served. */
static bool one_turn(struct side *server)
{
    int asked = atomic_load(&sh->asked), ready = atomic_load(&sh->ready);
    int downs = server->count[RME_EV_LINK_DOWN];
    pid_t pid = begin_child(rude, 1);

    until_so_far(server, &sh->asked, asked + 1);
    settle(server); /* takes HELLO */
    if (list_empty(&server->f->links)) {
        end_child(pid);
        return false;
    }
    until_so_far(server, &sh->ready, ready + 1);
    settle(server); /* ACCEPT is delivered */
    assert_in_range(fill(server, server->link), 1, PER_LINK);
    end_child(pid);
    until(server, NULL, RME_EV_LINK_DOWN, downs + 1);
    assert_int_equal(server->error, -ECONNRESET);
    return true;
}

static void killed_in_turn(void **state)
{
    struct side server, client;
    int served = 0;
    (void)state;
    begin(&server, ",elan_quarantine_ms=200,elan_dead_ms=3600000");
    for (int i = 0; i < TURNS; i++) {
        served += one_turn(&server);
        assert_in_range(server.f->norphans + server.f->kept_moves, 1, 3 * PER_LINK);
    }
    assert_in_range(served, 2, TURNS);
    printf("%d of %d were served, %u buffers are kept\n", served, TURNS, server.f->norphans);
    come(&client, &server, 1);
    talk(&client, &server, server.link, 50);
    leave(&client, &server);
    take_the_place(&server, 0);
    as_at_the_start(&server);
}

/* ---- Killed together ---- */

/* Processes of one node that use up the node's share of buffers connect and are killed until
 * new connections of that node are refused with an error; other nodes are not affected. */
static void killed_together(void **state)
{
    struct side server, client;
    struct rme_link *l;
    (void)state;
    begin(&server, FOR_EVER);
    for (int killed = 0; server.f->norphans + server.f->kept_moves < BUFFERS;) {
        pid_t pid[CROWD];
        assert_in_range(killed, 0, BUFFERS);
        for (int i = 0; i < CROWD; i++)
            pid[i] = begin_child(rude, 1);
        killed += CROWD;
        until_so_far(&server, &sh->ready, killed);
        settle(&server);
        list_for_each(l, &server.f->links, all)
            fill(&server, l);
        for (int i = 0; i < CROWD; i++)
            end_child(pid[i]);
        list_for_each(l, &server.f->links, all)
            ops->link_probe(l); /* as the host does: links without a buffer have no packet */
        until(&server, NULL, RME_EV_LINK_DOWN, killed);
    }
    come(&client, &server, 1);
    talk(&client, &server, server.link, 50);
    leave(&client, &server);
    on_node(0);
    open_side(&client, NULL, SMALL FOR_EVER);
    dial(&client, "elan4://0:2");
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -EBUSY);
    close_both(&client, &server);
}

/* ---- Foreign processes ---- */

/* Sends a request with another key and gets no answer. */
static void stranger(int node)
{
    struct side me;

    on_node(node);
    open_side(&me, NULL, SMALL FOR_EVER ",elan_key=another");
    elan4_block_inputter(me.f->nic->ctx, 1);
    dial(&me, "elan4://0:2");
    until_asked(&me);
    atomic_fetch_add(&sh->ready, 1);
    for (;;)
        pause();
}

/* Sends answers to links that the server does not have. */
static void stale(int node)
{
    struct side me;

    on_node(node);
    open_side(&me, NULL, SMALL FOR_EVER);
    elan4_block_inputter(me.f->nic->ctx, 1);
    for (int i = 0; i < STALE; i++) {
        struct elan_peer to = {sh->vp, sh->queue, sh->generation, 77};
        assert_int_equal(elan_tx_alone(me.f, &to, ELAN_ACCEPT, (uint32_t)i, "", 1), 0);
        until_asked(&me);
    }
    atomic_fetch_add(&sh->ready, 1);
    for (;;)
        pause();
}

static void foreign_requests_use_bounded_buffers(void **state)
{
    struct side server, client;
    (void)state;
    begin(&server, SOON);
    pid_t pid = begin_child(stale, 1);
    until_so_far(&server, &sh->ready, 1);
    settle(&server);
    end_child(pid);
    assert_in_range(out_at(&server, bmi_elan4_vp(&server.f->nic->range, 1, 3)), 1, PER_LINK);
    for (int i = 0; i < STRANGERS; i++) {
        pid = begin_child(stranger, 2 + i);
        until_so_far(&server, &sh->ready, i + 2);
        settle(&server);
        end_child(pid);
        assert_in_range(server.f->norphans, 1, BUFFERS / 2);
    }
    come(&client, &server, 0);
    talk(&client, &server, server.link, 50);
    leave(&client, &server);
    for (int i = 0; i < STRANGERS + 1; i++)
        take_the_place(&server, 1 + i);
    as_at_the_start(&server);
}

/* Answers that processes of one node do not accept leave some for other nodes. */
static void unaccepted_answers_leave_buffers_for_others(void **state)
{
    struct side server, client;
    pid_t pid[CROWD];
    (void)state;
    begin(&server, FOR_EVER);
    for (int i = 0; i < CROWD; i++) {
        pid[i] = begin_child(stale, 1);
        until_so_far(&server, &sh->ready, i + 1);
        settle(&server);
    }
    assert_int_equal(server.f->norphans, BUFFERS / 2 * 3 / 4);
    on_node(2);
    open_side(&client, NULL, SMALL FOR_EVER ",elan_key=another");
    dial(&client, "elan4://0:2");
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -EPROTO);
    close_side(&client);
    for (int i = 0; i < CROWD; i++)
        end_child(pid[i]);
    close_side(&server);
}

/* ---- One process with many links ---- */

static void many_links(void **state)
{
    struct side server, client;
    struct rme_link *l;
    uint32_t given = 0;
    (void)state;
    begin(&server, SOON);
    pid_t pid = begin_child(rude, LINKS);
    until_so_far(&server, &sh->ready, 1);
    settle(&server);
    assert_int_equal(server.count[RME_EV_LINK_UP], LINKS);
    list_for_each(l, &server.f->links, all)
        given += fill(&server, l);
    assert_in_range(given, 1, PER_LINK);
    /* other clients get their buffers */
    come(&client, &server, 1);
    talk(&client, &server, server.link, 50);
    /* one of its links detects the death; all of them end, and nothing more is sent */
    end_child(pid);
    until(&server, &client, RME_EV_LINK_DOWN, LINKS);
    assert_int_equal(server.error, -ECONNRESET);
    assert_in_range(server.f->norphans, 1, PER_LINK);
    assert_in_range(out_at(&server, 1), 1, PER_LINK);
    leave(&client, &server);
    take_the_place(&server, 0);
    as_at_the_start(&server);
}

/* ---- Transfers ---- */

/* Writes to a client's memory, with a packet behind it. */
static void write_to(struct side *server, struct rme_link *l, struct rme_rdma_op *x)
{
    static uint8_t here[BYTES];
    static struct rme_sge seg = {here, BYTES, 0};
    static struct rme_rdma_seg piece;

    piece = (struct rme_rdma_seg){(uintptr_t)sh->memory, sh->mr.rkey, &seg, 1};
    *x = (struct rme_rdma_op){
        .notify = RME_NOTIFY_IMM, .imm = 1, .piece = &piece, .npiece = 1, .bytes = BYTES};
    ops->rdma_op(l, x);
    ops->flush(server->f);
}

/* Transfers with an unresponsive process do not complete, and leave some for others. */
static void transfers_of_others(void **state)
{
    static struct rme_rdma_op x[TRANSFERS], y;
    struct side server, client;
    (void)state;
    begin(&server, SOON);
    pid_t pid = begin_child(rude, 1);
    until_so_far(&server, &sh->ready, 1);
    settle(&server);
    struct rme_link *deaf = server.link;
    come(&client, &server, 1);
    assert_int_equal(ops->reg(client.f, sh->memory, BYTES, RME_ACCESS_REMOTE_WRITE, &sh->mr),
                     0);
    for (int i = 0; i < TRANSFERS; i++)
        write_to(&server, deaf, &x[i]);
    settle(&server);
    assert_int_equal(server.count[RME_EV_RDMA_DONE], 0);
    assert_int_equal(server.f->active.taken, 8);
    for (int i = 1; i <= 20; i++) {
        write_to(&server, server.link, &y);
        until(&server, &client, RME_EV_RDMA_DONE, i);
        until(&client, &server, RME_EV_IMM, i);
    }
    end_child(pid);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.f->active.taken, 0);
    assert_int_equal(server.f->kept_moves, 8);
    leave(&client, &server);
    take_the_place(&server, 0);
    as_at_the_start(&server);
}

/* A transfer that a live peer neither accepts nor reports as refused holds no buffer of the
 * messages that land behind it. */
static void messages_behind_a_stuck_transfer_return(void **state)
{
    static struct rme_rdma_op x;
    struct side server, client;
    void *hole = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_ptr_not_equal(hole, MAP_FAILED);
    begin(&server, FOR_EVER);
    come(&client, &server, 1);
    sh->mr.rkey = (uintptr_t)hole - (uintptr_t)sh->memory;
    write_to(&server, server.link, &x);
    for (int i = 0; i < 3 * PER_LINK; i++)
        say_to(&server, NULL, "behind it");
    assert_int_equal(server.count[RME_EV_RDMA_DONE] + server.count[RME_EV_LINK_DOWN], 0);
    leave(&client, &server);
    close_side(&server);
    munmap(hole, BYTES);
}

/* ---- Links that end in order ---- */

/* Sends a packet that the client's link would not send now. */
static void send_raw(struct side *client, enum elan_kind kind)
{
    assert_int_equal(elan_tx_alone(client->f, &client->link->peer, kind, 0, NULL, 0), 0);
}

/* A link is not over before its peer's BYE: the peer may still write to memory that was used,
 * also if it reports an unknown link, or sends an invalid packet when the link is ending. */
static void link_lasts_until_bye(enum elan_kind kind, int error)
{
    struct side server, client;

    begin(&server, FOR_EVER);
    come(&client, &server, 1);
    talk(&client, &server, server.link, 1);
    if (error == -ESHUTDOWN)
        ops->link_disconnect(server.link, error);
    assert_true(server.link->expected > 0);
    send_raw(&client, kind);
    while (server.link->state == ELAN_UP_STATE)
        poll_side(&server);
    pass(&server, ELAN_DRAIN_MS + 100);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    assert_int_equal(server.stats.value[RME_C_QUARANTINED], 1);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, error);
    close_side(&client);
    as_at_the_start(&server);
}

static void reject_on_a_used_link(void **state)
{
    (void)state;
    link_lasts_until_bye(ELAN_REJECT, -ECONNRESET);
}

static void broken_while_ending(void **state)
{
    (void)state;
    link_lasts_until_bye(ELAN_MESSAGE, -ESHUTDOWN); /* number 0 again */
}

/* ---- Before the host's answer ---- */

/* Makes two requests, the first of which was reported to the host. */
static void two_requests(struct side *server, struct side *client, struct rme_link *l[2])
{
    struct rme_event e;

    begin(server, FOR_EVER);
    on_node(1);
    open_side(client, NULL, SMALL FOR_EVER);
    dial(client, "elan4://0:2");
    dial(client, "elan4://0:2");
    until_asked(client);
    assert_int_equal(ops->poll(server->f, &e, 1), 1);
    assert_int_equal(e.type, RME_EV_LINK_REQUEST);
    l[0] = list_first(&server->f->links, struct rme_link, all);
    l[1] = list_next(l[0], &server->f->links, all);
    assert_non_null(l[1]);
}

/* A client cannot end its request before it is answered: the host may answer in the same
 * poll. */
static void reject_before_the_answer(void **state)
{
    struct side server, client;
    struct rme_link *l[2];
    struct rme_event e[8];
    (void)state;
    two_requests(&server, &client, l);
    struct elan_peer to = {sh->vp, sh->queue, server.f->nic->generation, l[1]->number};
    assert_int_equal(elan_tx_alone(client.f, &to, ELAN_REJECT, 0, NULL, 0), 0);
    until_asked(&client);
    assert_int_equal(ops->poll(server.f, e, 8), 1);
    assert_int_equal(e[0].type, RME_EV_LINK_REQUEST);
    assert_ptr_equal(e[0].link, l[1]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ops->link_accept(l[i], "yes", 4, RX, &server), 0);
    until(&client, &server, RME_EV_LINK_UP, 2);
    until(&server, &client, RME_EV_LINK_UP, 2);
    for (int i = 0; i < 2; i++)
        ops->link_disconnect(l[i], -ESHUTDOWN);
    until(&client, &server, RME_EV_LINK_DOWN, 2);
    until(&server, &client, RME_EV_LINK_DOWN, 2);
    close_side(&client);
    as_at_the_start(&server);
}

/* A link that is down when it is rejected is freed then, too. */
static void rejected_when_it_is_down(void **state)
{
    struct side server, client;
    struct rme_link *l[2];
    struct rme_event e[8];
    (void)state;
    two_requests(&server, &client, l);
    ops->link_disconnect(l[0], -ESHUTDOWN);
    ops->link_reject(l[0], "no", 3);
    assert_int_equal(ops->poll(server.f, e, 8), 1);
    assert_ptr_equal(e[0].link, l[1]);
    ops->link_reject(l[1], "no", 3);
    assert_true(list_empty(&server.f->links) && list_empty(&server.f->eventful));
    until(&client, &server, RME_EV_LINK_DOWN, 2);
    close_side(&client);
    as_at_the_start(&server);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_in_turn),
        cmocka_unit_test(killed_together),
        cmocka_unit_test(foreign_requests_use_bounded_buffers),
        cmocka_unit_test(unaccepted_answers_leave_buffers_for_others),
        cmocka_unit_test(many_links),
        cmocka_unit_test(transfers_of_others),
        cmocka_unit_test(messages_behind_a_stuck_transfer_return),
        cmocka_unit_test(reject_on_a_used_link),
        cmocka_unit_test(broken_while_ending),
        cmocka_unit_test(reject_before_the_answer),
        cmocka_unit_test(rejected_when_it_is_down),
    };

    sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        return 2;
    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
