/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Extended reliable connections between processes, some of which are stopped or killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "tests/emul/stop.h"
#include "tests/emul/xrc.h"

PAIR(domain_ends_with_last_process, run_two_kill)
ACTIVE(domain_ends_with_last_process)
{
    char c;

    side_open(s);
    meet(s); /* the other has the domain */
    struct ibv_xrcd *x = domain_of(s, xrc_inode, 0);
    CHECK(x);
    CHECK(!domain_of(s, xrc_inode, O_CREAT | O_EXCL) && errno == EINVAL);
    CHECK_EQ(ibv_close_xrcd(x), 0);
    x = domain_of(s, xrc_inode, 0);
    CHECK(x);
    CHECK_EQ(ibv_close_xrcd(x), 0);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(read(s->sock, &c, 1) <= 0);
    for (uint64_t end = now_ms() + 60000; (x = domain_of(s, xrc_inode, 0)) != NULL;) {
        CHECK_EQ(ibv_close_xrcd(x), 0); /* the kernel may still close the other's descriptor */
        CHECK(now_ms() < end);
    }
    CHECK_EQ(errno, EAGAIN);
    side_close(s);
}
PASSIVE(domain_ends_with_last_process)
{
    side_open(s);
    CHECK(domain_of(s, xrc_inode, O_CREAT));
    meet(s);
    for (;;)
        pause();
}

struct numbers {
    uint32_t sends, receives, srq, rkey;
    uint64_t addr;
};

