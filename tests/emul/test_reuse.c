/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Order of accesses to the same memory, and reused slots of queues whose former users have not
 * completely ended. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/emul/cm_help.h"

#define SMALL 256u

/* ---- Order ---- */

/* A request behind a small message on its QP finds the message in memory, without a poll. */
static void behind_a_send(struct side *a, struct side *b, enum ibv_wr_opcode op, uint32_t rkey)
{
    const unsigned left = op == WRITE ? 2 : 1;

    pattern(a->buf, SMALL, 1);
    pattern(a->buf + SMALL, SMALL, 2);
    post_recv(b, 1, 0, SMALL);
    post_send(a, 2, SEND, 0, SMALL, 0);
    post_to(a, 3, op, SMALL, SMALL, (uintptr_t)b->buf, rkey);
    expect_wc(a->scq, 2, IBV_WC_SUCCESS);
    expect_wc(a->scq, 3, IBV_WC_SUCCESS);
    CHECK(is_pattern(a->buf + SMALL, SMALL, left));
    expect_wc(b->rcq, 1, IBV_WC_SUCCESS);
    CHECK(is_pattern(b->buf, SMALL, left));
}

LOOP(write_behind_send_overwrites_message)
{
    behind_a_send(a, b, WRITE, b->mr->rkey);
}

LOOP(read_behind_send_sees_message)
{
    behind_a_send(a, b, READ, b->mr->rkey);
}

/* A window opens memory that was registered for local access only. */
LOOP(window_write_behind_send_overwrites_message,
     .b = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND})
{
    struct ibv_mw *mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
    struct ibv_send_wr *bad,
        bind = {.wr_id = 9, .send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_BIND_MW};

    CHECK(mw);
    bind.bind_mw.mw = mw;
    bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    bind.bind_mw.bind_info =
        (struct ibv_mw_bind_info){b->mr, (uintptr_t)b->buf, 2 * SMALL, IBV_ACCESS_REMOTE_WRITE};
    CHECK_EQ(ibv_post_send(b->qp, &bind, &bad), 0);
    expect_wc(b->scq, 9, IBV_WC_SUCCESS);
    behind_a_send(a, b, WRITE, bind.bind_mw.rkey);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

/* ---- A peer without a processor ---- */

/* Simulates the kernel's CPU time of a process. */
enum { CPU_CLOCK = 77 };
static _Atomic uint64_t cpu_ns;

__attribute__((visibility("default"))) int clock_getcpuclockid(pid_t pid, clockid_t *clock)
{
    (void)pid;
    *clock = CPU_CLOCK;
    return 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CPU_CLOCK)
        return (int)syscall(SYS_clock_gettime, clock, t);
    *t = (struct timespec){.tv_nsec = (long)cpu_ns};
    return 0;
}

static void step_while_it_runs(int ms)
{
    for (int i = 0; i < ms; i++) {
        cpu_ns++;
        clock_step_ms(1);
    }
}

/* The peer is runnable: time counts only while it runs. */
PAIR(retries_pause_while_peer_is_descheduled, run_two)
ACTIVE(retries_pause_while_peer_is_descheduled)
{
    enum { BOUND = 50 };

    setenv("EMUVERBS_RETRY_MAX_MS", "50", 1);
    side_join(s);
    meet(s);
    CHECK_EQ(read(s->sock, s->buf, 1), 1); /* the peer spins */
    clock_stop();
    post_send(s, 1, SEND, 0, 8, 0);
    for (int i = 0; i < 4 * BOUND; i++) {
        clock_step_ms(1);
        expect_none(s->scq);
    }
    step_while_it_runs(BOUND + 1);
    expect_wc(s->scq, 1, IBV_WC_RETRY_EXC_ERR);
    clock_run();
    CHECK_EQ(write(s->sock, "e", 1), 1);
    side_leave(s);
}
PASSIVE(retries_pause_while_peer_is_descheduled)
{
    side_join(s);
    CHECK_EQ(qp_error(s), 0);
    meet(s);
    CHECK_EQ(write(s->sock, "s", 1), 1);
    while (!readable(s->sock, 0))
        ;
    CHECK_EQ(read(s->sock, s->buf, 1), 1);
    side_leave(s);
}

/* A request to a port without a listener is not rejected before the process that will listen
 * has run; here it spins. */
