/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unreliable connections: delivery, loss, and which side is notified. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

/* Opens a side and gives it a UC QP in INIT. */
static void uc_open(struct side *s)
{
    side_open(s);
    struct ibv_qp_init_attr qi = {
        .send_cq = s->scq, .recv_cq = s->rcq, .qp_type = IBV_QPT_UC, .cap = {16, 16, 2, 2, 32}};
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    s->qp = ibv_create_qp(s->pd, &qi);
    CHECK(s->qp);
    CHECK_EQ(qp_init(s), 0);
}

#define RTR (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static int uc_rtr(struct side *s, uint32_t dest, int mask)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = dest,
                            .ah_attr = {.dlid = 1, .port_num = 1}};

    return ibv_modify_qp(s->qp, &a, mask);
}

static int uc_rts(struct side *s, int mask)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};

    return ibv_modify_qp(s->qp, &a, mask);
}

static void uc_join(struct side *s, struct side *to)
{
    CHECK_EQ(uc_rtr(s, to->qp->qp_num, RTR), 0);
    CHECK_EQ(uc_rts(s, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    s->raddr = (uintptr_t)to->buf;
    s->rkey = to->mr->rkey;
}

static void uc_loop(struct side *a, struct side *b)
{
    uc_open(a);
    uc_open(b);
    uc_join(a, b);
    uc_join(b, a);
    pattern(a->buf, 4096, 3);
}

static void sent(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t len,
                 uint64_t roff)
{
    post_send(s, id, op, 0, len, roff);
    expect_wc(s->scq, id, IBV_WC_SUCCESS);
}

/* Checks that both are in RTS, without completions. */
static void all_quiet(struct side *a, struct side *b)
{
    CHECK_EQ(qp_state(a), IBV_QPS_RTS);
    CHECK_EQ(qp_state(b), IBV_QPS_RTS);
    expect_none(a->scq);
    expect_none(b->rcq);
    CHECK(!readable(b->ctx->async_fd, 0));
}

/* The sender does not wait for a receive, and the next message gets the next one. */
TEST(message_without_receive_is_lost)
{
    struct side a = {0}, b = {0};
    int64_t lost = counter("datagrams_lost");

    uc_loop(&a, &b);
    sent(&a, 1, SEND, 64, 0);
    sent(&a, 2, WIMM, 64, 8192);
    CHECK_EQ(b.buf[8193], 0);
    post_recv(&b, 7, 0, 4096);
    all_quiet(&a, &b);
    CHECK_EQ(counter("datagrams_lost"), lost + 2);
    sent(&a, 3, SEND, 8, 0);
    CHECK_EQ(expect_wc(b.rcq, 7, IBV_WC_SUCCESS).byte_len, 8);
    all_quiet(&a, &b);
    loop_close(&a, &b);
}

/* A write without permission has no effect and is not reported. */
TEST(write_without_permission_is_lost)
{
    struct side a = {0}, b = {0};

    uc_loop(&a, &b);
    a.rkey ^= 1;
    sent(&a, 1, WRITE, 64, 0);
    a.rkey ^= 1;
    sent(&a, 2, WRITE, 64, BUF_SIZE - 32);
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    uint32_t rkey = a.rkey;
    a.rkey = mr->rkey;
    sent(&a, 3, WRITE, 64, 0);
    a.rkey = rkey;
    struct ibv_qp_attr none = {.qp_access_flags = 0};
    CHECK_EQ(ibv_modify_qp(b.qp, &none, IBV_QP_ACCESS_FLAGS), 0);
    sent(&a, 4, WRITE, 64, 0);
    none.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    CHECK_EQ(ibv_modify_qp(b.qp, &none, IBV_QP_ACCESS_FLAGS), 0);
    CHECK(b.buf[1] == 0 && b.buf[BUF_SIZE - 1] == 0);
    all_quiet(&a, &b);
    sent(&a, 5, WRITE, 64, 0);
    CHECK(is_pattern(b.buf, 64, 3));
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    loop_close(&a, &b);
}

/* A receive that is too small is its owner's error, and fails only the owner's side. */
TEST(short_receive_fails_its_owner)
{
    struct side a = {0}, b = {0};

    uc_loop(&a, &b);
    post_recv(&b, 7, 0, 8);
    post_recv(&b, 8, 0, 4096);
    sent(&a, 1, SEND, 64, 0);
    expect_wc(b.rcq, 7, IBV_WC_LOC_LEN_ERR);
    expect_wc(b.rcq, 8, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(qp_state(&b), IBV_QPS_ERR);
    CHECK_EQ(qp_state(&a), IBV_QPS_RTS);
    sent(&a, 2, SEND, 64, 0); /* the peer's side has failed */
    CHECK_EQ(qp_state(&a), IBV_QPS_RTS);
    loop_close(&a, &b);
}

/* So does memory that was unmapped after registration: the receiver is not involved. */
TEST(unmapped_memory_fails_sender_only)
{
    for (unsigned k = 0; k < 3; k++) {
        struct side a = {0}, b = {0};

        uc_loop(&a, &b);
        post_recv(&b, 1, 0, 65536);
        CHECK(mmap(a.buf, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
              a.buf);
        post_send(&a, 1, k == 2 ? WIMM : SEND, 0, k ? 65536 : 8, 0);
        expect_wc(a.scq, 1, IBV_WC_LOC_PROT_ERR);
        CHECK_EQ(qp_state(&a), IBV_QPS_ERR);
        CHECK_EQ(qp_state(&b), IBV_QPS_RTS);
        expect_none(b.rcq);
        CHECK_EQ(mprotect(a.buf, 65536, PROT_READ | PROT_WRITE), 0);
        loop_close(&a, &b);
    }
}

/* Unmapped inline data is the sender's error, reported by the post call; the receiver keeps its
 * receive. */
TEST(inline_data_that_is_not_there)
{
    struct side a = {.max_inline = 256}, b = {0};
    long page = sysconf(_SC_PAGESIZE);
    unsigned char *at = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_send_wr *bad;

    CHECK(at != MAP_FAILED);
    CHECK_EQ(mprotect(at + page, (size_t)page, PROT_NONE), 0);
    uc_loop(&a, &b);
    post_recv(&b, 1, 0, 64);
    for (int missing = 1; missing <= 8; missing += 7) { /* the last byte, and all bytes */
        struct ibv_sge sge = {(uintptr_t)at + (size_t)page - 8 + (size_t)missing, 8, 0};
        struct ibv_send_wr wr = {.wr_id = 2,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = SEND,
                                 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
        CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EFAULT);
        CHECK(bad == &wr);
        wr.opcode = WRITE;
        wr.wr.rdma.remote_addr = a.raddr;
        wr.wr.rdma.rkey = a.rkey;
        CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EFAULT);
        all_quiet(&a, &b);
    }
    sent(&a, 3, SEND, 8, 0);
    CHECK_EQ(expect_wc(b.rcq, 1, IBV_WC_SUCCESS).byte_len, 8);
    munmap(at, 2 * (size_t)page);
    loop_close(&a, &b);
}

/* Requests that need an answer cannot be posted. */
TEST(requests_that_need_answers_refused)
{
    static const enum ibv_wr_opcode ops[] = {READ,
                                             IBV_WR_ATOMIC_CMP_AND_SWP,
                                             IBV_WR_ATOMIC_FETCH_AND_ADD,
                                             IBV_WR_SEND_WITH_INV,
                                             IBV_WR_LOCAL_INV,
                                             IBV_WR_BIND_MW};
    struct side a = {0}, b = {0};

    uc_loop(&a, &b);
    for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        CHECK_EQ(try_send(&a, i, ops[i], 0, 8, IBV_SEND_SIGNALED, a.raddr, a.rkey), EINVAL);
    all_quiet(&a, &b);
    loop_close(&a, &b);
}

/* Attributes of a reliable connection are rejected. */
TEST(rc_attributes_are_rejected)
{
    struct side a = {0}, b = {0};

    uc_open(&a);
    uc_open(&b);
    uint32_t to = b.qp->qp_num;
    CHECK_EQ(qp_rtr(&a, to), EINVAL);
    CHECK_EQ(uc_rtr(&a, to, RTR | IBV_QP_MIN_RNR_TIMER), EINVAL);
    CHECK_EQ(uc_rtr(&a, to, RTR | IBV_QP_MAX_DEST_RD_ATOMIC), EINVAL);
    CHECK_EQ(uc_rtr(&a, to, RTR & ~IBV_QP_DEST_QPN), EINVAL);
    CHECK_EQ(uc_rtr(&a, to, RTR), 0);
    CHECK_EQ(qp_rts(&a), EINVAL);
    CHECK_EQ(uc_rts(&a, IBV_QP_STATE), EINVAL);
    CHECK_EQ(uc_rts(&a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT), EINVAL);
    CHECK_EQ(uc_rts(&a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    loop_close(&a, &b);
}

/* A QP of another type is not reached, in both directions. */
TEST(kinds_do_not_meet)
{
    struct side a = {0}, b = {0};

    uc_open(&a);
    side_open(&b);
    uc_join(&a, &b);
    CHECK_EQ(qp_rtr(&b, a.qp->qp_num), 0);
    CHECK_EQ(qp_rts(&b), 0);
    post_recv(&a, 1, 0, 64);
    post_recv(&b, 1, 0, 64);
    sent(&a, 1, SEND, 8, 0);
    expect_none(b.rcq);
    post_send(&b, 2, SEND, 0, 8, 0);
    expect_wc(b.scq, 2, IBV_WC_RETRY_EXC_ERR);
    expect_none(a.rcq);
    loop_close(&a, &b);
}

#define ROUNDS 200
#define LARGE  65536

static void meet_other(struct side *s)
{
    struct {
        uint64_t addr;
        uint32_t rkey, qpn;
    } me = {(uintptr_t)s->buf, s->mr->rkey, s->qp->qp_num}, you;

    CHECK_EQ(write(s->sock, &me, sizeof(me)), sizeof(me));
    CHECK_EQ(read(s->sock, &you, sizeof(you)), sizeof(you));
    s->raddr = you.addr;
    s->rkey = you.rkey;
    CHECK_EQ(uc_rtr(s, you.qpn, RTR), 0);
    CHECK_EQ(uc_rts(s, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    meet(s);
}

/* With receives posted nothing is lost, and everything arrives in order. */
PAIR(messages_between_processes_arrive, run_two)
ACTIVE(messages_between_processes_arrive)
{
    uc_open(s);
    meet_other(s);
    for (unsigned i = 0; i < ROUNDS; i++) {
        pattern(s->buf, LARGE, i);
        sent(s, i, i % 2 ? SEND : WIMM, i % 3 ? LARGE : 64, 0);
        meet(s);
    }
    CHECK_EQ(counter("datagrams_lost"), 0);
    side_close(s);
}
PASSIVE(messages_between_processes_arrive)
{
    uc_open(s);
    post_recv(s, 0, 0, LARGE);
    meet_other(s);
    for (unsigned i = 0; i < ROUNDS; i++) {
        CHECK_EQ(expect_wc(s->rcq, i, IBV_WC_SUCCESS).byte_len, i % 3 ? LARGE : 64);
        CHECK(is_pattern(s->buf, i % 3 ? LARGE : 64, i));
        post_recv(s, i + 1, 0, LARGE);
        meet(s);
    }
    side_close(s);
}

/* A killed peer is not reached; its sender continues. */
PAIR(to_the_dead, run_two_kill)
ACTIVE(to_the_dead)
{
    char c;

    uc_open(s);
    meet_other(s);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(read(s->sock, &c, 1) <= 0); /* ECONNRESET if the peer had unread data */
    for (uint64_t i = 0; i < 3; i++)
        sent(s, i, i % 2 ? SEND : WRITE, 64, 0);
    CHECK_EQ(qp_state(s), IBV_QPS_RTS);
    side_close(s);
}
PASSIVE(to_the_dead)
{
    uc_open(s);
    post_recv(s, 0, 0, LARGE);
    meet_other(s);
    for (;;)
        pause();
}
