/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* CQs of the software HCA: size, polling, events. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

static void writes(struct side *a, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        post_send(a, first + i, WRITE, 0, 8, 0);
}

static void expect_from(struct side *a, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        expect_wc(a->scq, first + i, IBV_WC_SUCCESS);
    expect_none(a->scq);
}

/* From one size to another, from empty to full: all completions are kept, in order, and the new
 * size is at least as requested. */
TEST(resizing_keeps_what_is_there)
{
    const int sizes[] = {1, 2, 3, 4, 5, 63, 64, 65, 200};
    const unsigned n = sizeof(sizes) / sizeof(sizes[0]);

    for (unsigned from = 0; from < n; from++)
        for (unsigned to = 0; to < n; to++) {
            struct side a = {.cqe = sizes[from], .max_wr = 256}, b = {0};
            unsigned hold = (unsigned)sizes[from < to ? from : to] - (from + to) % 2;

            loop_open(&a, &b);
            writes(&a, 0, hold);
            CHECK_EQ(ibv_resize_cq(a.scq, sizes[to]), 0);
            CHECK_EQ(a.scq->cqe, sizes[to]);
            writes(&a, hold, (unsigned)sizes[to] - hold);
            expect_from(&a, 0, (unsigned)sizes[to]);
            writes(&a, 1000, (unsigned)sizes[to]);
            expect_from(&a, 1000, (unsigned)sizes[to]);
            writes(&a, 2000, (unsigned)sizes[to] + 1);
            expect_async(&a, IBV_EVENT_CQ_ERR, a.scq);
            loop_close(&a, &b);
        }
}

/* In an empty segment, as many CQs of 1,024 entries as the device tells can be created. */
TEST(told_number_of_queues_can_be_had)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_device_attr d;

    setenv("EMUVERBS_SEGMENT_MIB", "128", 1);
    struct ibv_context *ctx = list != NULL ? ibv_open_device(list[0]) : NULL;
    CHECK(ctx);
    CHECK_EQ(ibv_query_device(ctx, &d), 0);
    CHECK(d.max_cq > 100);
    struct ibv_cq **cq = calloc((size_t)d.max_cq, sizeof(*cq));
    CHECK(cq);
    for (int i = 0; i < d.max_cq; i++)
        CHECK((cq[i] = ibv_create_cq(ctx, 1024, NULL, NULL, 0)));
    for (int i = 0; i < d.max_cq; i++)
        CHECK_EQ(ibv_destroy_cq(cq[i]), 0);
    free(cq);
    CHECK_EQ(ibv_close_device(ctx), 0);
    ibv_free_device_list(list);
}

/* A message's payload in a CQ that is resized reaches memory, by polling or by
 * deregistering. */
TEST(payloads_move_with_their_completions)
{
    for (int polled = 0; polled < 2; polled++) {
        struct side a = {0}, b = {.cqe = 2};

        loop_open(&a, &b);
        pattern(a.buf, 512, 3);
        for (unsigned i = 0; i < 2; i++) {
            post_recv(&b, i, i * 256, 256);
            post_send(&a, i, SEND, i * 256, 256, 0);
        }
        CHECK_EQ(ibv_resize_cq(b.rcq, 20), 0);
        if (!polled) {
            CHECK_EQ(ibv_dereg_mr(b.mr), 0);
            b.mr = NULL;
            CHECK(is_pattern(b.buf, 512, 3));
        }
        for (unsigned i = 0; i < 2; i++)
            expect_wc(b.rcq, i, IBV_WC_SUCCESS);
        CHECK(is_pattern(b.buf, 512, 3));
        loop_close(&a, &b);
    }
}

/* A CQ that was resized many times frees all its memory. */
SIDE(queues_that_grew_leave_nothing,
     .env = "EMUVERBS_SEGMENT_MIB=64") /* not enough otherwise */
{
    for (int i = 0; i < 60; i++) {
        struct ibv_cq *cq = ibv_create_cq(s->ctx, 1, NULL, NULL, 0);
        CHECK(cq);
        for (int n = 2; n <= 16384; n *= 2)
            CHECK_EQ(ibv_resize_cq(cq, n), 0);
        CHECK_EQ(ibv_resize_cq(cq, 1 << 20), ENOMEM);
        CHECK_EQ(cq->cqe, 16384);
        CHECK_EQ(ibv_destroy_cq(cq), 0);
    }
}

