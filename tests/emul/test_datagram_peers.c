/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Datagrams of the software HCA between processes, some of them stopped or killed. */
#include <signal.h>
#include <sys/resource.h>

#include "tests/emul/datagrams.h"
#include "tests/emul/stop.h"

static const uint32_t sizes[] = {0, 1, 63, 64, 1000, 4055, 4056, 4057, 4096};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))
#define ROUNDS 400

static void ping_pong(struct side *s)
{
    const bool first = s->peer != 0; /* the active one */

    open_ud(s);
    struct address other = meet_address(s);
    struct ibv_ah *ah = handle(s, other.gid, 1);
    post_recv(s, 0, 65536, HEADER + 4096);
    meet(s);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t n = sizes[i % NSIZES];
        pattern(s->buf, n, i + first);
        if (first)
            datagram(s, i, ah, other.qpn, 0, n);
        struct ibv_wc wc = expect_wc(s->rcq, i, IBV_WC_SUCCESS);
        CHECK_EQ(wc.byte_len, HEADER + n);
        CHECK_EQ(wc.src_qp, other.qpn);
        CHECK(is_pattern(s->buf + 65536 + HEADER, n, i + !first));
        post_recv(s, i + 1, 65536, HEADER + 4096);
        if (!first)
            datagram(s, i, ah, other.qpn, 0, n);
    }
    CHECK_EQ(counter("datagrams_lost"), 0);
    meet(s);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(s);
}
TWO(datagrams_of_each_size_arrive, run_two, ping_pong, ping_pong)

/* Several senders to one QP wait for each other: nothing is lost by that. */
#define EACH 250

struct sender {
    struct side *s;
    struct ibv_qp *qp;
    struct ibv_ah *ah;
    uint32_t to;
};

static void *send_many(void *arg)
{
    struct sender *t = arg;

    for (uint32_t i = 0; i < EACH; i++)
        while (try_from(t->s, t->qp, i, t->ah, t->to, 0, i, IBV_SEND_SIGNALED)) {
            struct ibv_wc wc;
            CHECK(ibv_poll_cq(t->s->scq, 1, &wc) >= 0);
        }
    return NULL;
}

