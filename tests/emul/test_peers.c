/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The software HCA between processes: passive, stopped and killed peers, wake-ups, load. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

PAIR(stopped_process_serves_rdma, run_two)
ACTIVE(stopped_process_serves_rdma)
{
    side_join(s);
    meet(s);
    CHECK(process_stop(s->peer));
    memset(s->buf, 0x42, 100000);
    post_done(s, WRITE, 0, 100000, 0);
    memset(s->buf, 0, 100000);
    post_done(s, READ, 0, 100000, 0);
    for (int i = 0; i < 100000; i++)
        CHECK_EQ(s->buf[i], 0x42);
    memset(s->buf, 7, 100);
    post_send(s, 3, SEND, 0, 100, 0);
    post_send(s, 4, WIMM, 0, 100, 200000);
    post_send(s, 5, SEND, 0, 9000, 0);
    for (unsigned i = 3; i < 6; i++)
        expect_wc(s->scq, i, IBV_WC_SUCCESS);
    kill(s->peer, SIGCONT);
    side_leave(s);
}
PASSIVE(stopped_process_serves_rdma)
{
    side_open(s);
    for (unsigned i = 0; i < 3; i++)
        post_recv(s, i, 300000 + 10000 * i, 10000);
    side_connect(s);
    meet(s);
    meet(s);
    expect_wc(s->rcq, 0, IBV_WC_SUCCESS);
    CHECK_EQ(s->buf[300000], 7);
    CHECK_EQ(expect_wc(s->rcq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK_EQ(expect_wc(s->rcq, 2, IBV_WC_SUCCESS).byte_len, 9000);
    CHECK_EQ(s->buf[200000], 7);
    side_close(s);
}

PAIR(killed_peer_ends_requests, run_two_kill)
ACTIVE(killed_peer_ends_requests)
{
    s->rnr_retry = 7;
    side_join(s);
    post_send(s, 1, SEND, 0, 8, 0); /* without a receive: waits */
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    expect_wc(s->scq, 1, IBV_WC_RETRY_EXC_ERR);
    post_recv(s, 3, 0, 8);
    post_send(s, 2, WRITE, 0, 8, 0);
    expect_wc(s->scq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_wc(s->rcq, 3, IBV_WC_WR_FLUSH_ERR);
    side_close(s);
}
PASSIVE(killed_peer_ends_requests)
{
    side_join(s);
    pause_forever();
}

PAIR(kill_in_the_middle_of_traffic, run_two_kill)
ACTIVE(kill_in_the_middle_of_traffic)
{
    struct ibv_wc wc;
    uint64_t n = 0;
    bool alive = true;

    s->rnr_retry = 7;
    s->min_rnr_timer = 1;
    side_join(s);
    while (alive) {
        int err = try_send(s, n, n & 1 ? SEND : WRITE, 0, n % 3 ? 64 : 20000, IBV_SEND_SIGNALED,
                           s->raddr, s->rkey);
        CHECK(err == 0 || err == ENOMEM);
        n += !err;
        if (n == 2000)
            kill(s->peer, SIGKILL);
        while (ibv_poll_cq(s->scq, 1, &wc) > 0)
            if (wc.status != IBV_WC_SUCCESS) {
                CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
                alive = false;
                break;
            }
    }
    CHECK_EQ(qp_state(s), IBV_QPS_ERR);
    side_close(s);
}
PASSIVE(kill_in_the_middle_of_traffic)
{
    s->min_rnr_timer = 1;
    side_join(s);
    for (unsigned i = 0; i < 60; i++)
        post_recv(s, i, 0, 65536);
    for (;;) {
        expect_wc(s->rcq, 0, IBV_WC_SUCCESS);
        for (unsigned i = 1; i < 60; i++)
            expect_wc(s->rcq, i, IBV_WC_SUCCESS);
        for (unsigned i = 0; i < 60; i++)
            post_recv(s, i, 0, 65536);
    }
}

static void sleep_for(struct side *s, uint64_t id)
{
    struct ibv_wc wc;

    /* the usual loop: arm, poll again, sleep; a lost wake-up would hang it */
    for (;;) {
        int n = ibv_poll_cq(s->rcq, 1, &wc);
        CHECK(n >= 0);
        if (n == 1) {
            CHECK_EQ(wc.wr_id, id);
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            return;
        }
        CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
        n = ibv_poll_cq(s->rcq, 1, &wc);
        if (n == 1) {
            CHECK_EQ(wc.wr_id, id);
            return;
        }
        take_event(s->chan);
    }
}

PAIR(silent_process_is_not_reached, run_two)
ACTIVE(silent_process_is_not_reached)
{
    side_join(s);
    post_send(s, 1, WRITE, 0, 8, 0);
    expect_wc(s->scq, 1, IBV_WC_RETRY_EXC_ERR);
    side_leave(s);
}
PASSIVE(silent_process_is_not_reached)
{
    setenv("EMUVERBS_SILENT", "1", 1);
    side_join(s);
    side_leave(s);
}

/*
 * When the reply to a message has arrived, the message's own completion is visible, also in
 * another thread than the poster's. All on one processor: the poster loses it when it wakes the
 * peer.
 */
struct poster {
    struct side *s;
    sem_t go;
    unsigned rounds;
};
static void *post_when_told(void *arg)
{
    struct poster *p = arg;

    for (unsigned i = 0; i < p->rounds; i++) {
        uint32_t length = i % 8 ? 16 : 9000; /* also messages that bypass the segment */
        while (sem_wait(&p->go))
            ;
        post_send(p->s, i, i % 3 ? SEND : WIMM, 0, length, 100000);
    }
    return NULL;
}
static void on_one_processor(void)
{
    cpu_set_t cpus;

    CHECK_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    for (int first = 0, cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus) && first++)
            CPU_CLR(cpu, &cpus);
    CHECK_EQ(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
}
PAIR(reply_does_not_overtake_its_completion, run_two)
ACTIVE(reply_does_not_overtake_its_completion)
{
    struct poster p = {.s = s, .rounds = 10000};
    struct ibv_wc wc;

    on_one_processor();
    s->use_chan = true;
    side_open(s);
    post_recv(s, 0, 65536, 64);
    side_connect(s);
    CHECK_EQ(sem_init(&p.go, 0, 0), 0);
    pthread_t thread = spawn(post_when_told, &p);
    for (unsigned i = 0; i < p.rounds; i++) {
        sem_post(&p.go);
        sleep_for(s, i);
        if (ibv_poll_cq(s->scq, 1, &wc) != 1) {
            fprintf(stderr, "the reply to message %u was there before its completion\n", i);
            _exit(1);
        }
        CHECK_EQ(wc.wr_id, i);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        post_recv(s, i + 1, 65536, 64);
    }
    pthread_join(thread, NULL);
    side_leave(s);
}
PASSIVE(reply_does_not_overtake_its_completion)
{
    on_one_processor();
    s->use_chan = true;
    side_open(s);
    post_recv(s, 0, 65536, 16384);
    side_connect(s);
    for (unsigned i = 0; i < 10000; i++) {
        sleep_for(s, i);
        post_recv(s, i + 1, 65536, 16384);
        post_done(s, SEND, 0, 16, 0);
    }
    side_leave(s);
}

static void write_until_refused(struct side *s)
{
    struct ibv_wc wc = {0};

    for (uint64_t i = 0; wc.status == IBV_WC_SUCCESS; i++) {
        post_send(s, i, WRITE, 0, BUF_SIZE, 0);
        wc = wait_wc(s->scq);
    }
    CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
}
static void spin_until_written(struct side *s)
{
    while (*(volatile unsigned char *)(s->buf + BUF_SIZE - 1) != 0xee)
        ;
}

/* Deregistration and invalidation end behind the last write. */
enum { DEREG, INVALIDATE, WAYS, TIMES = 20 };

static void post_alone(struct side *s, struct ibv_send_wr wr)
{
    struct ibv_send_wr *bad;

    wr.send_flags = IBV_SEND_SIGNALED;
    CHECK_EQ(ibv_post_send(s->qp, &wr, &bad), 0);
    expect_wc(s->scq, wr.wr_id, IBV_WC_SUCCESS);
}

static void change(struct side *s, int way, uint32_t key)
{
    if (way == INVALIDATE) {
        post_alone(s, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
        return;
    }
    CHECK_EQ(ibv_dereg_mr(s->mr), 0);
    s->mr = NULL;
}

PAIR(memory_changes_wait_for_remote_writes, run_two)
ACTIVE(memory_changes_wait_for_remote_writes)
{
    for (int i = 0; i < WAYS * TIMES; i++) {
        side_join(s);
        CHECK_EQ(read(s->sock, &s->rkey, sizeof(s->rkey)), sizeof(s->rkey));
        memset(s->buf, 0xee, BUF_SIZE);
        write_until_refused(s);
        side_leave(s);
    }
}
PASSIVE(memory_changes_wait_for_remote_writes)
{
    for (int i = 0; i < WAYS * TIMES; i++) {
        s->access = RIGHTS | IBV_ACCESS_MW_BIND;
        side_join(s);
        struct ibv_mw *mw = ibv_alloc_mw(s->pd, IBV_MW_TYPE_2);
        CHECK(mw);
        uint32_t key = i % WAYS == INVALIDATE ? ibv_inc_rkey(mw->rkey) : s->mr->rkey;
        struct ibv_mw_bind_info info = {s->mr, (uintptr_t)s->buf, BUF_SIZE,
                                        IBV_ACCESS_REMOTE_WRITE};
        if (i % WAYS == INVALIDATE)
            post_alone(
                s, (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW, .bind_mw = {mw, key, info}});
        clock_stop(); /* users of the memory do not time out */
        CHECK_EQ(write(s->sock, &key, sizeof(key)), sizeof(key));
        spin_until_written(s);
        change(s, i % WAYS, key);
        memset(s->buf, 0, BUF_SIZE);
        meet(s);
        for (int k = 0; k < BUF_SIZE; k++)
            CHECK_EQ(s->buf[k], 0);
        CHECK_EQ(ibv_dealloc_mw(mw), 0);
        side_close(s);
    }
}

/*
 * A stopped poster must not block deregistration of memory that it writes to, either, although
 * another peer runs. The poster most likely stops in the middle of a copy, with the
 * registration referenced.
 */
enum { STOPPED_WRITERS = 8 };
/* Starts a third process that stays connected and running until synchronized with. */
static pid_t bystander(struct side *s)
{
    int sv[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    s->sock = sv[pid == 0];
    close(sv[pid != 0]);
    side_join(s);
    if (pid == 0) {
        side_leave(s);
        exit(0);
    }
    return pid;
}
PAIR(deregistering_while_the_writer_is_stopped, run_two)
ACTIVE(deregistering_while_the_writer_is_stopped)
{
    struct side other = {0};
    pid_t pid = bystander(&other);
    int st;

    side_open(s);
    for (int i = 0; i < STOPPED_WRITERS; i++) {
        side_reset(s);
        side_connect(s);
        spin_until_written(s);
        CHECK(process_stop(s->peer));
        CHECK_EQ(dereg_by_looks(s->mr, 0), 0);
        kill(s->peer, SIGCONT);
        meet(s); /* the last write is complete */
        memset(s->buf, 0, BUF_SIZE);
        s->mr = ibv_reg_mr(s->pd, s->buf, BUF_SIZE,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        CHECK(s->mr);
    }
    CHECK_EQ(counter("drains_given_up"), 0);
    side_close(s);
    side_leave(&other);
    CHECK_EQ(waitpid(pid, &st, 0), pid);
    CHECK_EQ(st, 0);
}
PASSIVE(deregistering_while_the_writer_is_stopped)
{
    side_open(s);
    memset(s->buf, 0xee, BUF_SIZE);
    for (int i = 0; i < STOPPED_WRITERS; i++) {
        side_reset(s);
        side_connect(s);
        write_until_refused(s);
        meet(s);
    }
    side_close(s);
}

/* Repeatedly: the poster is stopped at a random instruction, or at a step; its peer fails the
 * QP and must get each receive back exactly once, also after the poster has continued. */
PAIR(stop_and_go, run_two)
enum { ROUNDS = 40, RECVS = 60 };
static void reconnect(struct side *s)
{
    side_reset(s);
    for (unsigned i = 0; i < RECVS; i++)
        post_recv(s, i, 0, 65536);
    side_connect(s);
}
static void collect(struct side *s, unsigned *got, unsigned *seen)
{
    struct ibv_wc wc;
    int n = ibv_poll_cq(s->rcq, 1, &wc);

    CHECK(n >= 0);
    if (n) {
        CHECK(wc.wr_id < RECVS);
        CHECK_EQ(seen[wc.wr_id], 0);
        seen[wc.wr_id]++;
        ++*got;
    }
}
static void fail_under_the_stopped(struct side *s, bool at_steps)
{
    side_open(s);
    for (unsigned r = 0; r < ROUNDS; r++) {
        unsigned got = 0, seen[RECVS] = {0};
        reconnect(s);
        if (at_steps)
            wait_stopped(s->stop);
        while (!at_steps && got < 1 + r % 40)
            collect(s, &got, seen);
        CHECK(process_stop(s->peer));
        CHECK_EQ(qp_error(s), 0);
        while (got < RECVS)
            collect(s, &got, seen);
        CHECK_EQ(counter("posters_given_up"), 0);
        kill(s->peer, SIGCONT);
        if (at_steps)
            go_on(s->stop, (unsigned char)(3 + 5 * r % 70)); /* odd and even in turn */
        meet(s);
        expect_none(s->rcq);
    }
    side_close(s);
}
ACTIVE(stop_and_go)
{
    fail_under_the_stopped(s, false);
}
PASSIVE(stop_and_go)
{
    struct ibv_wc wc;

    setenv("EMUVERBS_RETRY_MAX_MS", "20", 1);
    s->min_rnr_timer = 1;
    side_open(s);
    for (unsigned r = 0; r < ROUNDS; r++) {
        bool up = true;
        reconnect(s);
        for (uint64_t i = 0; up; i++) {
            try_send(s, i, SEND, 0, i % 8 ? 64 : 50000, IBV_SEND_SIGNALED, 0, 0);
            while (ibv_poll_cq(s->scq, 1, &wc) > 0)
                up = up && wc.status == IBV_WC_SUCCESS;
        }
        meet(s);
    }
    side_close(s);
}

/* The same, stopped just before or after it takes a receive, in turn. */
PAIR(stop_while_a_receive_is_taken, run_two)
ACTIVE(stop_while_a_receive_is_taken)
{
    fail_under_the_stopped(s, true);
}
PASSIVE(stop_while_a_receive_is_taken)
{
    stop_at(s, "take,taken:1");
    stop_and_go_passive(s);
}