static void *write_one(void *arg)
{
    writes(arg, 7, 1);
    return NULL;
}

/* A poster with a place in the old ring continues with its completion in the new one. */
LOOP(poster_in_old_ring_finds_new, .stop = "push", .a = {.cqe = 4})
{
    pthread_t poster;

    poster = spawn(write_one, a);
    wait_stopped(a->stop);
    for (int n = 8; n <= 32; n *= 2)
        CHECK_EQ(ibv_resize_cq(a->scq, n), 0);
    go_on(a->stop, 0);
    CHECK_EQ(pthread_join(poster, NULL), 0);
    expect_wc(a->scq, 7, IBV_WC_SUCCESS);
    expect_none(a->scq);
}

/*
 * A CQ is resized step by step while another process fills it and a thread that sleeps between
 * events empties it: each message comes once, in order, and the sleeper is woken.
 */
#define MESSAGES 12000u
#define DEPTH    32

struct grown {
    struct side *s;
    _Atomic unsigned got;
};

static void *grow(void *arg)
{
    struct grown *g = arg;

    for (unsigned step = 1; step <= 12; step++) {
        while (g->got < step * (MESSAGES / 14))
            sched_yield();
        CHECK_EQ(ibv_resize_cq(g->s->rcq, DEPTH << step), 0);
    }
    return NULL;
}

PAIR(growing_under_a_process_that_sends, run_two)
ACTIVE(growing_under_a_process_that_sends)
{
    unsigned sent = 0;
    struct ibv_wc wc;

    side_join(s);
    for (unsigned done = 0; done < MESSAGES;) {
        if (sent < MESSAGES && sent - done < DEPTH)
            post_send(s, sent++, SEND, 0, 4, 0);
        if (ibv_poll_cq(s->scq, 1, &wc) == 0)
            continue;
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, done++);
    }
    side_leave(s);
}
PASSIVE(growing_under_a_process_that_sends)
{
    struct grown g = {.s = s};
    struct ibv_wc wc;

    s->cqe = s->max_wr = DEPTH;
    s->use_chan = true;
    s->min_rnr_timer = 1;
    side_open(s);
    for (unsigned k = 0; k < DEPTH; k++)
        post_recv(s, k, 0, 4);
    side_connect(s);
    pthread_t grower = spawn(grow, &g);
    for (;;) {
        CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
        while (ibv_poll_cq(s->rcq, 1, &wc) != 0) {
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            CHECK_EQ(wc.wr_id, g.got);
            post_recv(s, g.got + DEPTH, 0, 4);
            g.got++;
        }
        if (g.got == MESSAGES)
            break;
        take_event(s->chan);
    }
    CHECK_EQ(pthread_join(grower, NULL), 0);
    expect_none(s->rcq);
    side_leave(s);
}

static void *grow_once(void *arg)
{
    struct side *a = arg;

    CHECK_EQ(ibv_resize_cq(a->scq, a->scq->cqe * 4), 0);
    return NULL;
}

struct looker {
    struct ibv_cq *cq;
    _Atomic pid_t tid;
    _Atomic bool done;
};

static void *look_at_all(void *arg)
{
    struct looker *l = arg;
    struct ibv_wc wc;

    atomic_store(&l->tid, gettid());
    for (uint64_t i = 0; i < 4; i++) {
        CHECK_EQ(ibv_poll_cq(l->cq, 1, &wc), 1); /* not 0 */
        CHECK_EQ(wc.wr_id, i);
    }
    atomic_store(&l->done, true);
    return NULL;
}

/* Completions present before the resize are visible to a thread that polls or waits
 * meanwhile. */
LOOP(completions_stay_visible_during_resize, .stop = "grow", .a = {.cqe = 8})
{
    pthread_t other, poller;

    writes(a, 0, 4);
    struct looker looker = {.cq = a->scq};
    other = spawn(grow_once, a);
    wait_stopped(a->stop);
    poller = spawn(look_at_all, &looker);
    while (!atomic_load(&looker.done) &&
           !(atomic_load(&looker.tid) && thread_sleeps(atomic_load(&looker.tid))))
        sched_yield();
    go_on(a->stop, 0);
    CHECK_EQ(pthread_join(poller, NULL), 0);
    CHECK_EQ(pthread_join(other, NULL), 0);
    expect_none(a->scq);
}