/* Connects each process to the other's QP; both exchange their numbers. */
static void connect_two(struct xrc *x, struct numbers *theirs)
{
    struct side *s = x->s;
    struct numbers mine = {x->sends->qp_num, x->receives->qp_num, x->number, s->mr->rkey,
                           (uintptr_t)s->buf};

    CHECK_EQ(write(s->sock, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(s->sock, theirs, sizeof(*theirs)), sizeof(*theirs));
    join(x->receives, theirs->sends, 0);
    join(x->sends, theirs->receives, 7);
    x->to = theirs->srq;
    s->raddr = theirs->addr;
    s->rkey = theirs->rkey;
    meet(s);
}

static void open_two(struct xrc *x, struct side *s, struct numbers *theirs)
{
    xrc_open(x, s);
    x->sends = sender(s, 0);
    x->receives = receiver(s, x->domain);
    CHECK(x->sends && x->receives);
    connect_two(x, theirs);
}

/* Requests to a QP of one process name the SRQ of another, here the sender's. */
PAIR(srq_of_other_process_receives, run_two)
ACTIVE(srq_of_other_process_receives)
{
    struct xrc x = {0};
    struct numbers theirs;
    uint64_t theirs_addr;
    uint32_t theirs_key;

    s->use_chan = true;
    open_two(&x, s, &theirs);
    theirs_addr = s->raddr;
    theirs_key = s->rkey;
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    pattern(s->buf, 4096, 9);
    for (uint64_t i = 0; i < 3 * PLACES; i++) { /* to the other's SRQ and ours in turn */
        x.to = i % 2 ? theirs.srq : x.number;
        if (x.to == x.number)
            post(&x, i, 8192, 4096);
        else
            meet(s);
        request(&x, i, SEND, i % 3 ? 4096 : 64, 0, IBV_WC_SUCCESS);
        if (x.to != x.number) {
            meet(s);
            continue;
        }
        struct ibv_wc wc = expect_wc(s->rcq, i, IBV_WC_SUCCESS);
        CHECK_EQ(wc.qp_num, theirs.receives);
        CHECK(is_pattern(s->buf + 8192, i % 3 ? 4096 : 64, 9));
    }
    CHECK(readable(s->chan->fd, 60000));
    struct ibv_cq *cq;
    void *context;
    CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    /* memory is that of the SRQ's process */
    x.to = x.number;
    s->raddr = (uintptr_t)s->buf;
    s->rkey = s->mr->rkey;
    request(&x, 1, WRITE, 100, 20000, IBV_WC_SUCCESS);
    CHECK(is_pattern(s->buf + 20000, 100, 9));
    x.to = theirs.srq;
    s->raddr = theirs_addr;
    s->rkey = theirs_key;
    request(&x, 1, WRITE, 100, 20000, IBV_WC_SUCCESS);
    meet(s);
    x.to = x.number; /* the other's key is not valid here, even through the other's QP */
    request(&x, 2, WRITE, 100, 30000, IBV_WC_REM_ACCESS_ERR);
    meet(s);
    xrc_close(&x);
}
PASSIVE(srq_of_other_process_receives)
{
    struct xrc x = {0};
    struct numbers theirs;

    open_two(&x, s, &theirs);
    for (uint64_t i = 1; i < 3 * PLACES; i += 2) {
        post(&x, i, 8192, 4096);
        meet(s);
        meet(s);
        CHECK_EQ(expect_wc(s->rcq, i, IBV_WC_SUCCESS).qp_num, x.receives->qp_num);
    }
    meet(s);
    CHECK(is_pattern(s->buf + 20000, 100, 9));
    expect_async(s, IBV_EVENT_QP_ACCESS_ERR, x.receives);
    expect_none(s->rcq);
    meet(s);
    xrc_close(&x);
}

/* The QP's process lives, the SRQ's is killed. */
PAIR(dead_srq_owner_fails_requests, run_two_kill)
ACTIVE(dead_srq_owner_fails_requests)
{
    struct xrc x = {0};
    char c;

    loop(&x, s, 7);
    CHECK_EQ(read(s->sock, &x.to, sizeof(x.to)), sizeof(x.to));
    request(&x, 1, SEND, 4096, 0, IBV_WC_SUCCESS);
    meet(s);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(read(s->sock, &c, 1) <= 0);
    /* its death is noticed a little later; until then its last receive is used */
    for (int i = 0;; i++) {
        CHECK_EQ(try_request(&x, 1, SEND, 64, 0), 0);
        struct ibv_wc wc = wait_wc(s->scq);
        if (wc.status != IBV_WC_SUCCESS) {
            CHECK_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
            break;
        }
        CHECK(i == 0);
    }
    expect_failed(&x, IBV_EVENT_QP_REQ_ERR);
    xrc_close(&x);
}
PASSIVE(dead_srq_owner_fails_requests)
{
    struct xrc x = {0};

    xrc_open(&x, s);
    post(&x, 1, 0, 4096);
    post(&x, 2, 0, 4096);
    CHECK_EQ(write(s->sock, &x.number, sizeof(x.number)), sizeof(x.number));
    meet(s);
    for (;;)
        pause();
}

/* An SRQ and memory of another process, for a connection within one process. */
struct queue_there {
    uint64_t addr;
    uint32_t number, rkey;
};

static void tell_queue(struct xrc *x)
{
    struct queue_there q = {(uintptr_t)x->s->buf, x->number, x->s->mr->rkey};

    CHECK_EQ(write(x->s->sock, &q, sizeof(q)), sizeof(q));
}

static void learn_queue(struct xrc *x)
{
    struct queue_there q;

    CHECK_EQ(read(x->s->sock, &q, sizeof(q)), sizeof(q));
    x->to = q.number;
    x->s->raddr = q.addr;
    x->s->rkey = q.rkey;
}

/* A receive without permission for its memory: all three parties get an error. */
PAIR(wrong_receive_fails_three_parties, run_two)
ACTIVE(wrong_receive_fails_three_parties)
{
    struct xrc x = {0};

    loop(&x, s, 7);
    learn_queue(&x);
    request(&x, 1, SEND, 64, 0, IBV_WC_REM_OP_ERR);
    expect_failed(&x, IBV_EVENT_QP_REQ_ERR);
    expect_none(s->rcq);
    CHECK_EQ(write(s->sock, &x.receives->qp_num, 4), 4);
    meet(s);
    xrc_close(&x);
}
PASSIVE(wrong_receive_fails_three_parties)
{
    struct xrc x = {0};
    uint32_t receiver;

    xrc_open(&x, s);
    struct ibv_mr *mr = ibv_reg_mr(s->pd, s->buf, 64, 0);
    CHECK(mr);
    struct ibv_sge sge = {(uintptr_t)s->buf, 64, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK_EQ(ibv_post_srq_recv(x.srq, &wr, &bad), 0);
    tell_queue(&x);
    CHECK_EQ(read(s->sock, &receiver, 4), 4);
    CHECK_EQ(expect_wc(s->rcq, 5, IBV_WC_LOC_PROT_ERR).qp_num, receiver);
    post(&x, 6, 0, 64); /* the SRQ continues */
    expect_none(s->rcq);
    meet(s);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    xrc_close(&x);
}

/* A process that answers nothing does not answer for its own SRQ, either. */
PAIR(srq_of_silent_process_times_out, run_two)
ACTIVE(srq_of_silent_process_times_out)
{
    struct xrc x = {0};

    loop(&x, s, 7);
    learn_queue(&x);
    request(&x, 1, SEND, 64, 0, IBV_WC_RETRY_EXC_ERR);
    meet(s);
    xrc_close(&x);
}
PASSIVE(srq_of_silent_process_times_out)
{
    struct xrc x = {0};

    setenv("EMUVERBS_SILENT", "1", 1);
    xrc_open(&x, s);
    post(&x, 1, 0, 64);
    tell_queue(&x);
    meet(s);
    expect_none(s->rcq);
    xrc_close(&x);
}

/* Data that is read leaves by the SRQ's process: three seconds of reads do not delay a write of
 * ours. The test controls the clock. */
PAIR(read_data_leaves_by_srq_owner, run_two)
ACTIVE(read_data_leaves_by_srq_owner)
{
    struct side a = {0}, b = {0};
    struct xrc x = {0};

    setenv("EMUVERBS_LINK_MB_S", "1", 1);
    loop_open(&a, &b);
    loop(&x, s, 7);
    learn_queue(&x);
    clock_stop();
    CHECK_EQ(try_request(&x, 0, READ, 64, 0), 0);
    for (uint64_t i = 1; i <= 3; i++)
        CHECK_EQ(try_request(&x, i, READ, BUF_SIZE, 0), 0);
    clock_step_ms(1);
    expect_wc(s->scq, 0, IBV_WC_SUCCESS); /* all are in flight now */
    post_send(&a, 9, WRITE, 0, 64, 0);
    clock_step_ms(1);
    expect_wc(a.scq, 9, IBV_WC_SUCCESS);
    expect_none(s->scq);
    clock_step_ms(4000);
    for (uint64_t i = 1; i <= 3; i++)
        expect_wc(s->scq, i, IBV_WC_SUCCESS);
    meet(s);
    loop_close(&a, &b);
    xrc_close(&x);
}
PASSIVE(read_data_leaves_by_srq_owner)
{
    struct xrc x = {0};

    xrc_open(&x, s);
    tell_queue(&x);
    meet(s);
    xrc_close(&x);
}

/* The sender stops forever while it holds a receive: that receive is flushed, once. */
PAIR(stopped_senders_receive_is_flushed_once, run_two)
ACTIVE(stopped_senders_receive_is_flushed_once)
{
    struct xrc x = {0};
    struct numbers theirs;
    struct ibv_srq_attr limit = {.srq_limit = 2};

    open_two(&x, s, &theirs);
    post(&x, 1, 0, 64);
    post(&x, 2, 0, 64);
    CHECK_EQ(ibv_modify_srq(x.srq, &limit, IBV_SRQ_LIMIT), 0);
    meet(s);
    wait_stopped(s->stop); /* holds one */
    expect_async(s, IBV_EVENT_SRQ_LIMIT_REACHED, x.srq);
    CHECK(process_stop(s->peer));
    CHECK_EQ(ibv_destroy_qp(x.receives), 0);
    x.receives = NULL;
    expect_wc(s->rcq, 1, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    go_on(s->stop, 0);
    meet(s);
    expect_none(s->rcq);
    meet(s);
    xrc_close(&x);
}
PASSIVE(stopped_senders_receive_is_flushed_once)
{
    struct xrc x = {0};
    struct numbers theirs;

    stop_at(s, "claim");
    open_two(&x, s, &theirs);
    meet(s);
    request(&x, 1, SEND, 64, 0, IBV_WC_RETRY_EXC_ERR);
    meet(s);
    meet(s);
    xrc_close(&x);
}

/* Makes a CQ and an SRQ, and destroys both. */
static void come_and_go(struct xrc *x)
{
    struct side s = *x->s;

    s.rcq = ibv_create_cq(s.ctx, 64, NULL, NULL, 0);
    CHECK(s.rcq);
    struct ibv_srq *q = shared_queue(&s, x->domain);
    CHECK(q);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    CHECK_EQ(ibv_destroy_cq(s.rcq), 0);
}

/* Destroyed queues use no memory, although a process that has sent here lives. */
PAIR(queues_come_and_go_beside_a_sender, run_two)
ACTIVE(queues_come_and_go_beside_a_sender)
{
    struct xrc x = {0};
    struct numbers theirs;

    setenv("EMUVERBS_SEGMENT_MIB", "64", 1);
    open_two(&x, s, &theirs);
    post(&x, 1, 0, 64);
    meet(s);
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    for (int i = 0; i < 4000; i++)
        come_and_go(&x);
    meet(s);
    xrc_close(&x);
}
PASSIVE(queues_come_and_go_beside_a_sender)
{
    struct xrc x = {0};
    struct numbers theirs;

    open_two(&x, s, &theirs);
    meet(s);
    request(&x, 1, SEND, 64, 0, IBV_WC_SUCCESS);
    meet(s);
    xrc_close(&x);
}

/* Waits until a receive is taken: the sender is then in the queue, and stops. */
static void wait_taken(struct xrc *x)
{
    struct ibv_srq_attr limit = {.srq_limit = 2};

    post(x, 1, 0, 64);
    post(x, 2, 0, 64);
    CHECK_EQ(ibv_modify_srq(x->srq, &limit, IBV_SRQ_LIMIT), 0);
    meet(x->s);
    wait_stopped(x->s->stop);
    expect_async(x->s, IBV_EVENT_SRQ_LIMIT_REACHED, x->srq);
}

static void send_late(struct side *s, const char *step)
{
    struct xrc x = {0};
    struct numbers theirs;

    stop_at(s, step);
    open_two(&x, s, &theirs);
    meet(s);
    request(&x, 1, SEND, 64, 0, IBV_WC_SUCCESS);
    meet(s);
    meet(s);
    xrc_close(&x);
}

static void *destroy_queue(void *srq)
{
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    return NULL;
}

/* Destroying a queue waits for the sender in it: the receive that it holds is completed
 * first. */
PAIR(srq_destroyed_under_its_sender, run_two)
ACTIVE(srq_destroyed_under_its_sender)
{
    struct xrc x = {0};
    struct numbers theirs;
    struct ibv_wc wc;
    pthread_t thread;

    open_two(&x, s, &theirs);
    wait_taken(&x);
    clock_stop(); /* so that the wait does not time out */
    CHECK_EQ(pthread_create(&thread, NULL, destroy_queue, x.srq), 0);
    while (counter("drains") == 0)
        sched_yield();
    clock_step_ms(21);
    while (counter("drain_checks") == 0)
        sched_yield();
    go_on(s->stop, 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(counter("drains_given_up"), 0);
    x.srq = NULL;
    CHECK_EQ(ibv_poll_cq(s->rcq, 1, &wc), 1);
    CHECK_EQ(wc.wr_id, 1);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    expect_none(s->rcq);
    meet(s);
    meet(s);
    xrc_close(&x);
}
PASSIVE(srq_destroyed_under_its_sender)
{
    send_late(s, "push");
}

/* Destroying does not wait for a stopped sender. Its later completion is not visible, whichever
 * CQ has the former one's slot. */
PAIR(srq_destroyed_under_stopped_sender, run_two)
ACTIVE(srq_destroyed_under_stopped_sender)
{
    struct xrc x = {0};
    struct numbers theirs;

    open_two(&x, s, &theirs);
    wait_taken(&x);
    CHECK(process_stop(s->peer));
    CHECK_EQ(ibv_destroy_srq(x.srq), 0);
    x.srq = NULL;
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    go_on(s->stop, 0);
    meet(s); /* the sender is done */
    expect_none(s->rcq);
    meet(s);
    xrc_close(&x);
}
PASSIVE(srq_destroyed_under_stopped_sender)
{
    send_late(s, "claim");
}

#define T(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    run_under_emuverbs(argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]); /* a pattern: run only these tests */
    const struct CMUnitTest tests[] = {
        T(domain_ends_with_last_process),           T(srq_of_other_process_receives),
        T(dead_srq_owner_fails_requests),           T(wrong_receive_fails_three_parties),
        T(srq_of_silent_process_times_out),         T(read_data_leaves_by_srq_owner),
        T(stopped_senders_receive_is_flushed_once), T(queues_come_and_go_beside_a_sender),
        T(srq_destroyed_under_its_sender),          T(srq_destroyed_under_stopped_sender),
    };
    return cmocka_run_group_tests(tests, xrc_make_inode, xrc_remove_inode);
}
