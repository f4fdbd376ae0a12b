/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The software HCA's connection manager: addresses, every event, rejections, timeouts,
 * deaths. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "tests/emul/cm_help.h"
#include "tests/emul/stop.h"

PAIR(every_local_address_connects, run_two)
static const char *const places[] = {"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"};
ACTIVE(every_local_address_connects)
{
    meet(s);
    for (int i = 0; i < 4; i++) {
        struct rdma_cm_id *id = connect_to(places[i], PORT + 1);
        meet(s);
        drop(id);
    }
    meet(s);
    all_gone();
}
PASSIVE(every_local_address_connects)
{
    struct rdma_cm_id *l = listen_at("::", PORT + 1, 4); /* dual stack */

    meet(s);
    for (int i = 0; i < 4; i++) {
        struct rdma_cm_id *id = accept_one();
        meet(s);
        CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0); /* destroying disconnects */
        drop(id);
    }
    meet(s);
    finished(l, NULL);
}

/* A server that starts to listen when it learns of a coming client is not too late. */
PAIR(late_listener_gets_request, run_two)
ACTIVE(late_listener_gets_request)
{
    setenv("EMUVERBS_LISTEN_WAIT_MS", "20000", 1);
    clock_stop();
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *id = ask(PORT + i);
        for (int k = 0; k < 300; k++)
            clock_step_ms(1);
        CHECK(!readable(chan->fd, 0));
        meet(s);
        meet(s); /* listening */
        clock_run();
        CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
        clock_stop();
        meet(s);
        drop(id);
    }
    all_gone();
}
PASSIVE(late_listener_gets_request)
{
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *l = new_id(NULL);
        if (i)
            CHECK_EQ(rdma_bind_addr(l, at("0.0.0.0", PORT + 1)), 0); /* bound, not listening */
        meet(s);
        if (!i)
            CHECK_EQ(rdma_bind_addr(l, at("0.0.0.0", PORT)), 0);
        CHECK_EQ(rdma_listen(l, 4), 0);
        meet(s);
        struct rdma_cm_id *id = accept_one();
        meet(s);
        CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
        drop(id);
        drop(l);
    }
    all_gone();
}

TEST(addresses_that_are_not_ours)
{
    struct rdma_cm_id *id = new_id(NULL);

    CHECK_EQ(rdma_resolve_addr(id, NULL, at("198.51.100.7", 1), 100), 0);
    CHECK(eat(RDMA_CM_EVENT_ADDR_ERROR) < 0);
    CHECK(rdma_bind_addr(id, at("198.51.100.7", 1)) < 0);
    CHECK_EQ(errno, EADDRNOTAVAIL);
    CHECK(rdma_resolve_route(id, 100) < 0);
    CHECK_EQ(errno, EINVAL);
    finished(id, NULL);
}

/* The listener is notified that a request was given up, whether it has fetched the request or
 * not. */
PAIR(withdrawn_request_notifies_listener, run_two)
ACTIVE(withdrawn_request_notifies_listener)
{
    setenv("EMUVERBS_CM_TIMEOUT_MS", "3600000", 1);
    meet(s);
    for (int i = 0; i < 3; i++) {
        struct rdma_cm_id *id = ask(PORT + 12);
        meet(s); /* the listener has been notified */
        CHECK(!readable(chan->fd, 0));
        if (i == 0) {
            clock_step_ms(3600000);
            CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
            clock_run();
        }
        if (i == 1)
            meet(s);
        drop(id);
        meet(s);
    }
    all_gone();
}
PASSIVE(withdrawn_request_notifies_listener)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 12, 4);
    struct rdma_conn_param p = {.qp_num = 7};

    meet(s);
    for (int i = 0; i < 3; i++) {
        CHECK(readable(chan->fd, 60000));
        meet(s);
        if (i != 1)
            meet(s); /* given up before */
        struct rdma_cm_id *id = id_of(RDMA_CM_EVENT_CONNECT_REQUEST);
        if (i == 1) {
            meet(s);
            meet(s);
        }
        struct rdma_cm_event *e = next_event(RDMA_CM_EVENT_REJECTED);
        CHECK(e->id == id);
        CHECK_EQ(e->status, 4);
        CHECK_EQ(rdma_ack_cm_event(e), 0);
        CHECK(rdma_accept(id, &p) < 0);
        CHECK_EQ(errno, EINVAL);
        drop(id);
    }
    finished(l, NULL);
}

