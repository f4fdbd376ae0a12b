/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unreliable connections: delivery, loss, and which side is notified. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

#define UC .a = {.type = IBV_QPT_UC}, .b = {.type = IBV_QPT_UC}

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
LOOP(message_without_receive_is_lost, UC)
{
    post_done(a, SEND, 0, 64, 0);
    post_done(a, WIMM, 0, 64, 8192);
    CHECK_EQ(b->buf[8193], 0);
    post_recv(b, 7, 0, 4096);
    all_quiet(a, b);
    CHECK_EQ(counter("datagrams_lost"), 2);
    post_done(a, SEND, 0, 8, 0);
    CHECK_EQ(expect_wc(b->rcq, 7, IBV_WC_SUCCESS).byte_len, 8);
    all_quiet(a, b);
}

static void write_by(struct side *a, uint32_t rkey, uint64_t roff)
{
    post_to(a, 1, WRITE, 0, 64, a->raddr + roff, rkey);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
}

/* A write without permission has no effect and is not reported. */
LOOP(write_without_permission_is_lost, UC)
{
    struct ibv_mr *mr = ibv_reg_mr(b->pd, b->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_attr rights = {.qp_access_flags = 0};

    CHECK(mr);
    pattern(a->buf, 64, 3);
    write_by(a, a->rkey ^ 1, 0);
    write_by(a, a->rkey, BUF_SIZE - 32);
    write_by(a, mr->rkey, 0);
    CHECK_EQ(ibv_modify_qp(b->qp, &rights, IBV_QP_ACCESS_FLAGS), 0);
    write_by(a, a->rkey, 0);
    rights.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    CHECK_EQ(ibv_modify_qp(b->qp, &rights, IBV_QP_ACCESS_FLAGS), 0);
    CHECK(b->buf[1] == 0 && b->buf[BUF_SIZE - 1] == 0);
    all_quiet(a, b);
    write_by(a, a->rkey, 0);
    CHECK(is_pattern(b->buf, 64, 3));
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* A receive that is too small is its owner's error, and fails only the owner's side. */
LOOP(short_receive_fails_its_owner, UC)
{
    post_recv(b, 7, 0, 8);
    post_recv(b, 8, 0, 4096);
    post_done(a, SEND, 0, 64, 0);
    expect_wc(b->rcq, 7, IBV_WC_LOC_LEN_ERR);
    expect_wc(b->rcq, 8, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(qp_state(b), IBV_QPS_ERR);
    CHECK_EQ(qp_state(a), IBV_QPS_RTS);
    post_done(a, SEND, 0, 64, 0); /* the peer's side has failed */
    CHECK_EQ(qp_state(a), IBV_QPS_RTS);
}

/* So does memory that was unmapped after registration: the receiver is not involved. */
TEST(unmapped_memory_fails_sender_only)
{
    for (unsigned k = 0; k < 3; k++) {
        struct side a = {.type = IBV_QPT_UC}, b = a;

        loop_open(&a, &b);
        post_recv(&b, 1, 0, 65536);
        CHECK_EQ(mprotect(a.buf, 65536, PROT_NONE), 0);
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
LOOP(inline_data_that_is_not_there, .a = {.type = IBV_QPT_UC, .max_inline = 256},
     .b = {.type = IBV_QPT_UC})
{
    long page = sysconf(_SC_PAGESIZE);
    unsigned char *at = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_send_wr *bad;

    CHECK(at != MAP_FAILED);
    CHECK_EQ(mprotect(at + page, (size_t)page, PROT_NONE), 0);
    post_recv(b, 1, 0, 64);
    for (int missing = 1; missing <= 8; missing += 7) { /* the last byte, and all bytes */
        struct ibv_sge sge = {(uintptr_t)at + (size_t)page - 8 + (size_t)missing, 8, 0};
        struct ibv_send_wr wr = {.wr_id = 2,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = SEND,
                                 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
        CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), EFAULT);
        CHECK(bad == &wr);
        wr.opcode = WRITE;
        wr.wr.rdma.remote_addr = a->raddr;
        wr.wr.rdma.rkey = a->rkey;
        CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), EFAULT);
        all_quiet(a, b);
    }
    post_done(a, SEND, 0, 8, 0);
    CHECK_EQ(expect_wc(b->rcq, 1, IBV_WC_SUCCESS).byte_len, 8);
    munmap(at, 2 * (size_t)page);
}

/* Requests that need an answer cannot be posted. */
LOOP(requests_that_need_answers_refused, UC)
{
    static const enum ibv_wr_opcode ops[] = {
        READ, SWAP, FADD, IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW};

    for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        CHECK_EQ(try_send(a, i, ops[i], 0, 8, IBV_SEND_SIGNALED, a->raddr, a->rkey), EINVAL);
    all_quiet(a, b);
}

/* Attributes of a reliable connection are rejected. */
SIDE(rc_attributes_are_rejected, .a = {.type = IBV_QPT_UC})
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = s->qp->qp_num,
                            .ah_attr = {.dlid = 1, .port_num = 1}};

    CHECK_EQ(ibv_modify_qp(s->qp, &a, UC_RTR | IBV_QP_MIN_RNR_TIMER), EINVAL);
    CHECK_EQ(ibv_modify_qp(s->qp, &a, UC_RTR | IBV_QP_MAX_DEST_RD_ATOMIC), EINVAL);
    CHECK_EQ(ibv_modify_qp(s->qp, &a, UC_RTR & ~IBV_QP_DEST_QPN), EINVAL);
    CHECK_EQ(ibv_modify_qp(s->qp, &a, UC_RTR), 0);
    a.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(s->qp, &a, IBV_QP_STATE), EINVAL);
    CHECK_EQ(ibv_modify_qp(s->qp, &a, UC_RTS | IBV_QP_TIMEOUT), EINVAL);
    CHECK_EQ(ibv_modify_qp(s->qp, &a, UC_RTS), 0);
}

