/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Atomic operations of the software HCA between processes; tests/verbs tests refusals. */
#include <pthread.h>
#include <signal.h>

#include "tests/emul/pair.h"

#define ROUNDS 400

static void open_side(struct side *s)
{
    s->access = RIGHTS;
    s->qp_access = QP_RIGHTS;
    side_open(s);
}

/* Returns the former value. */
static uint64_t atomic(struct side *s, enum ibv_wr_opcode op, uint64_t first, uint64_t swap)
{
    uint64_t old;

    s->operand = first;
    s->swap = swap;
    struct ibv_wc wc = post_done(s, op, 0, 8, 4096);
    CHECK_EQ(wc.opcode, op == FADD ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
    CHECK_EQ(wc.byte_len, 8);
    memcpy(&old, s->buf, 8);
    return old;
}

/* Counts up by either operation; no increment is lost if both are atomic. */
static void *count_up(void *arg)
{
    struct side *s = arg;

    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2) {
            atomic(s, FADD, 1, 0);
            continue;
        }
        uint64_t guess = 0, was;
        while ((was = atomic(s, SWAP, guess, guess + 1)) != guess)
            guess = was;
    }
    return NULL;
}

/* Another process and two connections of this process count in one word. */
PAIR(counts_of_processes_add_up, run_two)
ACTIVE(counts_of_processes_add_up)
{
    open_side(s);
    clock_stop(); /* so that waiting for a turn does not time out */
    side_connect(s);
    count_up(s);
    CHECK_EQ(counter("retries"), 0);
    side_leave(s);
}
PASSIVE(counts_of_processes_add_up)
{
    struct side a[2] = {{0}, {0}}, b[2] = {{0}, {0}};
    pthread_t thread[2];
    uint64_t *word;

    open_side(s);
    word = (uint64_t *)(void *)(s->buf + 4096);
    struct ibv_mr *mr[2];
    for (int i = 0; i < 2; i++) {
        a[i].access = b[i].access = RIGHTS;
        a[i].qp_access = b[i].qp_access = QP_RIGHTS;
        loop_open(&a[i], &b[i]);
        mr[i] = ibv_reg_mr(b[i].pd, s->buf, BUF_SIZE, RIGHTS);
        CHECK(mr[i]);
        a[i].raddr = (uintptr_t)s->buf;
        a[i].rkey = mr[i]->rkey;
    }
    clock_stop();
    side_connect(s);
    for (int i = 0; i < 2; i++)
        thread[i] = spawn(count_up, &a[i]);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
    meet(s);
    CHECK_EQ(__atomic_load_n(word, __ATOMIC_SEQ_CST), 3 * ROUNDS);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(ibv_dereg_mr(mr[i]), 0);
        loop_close(&a[i], &b[i]);
    }
    side_close(s);
}

/* A process killed during such operations blocks no other, and no other's increment is lost. */
PAIR(killed_process_loses_no_increment, run_two_kill)
ACTIVE(killed_process_loses_no_increment)
{
    struct side own = {0}, other = {0};
    uint64_t *word;

    open_side(s);
    word = (uint64_t *)(void *)(s->buf + 4096);
    own.access = other.access = RIGHTS;
    own.qp_access = other.qp_access = QP_RIGHTS;
    loop_open(&own, &other);
    struct ibv_mr *mr = ibv_reg_mr(other.pd, s->buf, BUF_SIZE, RIGHTS);
    CHECK(mr);
    own.raddr = (uintptr_t)s->buf;
    own.rkey = mr->rkey;
    side_connect(s);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < 50)
        ;
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    uint64_t had = atomic(&own, FADD, 0, 0);
    for (int i = 0; i < 100; i++)
        atomic(&own, FADD, UINT64_C(1) << 32, 0);
    uint64_t now = atomic(&own, FADD, 0, 0);
    CHECK_EQ(now >> 32, 100);
    CHECK((uint32_t)now >= (uint32_t)had);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    loop_close(&own, &other);
    side_close(s);
}
PASSIVE(killed_process_loses_no_increment)
{
    open_side(s);
    side_connect(s);
    for (;;)
        atomic(s, FADD, 1, 0);
}

/* The answer has eight bytes, for any length of the segments. */
LOOP(answer_in_pieces, .a = {.access = RIGHTS, .qp_access = QP_RIGHTS},
     .b = {.access = RIGHTS, .qp_access = QP_RIGHTS})
{
    uint64_t word = 0x0807060504030201;
    struct ibv_wc wc;

    memcpy(b->buf + 4096, &word, 8);
    memset(a->buf, 0xee, 64);
    struct ibv_sge sge[] = {{(uintptr_t)a->buf, 3, a->mr->lkey},
                            {(uintptr_t)a->buf + 16, 4, a->mr->lkey},
                            {(uintptr_t)a->buf + 32, 9, a->mr->lkey}};
    struct ibv_send_wr wr = {.wr_id = 4,
                             .sg_list = sge,
                             .num_sge = 3,
                             .opcode = FADD,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.atomic.remote_addr = a->raddr + 4096;
    wr.wr.atomic.rkey = a->rkey;
    CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
    wc = expect_wc(a->scq, 4, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, 8);
    CHECK(memcmp(a->buf, "\1\2\3\xee", 4) == 0 && memcmp(a->buf + 16, "\4\5\6\7\xee", 5) == 0);
    CHECK(memcmp(a->buf + 32, "\10\xee", 2) == 0);
}