/* Makes a CQ of the side's channel with an unfetched event. */
static struct ibv_qp *with_an_event(struct side *s, struct ibv_cq **cq)
{
    struct ibv_send_wr wr = {.opcode = SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

    *cq = ibv_create_cq(s->ctx, 4, NULL, s->chan, 0);
    CHECK(*cq);
    struct ibv_qp_init_attr qi = {
        .send_cq = *cq, .recv_cq = *cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    struct ibv_qp *qp = ibv_create_qp(s->pd, &qi);
    CHECK(qp);
    CHECK_EQ(ibv_modify_qp(qp, &err, IBV_QP_STATE), 0);
    CHECK_EQ(ibv_req_notify_cq(*cq, 0), 0);
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0); /* flushed at once */
    CHECK(readable(s->chan->fd, 0));
    return qp;
}

SIDE(events_go_with_their_queue, .a = {.use_chan = true})
{
    struct ibv_cq *cq[3];
    struct ibv_qp *qp[3];

    for (unsigned first = 0; first < 2; first++) { /* the only one, and one of several */
        for (unsigned i = 0; i <= 2 * first; i++)
            qp[i] = with_an_event(s, &cq[i]);
        CHECK_EQ(ibv_destroy_qp(qp[first]), 0);
        CHECK_EQ(ibv_destroy_cq(cq[first]), 0);
        for (unsigned i = 0; i < 2 * first; i++) {
            CHECK(readable(s->chan->fd, 0));
            struct ibv_cq *got = take_event(s->chan);
            CHECK(got == cq[0] || got == cq[2]);
        }
        CHECK(!readable(s->chan->fd, 0));
    }
    CHECK_EQ(ibv_destroy_qp(qp[0]), 0);
    CHECK_EQ(ibv_destroy_qp(qp[2]), 0);
    CHECK_EQ(ibv_destroy_cq(cq[0]), 0);
    CHECK_EQ(ibv_destroy_cq(cq[2]), 0);
}

/*
 * A place in a send queue is free when its completion has left the CQ, which has no more
 * places: posting while another thread polls overruns nothing. The post happens while the poll
 * writes the completion, whose memory is protected until then.
 */
static struct {
    struct side *s;
    struct ibv_wc *wc;
    int err;
} polled;

static void post_meanwhile(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    CHECK(info->si_addr == (void *)polled.wc);
    CHECK_EQ(mprotect(polled.wc, 4096, PROT_READ | PROT_WRITE), 0);
    polled.err =
        try_send(polled.s, 4, WRITE, 0, 8, IBV_SEND_SIGNALED, polled.s->raddr, polled.s->rkey);
}

LOOP(free_slot_has_left_cq, .a = {.cqe = 4, .max_wr = 4}, .unwatched = true)
{
    struct sigaction fault = {.sa_sigaction = post_meanwhile,
                              .sa_flags = SA_SIGINFO | SA_RESETHAND};

    for (unsigned i = 0; i < 4; i++)
        post_send(a, i, WRITE, 0, 8, 0);
    polled.s = a;
    polled.err = -1;
    polled.wc = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(polled.wc != MAP_FAILED);
    CHECK_EQ(sigaction(SIGSEGV, &fault, NULL), 0);
    CHECK_EQ(ibv_poll_cq(a->scq, 1, polled.wc), 1);
    CHECK(polled.wc->wr_id == 0 && polled.wc->status == IBV_WC_SUCCESS);
    CHECK(polled.err == 0 || polled.err == ENOMEM); /* the place is free, or not yet */
    for (unsigned i = 1; i < (polled.err ? 4 : 5); i++)
        expect_wc(a->scq, i, IBV_WC_SUCCESS);
    expect_none(a->scq);
    CHECK_EQ(qp_state(a), IBV_QPS_RTS);
    CHECK_EQ(munmap(polled.wc, 4096), 0);
}