TEST(black_holes_run_into_the_time_out)
{
    struct rdma_conn_param p = {.retry_count = 7};
    setenv("EMUVERBS_CM_TIMEOUT_MS", "200", 1);
    setenv("EMUVERBS_BLACKHOLE", "203.0.113.5:20105,[2001:db8::1]", 1);
    static const char *const holes[] = {"203.0.113.5", "2001:db8::1"};

    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *id = new_id(NULL);
        struct sockaddr_storage src;
        memcpy(&src, at(i ? "::1" : "127.0.0.1", 0), sizeof(struct sockaddr_in6));
        CHECK_EQ(rdma_resolve_addr(id, (struct sockaddr *)&src, at(holes[i], 20105), 1000), 0);
        CHECK_EQ(eat(RDMA_CM_EVENT_ADDR_RESOLVED), 0);
        CHECK_EQ(rdma_resolve_route(id, 1000), 0);
        CHECK_EQ(eat(RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
        give_qp(id);
        CHECK_EQ(rdma_connect(id, &p), 0);
        CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
        drop(id);
    }
    all_gone();
}

PAIR(killed_peer_disconnects, run_two_kill)
ACTIVE(killed_peer_disconnects)
{
    meet(s);
    struct rdma_cm_id *id = connect_to("127.0.0.1", PORT + 7);
    struct rdma_cm_id *waiting = ask(PORT + 7); /* never answered */
    meet(s);
    kill(s->peer, SIGKILL);
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_event *e;
        CHECK_EQ(rdma_get_cm_event(chan, &e), 0);
        CHECK(e->id == id ? e->event == RDMA_CM_EVENT_DISCONNECTED
                          : e->event == RDMA_CM_EVENT_REJECTED);
        rdma_ack_cm_event(e);
    }
    CHECK_EQ(eat(RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
    struct rdma_cm_id *again = ask(PORT + 7);
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 8);
    drop(id);
    finished(waiting, again);
}
PASSIVE(killed_peer_disconnects)
{
    listen_at("127.0.0.1", PORT + 7, 4);
    meet(s);
    accept_one();
    CHECK(readable(chan->fd, 60000)); /* the second request waits */
    meet(s);
    pause_forever();
}

static void end_together(struct side *s)
{
    struct rdma_cm_id *l = s->peer ? NULL : listen_at("127.0.0.1", PORT + 8, 4);

    meet(s);
    for (int i = 0; i < 20; i++) {
        struct rdma_cm_id *id = l != NULL ? accept_one() : connect_to("127.0.0.1", PORT + 8);
        meet(s);
        CHECK_EQ(rdma_disconnect(id), 0);
        CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
        CHECK_EQ(rdma_disconnect(id), 0); /* harmless */
        CHECK_EQ(eat(RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
        drop(id);
        meet(s);
    }
    if (l != NULL)
        drop(l);
    all_gone();
}
TWO(both_disconnect_at_once, run_two, end_together, end_together)

PAIR(backlog_is_bounded, run_two)
ACTIVE(backlog_is_bounded)
{
    struct rdma_cm_id *id[3];

    meet(s);
    for (int i = 0; i < 3; i++) {
        id[i] = ask(PORT + 9);
    }
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 28); /* the third */
    meet(s);
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 28); /* its listener is gone */
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 28);
    for (int i = 0; i < 3; i++)
        drop(id[i]);
    all_gone();
}
PASSIVE(backlog_is_bounded)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 9, 2);
    meet(s);
    meet(s);
    drop(l); /* with unfetched requests */
    all_gone();
}

/* Acknowledges when the first thread waits. */
static void *late_ack(void *arg)
{
    while (!thread_sleeps(getpid()))
        sched_yield();
    rdma_ack_cm_event(arg);
    return NULL;
}