PAIR(request_waits_for_descheduled_listener, run_two)
ACTIVE(request_waits_for_descheduled_listener)
{
    enum { WAIT = 50, LOOKS = 20 };
    struct rdma_conn_param p = {.retry_count = 7};
    char byte;

    setenv("EMUVERBS_LISTEN_WAIT_MS", "50", 1);
    struct rdma_cm_id *id = new_id(NULL);
    resolve(id, "127.0.0.1", PORT);
    give_qp(id);
    meet(s);
    CHECK_EQ(read(s->sock, &byte, 1), 1);
    clock_stop();
    CHECK_EQ(rdma_connect(id, &p), 0);
    for (int i = 0; i < 4 * WAIT; i++)
        clock_step_ms(1);
    CHECK(!readable(chan->fd, 0));
    step_while_it_runs(WAIT - LOOKS);
    CHECK(!readable(chan->fd, 0)); /* its timeout begins when it first runs */
    step_while_it_runs(2 * LOOKS);
    CHECK_EQ(eat(RDMA_CM_EVENT_REJECTED), 8);
    clock_run();
    CHECK_EQ(write(s->sock, "e", 1), 1);
    meet(s);
    finished(id, NULL);
}
PASSIVE(request_waits_for_descheduled_listener)
{
    struct rdma_cm_id *id = new_id(NULL);
    char byte;

    meet(s);
    CHECK_EQ(write(s->sock, "s", 1), 1);
    while (!readable(s->sock, 0))
        ;
    CHECK_EQ(read(s->sock, &byte, 1), 1);
    meet(s);
    finished(id, NULL);
}

/* ---- Owner of the memory ---- */

/* A read into memory that its owner has made read-only fails at the owner, not at the peer. */
LOOP(read_into_read_only_memory_fails_locally, .unwatched = true)
{
    CHECK_EQ(mprotect(a->buf + 8192, 4096, PROT_READ), 0);
    post_to(a, 1, READ, 4096, 8192, (uintptr_t)b->buf, b->mr->rkey);
    expect_wc(a->scq, 1, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(qp_state(b), IBV_QPS_RTS);
    CHECK_EQ(mprotect(a->buf + 8192, 4096, PROT_READ | PROT_WRITE), 0);
}

/* ---- Reused slots ---- */

static void *destroy_qp(void *arg)
{
    CHECK_EQ(ibv_destroy_qp(arg), 0);
    return NULL;
}

/* Opens a side whose queues get the slots that are freed meanwhile. */
static void open_when_there_is_room(struct side *s)
{
    struct side probe = {0};
    struct ibv_qp_init_attr qi = {.qp_type = IBV_QPT_RC,
                                  .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
    struct ibv_device **list = ibv_get_device_list(NULL);

    probe.ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    CHECK(probe.ctx);
    probe.pd = ibv_alloc_pd(probe.ctx);
    qi.send_cq = qi.recv_cq = ibv_create_cq(probe.ctx, 4, NULL, NULL, 0);
    CHECK(probe.pd && qi.send_cq);
    while ((probe.qp = ibv_create_qp(probe.pd, &qi)) == NULL)
        usleep(1000);
    CHECK_EQ(ibv_destroy_qp(probe.qp), 0);
    CHECK_EQ(ibv_destroy_cq(qi.send_cq), 0);
    CHECK_EQ(ibv_dealloc_pd(probe.pd), 0);
    CHECK_EQ(ibv_close_device(probe.ctx), 0);
    side_open(s);
}

/* The end of a QP waits for the acknowledgement of its event. A new QP has its slot by then,
 * whose receives stay. */
TEST(qp_in_reused_slot_keeps_receives)
{
    struct side a = {0}, b = {0}, c = {0}, d = {0};
    struct ibv_async_event event;

    CHECK_EQ(setenv("EMUVERBS_MAX_QP", "3", 1), 0);
    loop_open(&a, &b);
    side_open(&c);
    post_send(&a, 1, WRITE, 0, 8, BUF_SIZE); /* beyond its end */
    CHECK(wait_wc(a.scq).status != IBV_WC_SUCCESS);
    CHECK_EQ(ibv_get_async_event(b.ctx, &event), 0);
    CHECK(event.element.qp == b.qp);
    pthread_t thread = spawn(destroy_qp, b.qp);
    b.qp = NULL;
    open_when_there_is_room(&d);
    join_sides(&c, &d);
    post_recv(&d, 2, 64, 8192);
    ibv_ack_async_event(&event);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    pattern(c.buf, 8192, 3);
    post_to(&c, 3, SEND, 0, 8192, 0, 0);
    expect_wc(c.scq, 3, IBV_WC_SUCCESS);
    expect_wc(d.rcq, 2, IBV_WC_SUCCESS);
    CHECK(is_pattern(d.buf + 64, 8192, 3));
    _exit(0);
}
