/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Posters that are late: stopped, killed or overtaken while they are at another's queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

/* The poster dies when it has disarmed the queue and not raised the event: its owner wakes up.
 */
PAIR(a_wake_up_outlives_its_poster, run_two_kill)
ACTIVE(a_wake_up_outlives_its_poster)
{
    struct ibv_cq *cq;
    void *ctx;

    s->use_chan = true;
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    meet(s);
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    CHECK(!readable(s->chan->fd, 300));
    /* armed anew meanwhile: what is owed stays owed */
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(readable(s->chan->fd, 20000));
    CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &ctx), 0);
    CHECK(cq == s->rcq);
    ibv_ack_cq_events(cq, 1);
    CHECK(!readable(s->chan->fd, 300)); /* once */
    side_close(s);
}
PASSIVE(a_wake_up_outlives_its_poster)
{
    setenv("EMUVERBS_NOTIFY_LATE_US", "60000000", 1);
    side_open(s);
    side_connect(s);
    meet(s);
    post_send(s, 1, SEND, 0, 8, 0);
    for (;;)
        pause();
}

/* The same when it has raised the event and not said so: there is one all the same. */
PAIR(an_event_is_counted_once, run_two_kill)
ACTIVE(an_event_is_counted_once)
{
    struct ibv_cq *cq;
    void *ctx;

    s->use_chan = true;
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    int flags = fcntl(s->chan->fd, F_GETFL);
    CHECK_EQ(fcntl(s->chan->fd, F_SETFL, flags | O_NONBLOCK), 0);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    meet(s);
    CHECK(readable(s->chan->fd, 20000));
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    usleep(300000); /* its death is known, or it is as if it had come later */
    CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &ctx), 0);
    CHECK(cq == s->rcq);
    ibv_ack_cq_events(cq, 1);
    CHECK(!readable(s->chan->fd, 500));
    CHECK(ibv_get_cq_event(s->chan, &cq, &ctx) < 0 && errno == EAGAIN);
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    side_close(s);
}
PASSIVE(an_event_is_counted_once)
{
    setenv("EMUVERBS_TOLD_LATE_US", "60000000", 1);
    side_open(s);
    side_connect(s);
    meet(s);
    post_send(s, 1, SEND, 0, 8, 0);
    for (;;)
        pause();
}

/* The same before it has disarmed the queue. */
PAIR(a_completion_outlives_its_poster, run_two_kill)
ACTIVE(a_completion_outlives_its_poster)
{
    struct ibv_cq *cq;
    void *ctx;

    s->use_chan = true;
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    meet(s);
    CHECK(!readable(s->chan->fd, 500));
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    if (readable(s->chan->fd, 10000)) {
        CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &ctx), 0);
        CHECK(cq == s->rcq);
        ibv_ack_cq_events(cq, 1);
        CHECK(!readable(s->chan->fd, 100)); /* once */
        expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    }
    expect_none(s->rcq); /* a machine that is very slow: it has come to nothing */
    side_close(s);
}
PASSIVE(a_completion_outlives_its_poster)
{
    setenv("EMUVERBS_WAKE_LATE_US", "60000000", 1);
    side_open(s);
    side_connect(s);
    meet(s);
    post_send(s, 1, SEND, 0, 8, 0);
    for (;;)
        pause();
}

/*
 * A poster is stopped with a cell of a completion queue in its hands. Its queue pair and the
 * queue are destroyed; what it does there when it goes on is seen in no other queue.
 */