/* A QP of another type is not reached, in both directions. */
LOOP(kinds_do_not_meet, .a = {.type = IBV_QPT_UC})
{
    post_recv(a, 1, 0, 64);
    post_recv(b, 1, 0, 64);
    post_done(a, SEND, 0, 8, 0);
    expect_none(b->rcq);
    post_send(b, 2, SEND, 0, 8, 0);
    expect_wc(b->scq, 2, IBV_WC_RETRY_EXC_ERR);
    expect_none(a->rcq);
}

#define ROUNDS 200
#define LARGE  65536

/* With receives posted nothing is lost, and everything arrives in order. */
PAIR(messages_between_processes_arrive, run_two)
ACTIVE(messages_between_processes_arrive)
{
    s->type = IBV_QPT_UC;
    side_join(s);
    for (unsigned i = 0; i < ROUNDS; i++) {
        pattern(s->buf, LARGE, i);
        post_done(s, i % 2 ? SEND : WIMM, 0, i % 3 ? LARGE : 64, 0);
        meet(s);
    }
    CHECK_EQ(counter("datagrams_lost"), 0);
    side_close(s);
}
PASSIVE(messages_between_processes_arrive)
{
    s->type = IBV_QPT_UC;
    side_open(s);
    post_recv(s, 0, 0, LARGE);
    side_connect(s);
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

    s->type = IBV_QPT_UC;
    side_join(s);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(read(s->sock, &c, 1) <= 0); /* ECONNRESET if the peer had unread data */
    for (uint64_t i = 0; i < 3; i++)
        post_done(s, i % 2 ? SEND : WRITE, 0, 64, 0);
    CHECK_EQ(qp_state(s), IBV_QPS_RTS);
    side_close(s);
}
PASSIVE(to_the_dead)
{
    s->type = IBV_QPT_UC;
    side_open(s);
    post_recv(s, 0, 0, LARGE);
    side_connect(s);
    pause_forever();
}