TEST(destroying_an_id_waits_for_acknowledgements)
{
    struct rdma_cm_id *id = new_id(NULL);

    CHECK_EQ(rdma_resolve_addr(id, NULL, at("127.0.0.1", 1), 1000), 0);
    struct rdma_cm_event *e = next_event(RDMA_CM_EVENT_ADDR_RESOLVED);
    pthread_t t = spawn(late_ack, e);
    CHECK_EQ(rdma_destroy_id(id), 0);
    CHECK_EQ(counter("rdma_ack_cm_event"), 1);
    pthread_join(t, NULL);
    /* unfetched events are dropped with their id, and the descriptor becomes unreadable */
    id = new_id(NULL);
    CHECK_EQ(rdma_resolve_addr(id, NULL, at("127.0.0.1", 1), 1000), 0);
    CHECK(readable(chan->fd, 60000));
    drop(id);
    CHECK(!readable(chan->fd, 0));
    all_gone();
}

PAIR(qps_without_rdma_create_qp, run_two)
/* Gives an id's device a QP, or brings it to RTS. */
static void by_hand(struct rdma_cm_id *id, struct side *s)
{
    s->pd = ibv_alloc_pd(id->verbs);
    s->scq = s->rcq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
    s->qp = new_qp(s, IBV_QPT_RC, 16);
}
static void walk(struct rdma_cm_id *id, struct side *s)
{
    for (enum ibv_qp_state st = IBV_QPS_INIT; st <= IBV_QPS_RTS; st++) {
        struct ibv_qp_attr qa = {.qp_state = st};
        int mask;
        CHECK_EQ(rdma_init_qp_attr(id, &qa, &mask), 0);
        CHECK_EQ(ibv_modify_qp(s->qp, &qa, mask), 0);
    }
}
static void clean(struct side *s)
{
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    CHECK_EQ(ibv_destroy_cq(s->scq), 0);
    CHECK_EQ(ibv_dealloc_pd(s->pd), 0);
}
ACTIVE(qps_without_rdma_create_qp)
{
    struct rdma_cm_id *id = new_id(NULL);
    struct ibv_send_wr wr = {.wr_id = 1, .opcode = SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

    meet(s);
    resolve(id, "127.0.0.1", PORT + 11);
    by_hand(id, s);
    struct rdma_conn_param p = {
        .qp_num = s->qp->qp_num, .retry_count = 7, .rnr_retry_count = 7};
    CHECK_EQ(rdma_connect(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    walk(id, s);
    CHECK_EQ(rdma_establish(id), 0);
    meet(s);
    CHECK_EQ(ibv_post_send(s->qp, &wr, &bad), 0);
    expect_wc(s->scq, 1, IBV_WC_SUCCESS);
    meet(s);
    clean(s);
    finished(id, NULL);
}
PASSIVE(qps_without_rdma_create_qp)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT + 11, 2);
    struct ibv_recv_wr wr = {.wr_id = 2}, *bad;

    meet(s);
    struct rdma_cm_id *id = id_of(RDMA_CM_EVENT_CONNECT_REQUEST);
    by_hand(id, s);
    walk(id, s);
    CHECK_EQ(ibv_post_recv(s->qp, &wr, &bad), 0);
    struct rdma_conn_param p = {.qp_num = s->qp->qp_num, .rnr_retry_count = 7};
    CHECK_EQ(rdma_accept(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    meet(s);
    expect_wc(s->scq, 2, IBV_WC_SUCCESS);
    meet(s);
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    clean(s);
    finished(id, l);
}

/* A client that dies before it confirms was never connected. */
PAIR(unconfirmed_dead_client_was_never_connected, run_two_kill)
ACTIVE(unconfirmed_dead_client_was_never_connected)
{
    struct rdma_cm_id *l, *id;

    CHECK_EQ(rdma_create_id(NULL, &l, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_bind_addr(l, at("127.0.0.1", PORT + 30)), 0);
    CHECK_EQ(rdma_listen(l, 4), 0);
    meet(s);
    CHECK_EQ(rdma_get_request(l, &id), 0);
    give_qp(id);
    CHECK_EQ(rdma_accept(id, NULL), -1);
    CHECK_EQ(errno, ECONNREFUSED);
    CHECK(id->event);
    CHECK_EQ(id->event->event, RDMA_CM_EVENT_REJECTED);
    CHECK_EQ(id->event->status, 28);
    drop(id);
    drop(l);
}
PASSIVE(unconfirmed_dead_client_was_never_connected)
{
    struct rdma_conn_param p = {.qp_num = 7};
    struct rdma_cm_id *id = new_id(NULL);

    meet(s);
    resolve(id, "127.0.0.1", PORT + 30);
    CHECK_EQ(rdma_connect(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    kill(getpid(), SIGKILL);
}