PAIR(many_senders, run_two)
ACTIVE(many_senders)
{
    struct sender t[2];
    pthread_t thread[2];

    open_ud(s);
    struct address other = meet_address(s);
    struct ibv_ah *ah = handle(s, other.gid, 1);
    clock_stop(); /* so that a sender's wait for its turn does not time out */
    meet(s);
    for (int i = 0; i < 2; i++) {
        t[i] = (struct sender){s, ud_qp(s, NULL, 0), ah, other.qpn};
        thread[i] = spawn(send_many, &t[i]);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
        CHECK_EQ(ibv_destroy_qp(t[i].qp), 0);
    }
    CHECK_EQ(counter("datagrams_lost"), 0);
    meet(s);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(s);
}
PASSIVE(many_senders)
{
    open_ud(s);
    for (int i = 0; i < 3 * EACH; i++)
        post_recv(s, (uint64_t)i, 65536, 1024);
    meet_address(s);
    struct ibv_ah *ah = handle(s, gid_of(s), 1);
    struct sender own = {s, ud_qp(s, NULL, 0), ah, s->qp->qp_num};
    clock_stop();
    meet(s);
    send_many(&own);
    for (int i = 0; i < 3 * EACH; i++)
        CHECK_EQ(wait_wc(s->rcq).status, IBV_WC_SUCCESS);
    expect_none(s->rcq);
    meet(s);
    CHECK_EQ(counter("datagrams_lost"), 0);
    CHECK_EQ(ibv_destroy_qp(own.qp), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(s);
}

/* A sender killed in the middle blocks no other, and each receive ends once. */
enum death { WITHOUT, WITH };
static void kill_after(struct side *s, unsigned first, enum death death)
{
    unsigned char seen[1024] = {0};
    struct ibv_wc wc;
    unsigned n = 0, flushed = 0;
    bool through = false;

    open_ud(s);
    for (uint64_t i = 0; i < 924; i++)
        post_recv(s, i, 65536, 8192);
    meet_address(s);
    struct ibv_ah *ah = handle(s, gid_of(s), 1);
    meet(s);
    for (; n < first; n++) {
        wc = wait_wc(s->rcq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(seen[wc.wr_id]++, 0);
    }
    wait_stopped(s->stop);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    for (uint64_t i = 924; i < 1024; i++) /* it may have used all others */
        post_recv(s, i, 65536, 8192);
    /* there are its messages until it died, and at most one receive that it held */
    for (uint64_t end = now_ms() + 60000; n < 1024;) {
        CHECK(now_ms() < end);
        datagram(s, 7, ah, s->qp->qp_num, 0, 5);
        for (; ibv_poll_cq(s->rcq, 1, &wc) == 1; n++) {
            CHECK_EQ(seen[wc.wr_id]++, 0);
            flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
            CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
            through = through || (wc.status == IBV_WC_SUCCESS && wc.src_qp == s->qp->qp_num);
        }
    }
    CHECK(through);
    CHECK_EQ(flushed, death == WITH);
    expect_none(s->rcq);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(s);
}

static void send_until_killed(struct side *s)
{
    open_ud(s);
    struct address other = meet_address(s);
    struct ibv_ah *ah = handle(s, other.gid, 1);
    meet(s);
    for (uint64_t i = 0;; i++) {
        datagram(s, i, ah, other.qpn, 0, (uint32_t)i % 4097);
        if (i >= 800)
            sched_yield(); /* all receives are used up */
    }
}

/* The same, killed just before or after it took a receive. */
PAIR(killed_before_a_receive, run_two_kill)
ACTIVE(killed_before_a_receive)
{
    kill_after(s, 5, WITHOUT);
}
PASSIVE(killed_before_a_receive)
{
    stop_at(s, "take:6");
    send_until_killed(s);
}
PAIR(killed_with_a_receive, run_two_kill)
ACTIVE(killed_with_a_receive)
{
    kill_after(s, 5, WITH);
}
PASSIVE(killed_with_a_receive)
{
    stop_at(s, "taken:6");
    send_until_killed(s);
}

/* Sends to the own QP until a datagram arrives. */
static void get_through(struct side *s)
{
    struct ibv_ah *ah = handle(s, gid_of(s), 1);
    uint64_t end = now_ms() + 60000;
    bool through = false;
    struct ibv_wc wc;

    while (!through) {
        CHECK(now_ms() < end);
        datagram(s, 7, ah, s->qp->qp_num, 0, 5);
        while (ibv_poll_cq(s->rcq, 1, &wc) == 1)
            through = through || (wc.status == IBV_WC_SUCCESS && wc.src_qp == s->qp->qp_num);
    }
    CHECK_EQ(ibv_destroy_ah(ah), 0);
}

static void kill_peer(struct side *s)
{
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    while (!process_is_dead(s->peer))
        usleep(1000);
}

/*
 * Two threads of one process send their first datagrams. The thread that greets the receiver
 * stops before its greeting is in the inbox, whose pages are protected. The other must not
 * continue without a greeting: the process is killed while that thread holds the receiver's QP.
 */

static void *send_first(void *arg)
{
    struct sender *t = arg;

    try_from(t->s, t->qp, 1, t->ah, t->to, 0, 8, IBV_SEND_SIGNALED);
    return NULL;
}

/* The receiver has no descriptor when it is greeted, and detects the sender's death later. */
PAIR(greeted_without_a_descriptor, run_two_kill)
ACTIVE(greeted_without_a_descriptor)
{
    open_ud(s);
    for (unsigned i = 0; i < 8; i++)
        post_recv(s, i, 65536, 1024);
    meet_address(s);
    struct rlimit limit = leave_descriptors(0);
    meet(s);
    wait_stopped(s->stop); /* the sender holds the QP */
    settle();
    limit_descriptors(&limit);
    kill_peer(s);
    get_through(s);
    side_close(s);
}
PASSIVE(greeted_without_a_descriptor)
{
    stop_at(s, "take");
    open_ud(s);
    struct address other = meet_address(s);
    struct sender t = {s, s->qp, handle(s, other.gid, 1), other.qpn};
    meet(s);
    send_first(&t);
    pause_forever();
}

/* A stopped receiver gets its datagrams, like all other messages. */
PAIR(stopped_receiver, run_two)
ACTIVE(stopped_receiver)
{
    open_ud(s);
    struct address other = meet_address(s);
    struct ibv_ah *ah = handle(s, other.gid, 1);
    meet(s);
    datagram(s, 1, ah, other.qpn, 0, 8); /* greets the other process */
    meet(s);
    CHECK(process_stop(s->peer));
    datagram(s, 2, ah, other.qpn, 0, 8);
    CHECK_EQ(counter("datagrams_lost"), 0);
    datagram(s, 3, ah, other.qpn, 0, 8);
    CHECK_EQ(counter("datagrams_lost"), 1);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    meet(s);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(s);
}
PASSIVE(stopped_receiver)
{
    open_ud(s);
    post_recv(s, 1, 65536, 100);
    post_recv(s, 2, 65536, 100);
    meet_address(s);
    meet(s);
    expect_wc(s->rcq, 1, IBV_WC_SUCCESS);
    meet(s);
    expect_wc(s->rcq, 2, IBV_WC_SUCCESS);
    side_leave(s);
}