PAIR(a_queue_destroyed_under_a_stopped_poster, run_two)
ACTIVE(a_queue_destroyed_under_a_stopped_poster)
{
    struct side a = {.cqe = 64}, b = {.cqe = 64};

    s->cqe = 64; /* all posters begin at the same cell */
    side_open(s);
    post_recv(s, 1, 0, 64);
    side_connect(s);
    meet(s);
    usleep(100000); /* the poster waits with its completion */
    CHECK(process_stop(s->peer));
    side_close(s);
    loop_open(&a, &b);
    post_recv(&a, 1, 0, 64);
    post_recv(&b, 2, 0, 64);
    post_send(&a, 3, SEND, 64, 8, 0);
    post_send(&b, 4, SEND, 64, 8, 0);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    meet(s); /* it has done what it does */
    expect_wc(a.rcq, 1, IBV_WC_SUCCESS);
    expect_wc(b.rcq, 2, IBV_WC_SUCCESS);
    expect_wc(a.scq, 3, IBV_WC_SUCCESS);
    expect_wc(b.scq, 4, IBV_WC_SUCCESS);
    expect_none(a.rcq);
    expect_none(b.rcq);
    expect_none(a.scq);
    expect_none(b.scq);
    loop_close(&a, &b);
}
PASSIVE(a_queue_destroyed_under_a_stopped_poster)
{
    setenv("EMUVERBS_PUSH_LATE_US", "400000", 1);
    side_open(s);
    side_connect(s);
    meet(s);
    CHECK_EQ(try_send(s, 1, SEND, 0, 8, 0, 0, 0), 0);
    meet(s);
    side_close(s);
}

/*
 * A message has found its receive, and is told of late. Meanwhile the receive's memory is
 * registered anew, paged on demand, or not at all.
 */
enum fate { STAYS, UNMAPPED, DEREGISTERED };

static void overtake(struct side *s, enum fate fate)
{
    enum ibv_wc_status status = fate == STAYS ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
    const size_t size = 4096;
    struct ibv_recv_wr *bad;

    side_open(s);
    unsigned char *at =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(s->pd, at, size, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_sge sge = {(uintptr_t)at, 64, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
    CHECK_EQ(ibv_post_recv(s->qp, &wr, &bad), 0);
    side_connect(s);
    meet(s);
    usleep(100000); /* the poster waits with its completion */
    expect_none(s->rcq);
    if (fate == DEREGISTERED)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    else
        CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND),
                 0);
    if (fate == UNMAPPED)
        CHECK_EQ(munmap(at, size), 0);
    expect_wc(s->rcq, 1, status);
    if (fate == STAYS)
        CHECK(is_pattern(at, 64, 5));
    CHECK_EQ(qp_state(s), fate == STAYS ? IBV_QPS_RTS : IBV_QPS_ERR);
    meet(s);
    if (fate != DEREGISTERED)
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    side_close(s);
}

static void send_late(struct side *s)
{
    setenv("EMUVERBS_PUSH_LATE_US", "400000", 1);
    side_open(s);
    side_connect(s);
    pattern(s->buf, 64, 5);
    meet(s);
    CHECK_EQ(try_send(s, 1, SEND, 0, 64, 0, 0, 0), 0);
    meet(s);
    side_close(s);
}

PAIR(memory_that_is_paged_on_demand_meanwhile, run_two)
ACTIVE(memory_that_is_paged_on_demand_meanwhile)
{
    overtake(s, STAYS);
}
PASSIVE(memory_that_is_paged_on_demand_meanwhile)
{
    send_late(s);
}

PAIR(memory_that_is_unmapped_meanwhile, run_two)
ACTIVE(memory_that_is_unmapped_meanwhile)
{
    overtake(s, UNMAPPED);
}
PASSIVE(memory_that_is_unmapped_meanwhile)
{
    send_late(s);
}

PAIR(memory_that_is_deregistered_meanwhile, run_two)
ACTIVE(memory_that_is_deregistered_meanwhile)
{
    overtake(s, DEREGISTERED);
}
PASSIVE(memory_that_is_deregistered_meanwhile)
{
    send_late(s);
}

#define T(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    run_under_emuverbs(argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]); /* a pattern: only these tests */
    const struct CMUnitTest tests[] = {
        T(a_wake_up_outlives_its_poster),
        T(an_event_is_counted_once),
        T(a_completion_outlives_its_poster),
        T(a_queue_destroyed_under_a_stopped_poster),
        T(memory_that_is_paged_on_demand_meanwhile),
        T(memory_that_is_unmapped_meanwhile),
        T(memory_that_is_deregistered_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
