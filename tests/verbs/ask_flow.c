/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about messages in flight: delivery, flow control, retries, flushing. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/verbs/ask.h"

static void answer_received(const char *who, struct ibv_cq *cq)
{
    struct ibv_wc wc;

    if (!next_wc(cq, &wc, WAIT_MS) || wc.status) {
        answer("%s: failed", who);
        return;
    }
    answer("%s: %s of %u bytes%s", who, wc.opcode == IBV_WC_RECV ? "a message" : "a write",
           wc.byte_len, wc.wc_flags & IBV_WC_WITH_IMM ? " with immediate data" : "");
    if (wc.wc_flags & IBV_WC_WITH_IMM)
        answer("it is %#x", ntohl(wc.imm_data));
}

static void what_arrives(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    for (int i = 0; i < 5; i++)
        NEED(receive(&b, 2, 4096) == 0);
    NEED(send_plain(&a, SEND, 100, 0) == 0);
    answer_received("send", b.rcq);
    NEED(send_plain(&a, SEND, 0, 0) == 0);
    answer_received("send of nothing", b.rcq);
    NEED(send_plain(&a, IBV_WR_SEND_WITH_IMM, 7, 0) == 0);
    answer_received("send with immediate", b.rcq);
    NEED(send_plain(&a, WIMM, 5000, 0) == 0);
    answer_received("write with immediate", b.rcq);
    NEED(send_plain(&a, WIMM, 0, SIGNALED) == 0);
    answer_received("write of nothing with immediate", b.rcq);
    answer_wcs("sender", a.scq);
}

static void sender_opcodes(void)
{
    static const enum ibv_wr_opcode op[] = {SEND, WRITE, READ, WIMM};
    static const enum ibv_wc_opcode want[] = {IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
                                              IBV_WC_RDMA_WRITE};
    struct end a = {0}, b = {0};
    struct ibv_wc wc;

    ends_open(&a, &b);
    for (unsigned i = 0; i < 4; i++) {
        NEED(receive(&b, 2, 4096) == 0);
        NEED(send_plain(&a, op[i], 64, SIGNALED) == 0 && next_wc(a.scq, &wc, WAIT_MS));
        answer("%s%s", wc.opcode == want[i] ? "right" : "wrong",
               wc.qp_num == a.qp->qp_num ? "" : ", wrong queue pair");
    }
}

static void receive_too_small(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    memset(a.buf, 0xaa, END_SIZE);
    memset(b.buf, 0x55, END_SIZE);
    NEED(receive(&b, 2, 1000) == 0);
    NEED(send_plain(&a, SEND, 5000, SIGNALED) == 0);
    answer_wc("sender", a.scq);
    answer_wc("receiver", b.rcq);
    answer("states %s and %s", end_state(&a), end_state(&b));
    answer("past the buffer: %s", b.buf[1000] == 0x55 ? "untouched" : "changed");
}

static void scattered_receive(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    for (int i = 0; i < 3000; i++)
        a.buf[i] = (unsigned char)(i / 1000 + 1);
    struct ibv_sge sge[3] = {{(uintptr_t)b.buf + 10001, 999, b.mr->lkey},
                             {(uintptr_t)b.buf, 1001, b.mr->lkey},
                             {(uintptr_t)b.buf + 20003, 2000, b.mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = sge, .num_sge = 3}, *bad;
    NEED(ibv_post_recv(b.qp, &wr, &bad) == 0 && send_plain(&a, SEND, 3000, SIGNALED) == 0);
    answer_received("receiver", b.rcq);
    bool right = b.buf[10001] == 1 && b.buf[10999] == 1 && b.buf[0] == 1 && b.buf[1] == 2 &&
                 b.buf[1000] == 2 && b.buf[20003] == 3 && b.buf[21002] == 3 &&
                 b.buf[21003] == 0;
    answer("bytes are where they belong: %s", right ? "yes" : "no");
}

static void no_receive(void)
{
    struct end a = {.rnr_retry = -1}, b = {0};

    ends_open(&a, &b);
    NEED(send_plain(&a, SEND, 8, SIGNALED) == 0);
    answer_wc("sender", a.scq);
    answer("states %s and %s", end_state(&a), end_state(&b));
}

static void late_receive(void)
{
    struct end a = {.rnr_retry = 7}, b = {0};

    ends_open(&a, &b);
    NEED(send_plain(&a, SEND, 8, SIGNALED) == 0);
    pass_ms(50);
    NEED(receive(&b, 2, 64) == 0);
    struct ibv_wc wc;
    answer("sender: %s", next_wc(a.scq, &wc, WAIT_MS) ? status_name(wc.status) : "nothing");
    answer_wc("receiver", b.rcq);
}

static void write_imm_no_receive(void)
{
    struct end a = {.rnr_retry = -1}, b = {0};

    ends_open(&a, &b);
    NEED(send_plain(&a, WIMM, 8, SIGNALED) == 0);
    answer_wc("sender", a.scq);
}

/* Sends to an unused QP number: 4 us << 10 is 4 ms for each try. */
static void nobody(int retries)
{
    struct end a = {.retry = retries, .timeout = 10};

    end_open(&a, false);
    NEED(end_rtr(&a, &a, 0xabcde) == 0 && end_rts(&a) == 0);
    NEED(send_to(&a, 1, SEND, 8, SIGNALED, 0, 0) == 0);
    answer_wc("sender", a.scq);
    answer("state %s", end_state(&a));
}
static void nobody_no_retry(void)
{
    nobody(-1);
}
static void nobody_two(void)
{
    nobody(2);
}
static void nobody_seven(void)
{
    nobody(7);
}

static void to_destroyed(void)
{
    struct end a = {.retry = 1, .timeout = 10}, b = {0};

    ends_open(&a, &b);
    NEED(ibv_destroy_qp(b.qp) == 0);
    NEED(send_plain(&a, WRITE, 8, SIGNALED) == 0);
    answer_wc("sender", a.scq);
}

static void to_error(void)
{
    struct end a = {.retry = 1, .timeout = 10}, b = {0};

    ends_open(&a, &b);
    NEED(end_to(&b, IBV_QPS_ERR) == 0);
    NEED(send_plain(&a, WRITE, 8, SIGNALED) == 0);
    answer_wc("sender", a.scq);
}

static void to_not_ready(void)
{
    struct end a = {.retry = 1, .timeout = 10}, b = {0};

    end_open(&a, false);
    end_open(&b, true);
    a.other = &b;
    NEED(end_rtr(&a, &b, b.qp->qp_num) == 0 && end_rts(&a) == 0);
    NEED(send_plain(&a, WRITE, 8, SIGNALED) == 0);
    answer_wc("sender", a.scq);
}

static void flush(void)
{
    struct end a = {.rnr_retry = 7}, b = {0};
    struct ibv_wc wc;
    bool order = true;
    uint64_t next = 10;

    ends_open(&a, &b);
    for (uint64_t i = 0; i < 5; i++)
        NEED(receive(&a, 20 + i, 64) == 0);
    for (uint64_t i = 0; i < 5; i++) /* the first waits for a receive, the others behind it */
        NEED(send_to(&a, 10 + i, SEND, 8, i % 2 ? SIGNALED : 0, 0, 0) == 0);
    NEED(end_to(&a, IBV_QPS_ERR) == 0);
    while (next_wc(a.scq, &wc, next < 15 ? 2000 : NONE_MS)) {
        order = order && wc.wr_id == next && wc.status == IBV_WC_WR_FLUSH_ERR;
        next++;
    }
    answer("%d of 5 sends flushed, signalled or not, %s", (int)next - 10,
           order ? "in order" : "not all in order and flushed");
    for (next = 20, order = true; next_wc(a.rcq, &wc, next < 25 ? 2000 : NONE_MS); next++)
        order = order && wc.wr_id == next && wc.status == IBV_WC_WR_FLUSH_ERR;
    answer("%d of 5 receives flushed, %s", (int)next - 20,
           order ? "in order" : "not all in order and flushed");
}

static void flush_behind_error(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(receive(&a, 20, 64) == 0 && receive(&b, 20, 64) == 0);
    NEED(send_to(&a, 1, WRITE, 8, 0, 0, 0xffff0000) == 0);
    NEED(send_to(&a, 2, SEND, 8, 0, 0, 0) == 0);
    answer_wcs("sends that were not signalled", a.scq);
    answer_wcs("requester's receives", a.rcq);
    answer_wcs("responder's receives", b.rcq);
}

static void signalling(void)
{
    struct end a = {0}, b = {0}, c = {.sig_all = 1}, d = {0};

    ends_open(&a, &b);
    for (int i = 0; i < 3; i++)
        NEED(send_plain(&a, WRITE, 8, i == 2 ? SIGNALED : 0) == 0);
    answer_wcs("only the last signalled", a.scq);
    ends_open(&c, &d);
    for (int i = 0; i < 3; i++)
        NEED(send_plain(&c, WRITE, 8, 0) == 0);
    answer_wcs("a queue pair that signals all", c.scq);
}

static void unsignalled_reclaim(void)
{
    struct end a = {0}, b = {0};
    unsigned n = 0;
    struct ibv_wc wc;

    ends_open(&a, &b);
    while (n < a.cap.max_send_wr && send_plain(&a, WRITE, 8, 0) == 0)
        n++;
    answer("filled with what is not signalled: %s", n == a.cap.max_send_wr ? "yes" : "no");
    NEED(!next_wc(a.scq, &wc, NONE_MS));
    answer("another after they were done: %s", result(send_plain(&a, WRITE, 8, SIGNALED)));
}

static void many_reads(void)
{
    struct end a = {.reads = 1, .granted_reads = 1}, b = {.reads = 1, .granted_reads = 1};

    ends_open(&a, &b);
    for (int i = 0; i < 16; i++)
        NEED(send_plain(&a, READ, 8192, SIGNALED) == 0);
    answer_wcs("sixteen at once", a.scq);
}

static void more_reads_than_granted(void)
{
    struct end a = {.reads = 8}, b = {.granted_reads = 1};

    ends_open(&a, &b);
    for (int i = 0; i < 8; i++)
        NEED(send_plain(&a, READ, 32768, SIGNALED) == 0);
    answer_wcs("eight at once", a.scq);
}

static void reads_not_granted(void)
{
    struct end a = {0}, b = {.granted_reads = -1};

    ends_open(&a, &b);
    NEED(send_plain(&a, READ, 8, SIGNALED) == 0);
    answer_wc("requester", a.scq);
    answer_async("responder", &b);
}

static void write_then_read(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    strcpy((char *)a.buf, "written");
    NEED(send_plain(&a, WRITE, 8, 0) == 0);
    struct ibv_sge sge = {(uintptr_t)a.buf + 4096, 8, a.mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 2,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = READ,
                             .send_flags = SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
    wr.wr.rdma.rkey = b.mr->rkey;
    NEED(ibv_post_send(a.qp, &wr, &bad) == 0);
    answer_wc("read", a.scq);
    answer("it sees the write before it: %s",
           strcmp((char *)a.buf + 4096, "written") == 0 ? "yes" : "no");
}

static void fence(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    strcpy((char *)b.buf, "read");
    NEED(receive(&b, 2, 64) == 0);
    struct ibv_sge sge = {(uintptr_t)a.buf, 8, a.mr->lkey};
    struct ibv_send_wr wr[2] = {
        {.wr_id = 1, .next = &wr[1], .sg_list = &sge, .num_sge = 1, .opcode = READ},
        {.wr_id = 2,
         .sg_list = &sge,
         .num_sge = 1,
         .opcode = SEND,
         .send_flags = SIGNALED | IBV_SEND_FENCE}};
    struct ibv_send_wr *bad;
    wr[0].wr.rdma.remote_addr = (uintptr_t)b.buf;
    wr[0].wr.rdma.rkey = b.mr->rkey;
    NEED(ibv_post_send(a.qp, wr, &bad) == 0);
    answer_wc("sender", a.scq);
    answer_wc("receiver", b.rcq);
    answer("the send carries what was read: %s",
           strcmp((char *)b.buf, "read") == 0 ? "yes" : "no");
}

static void send_invalidate(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(receive(&b, 2, 64) == 0);
    struct ibv_sge sge = {(uintptr_t)a.buf, 8, a.mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_INV,
                             .send_flags = SIGNALED},
                       *bad;
    wr.invalidate_rkey = b.mr->rkey;
    int ret = ibv_post_send(a.qp, &wr, &bad);
    answer("posting, of a plain region's key: %s", result(ret));
    if (!ret)
        answer_wc("sender", a.scq);
}

static void large(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    memset(a.buf, 0x7e, END_SIZE);
    NEED(receive(&b, 2, END_SIZE) == 0);
    NEED(send_plain(&a, SEND, END_SIZE, SIGNALED) == 0);
    answer_received("receiver", b.rcq);
    answer("last byte %#x", b.buf[END_SIZE - 1]);
}

const struct question flow_questions[] = {
    {"what a receiver is told", what_arrives},
    {"what a sender is told", sender_opcodes},
    {"message larger than its receive", receive_too_small},
    {"receive of three segments", scattered_receive},
    {"message of many packets", large},
    {"no receive posted, no retry", no_receive},
    {"no receive posted, retry for ever, then one is", late_receive},
    {"write with immediate and no receive posted, no retry", write_imm_no_receive},
    {"to nobody, no retry", nobody_no_retry},
    {"to nobody, two retries", nobody_two},
    {"to nobody, seven retries", nobody_seven},
    {"to a queue pair destroyed meanwhile", to_destroyed},
    {"to a queue pair in the error state", to_error},
    {"to a queue pair that is not connected", to_not_ready},
    {"flush", flush},
    {"flush behind a refused write", flush_behind_error},
    {"signalling", signalling},
    {"send queue full of what is not signalled", unsignalled_reclaim},
    {"more reads than the depth, which is 1 on both sides", many_reads},
    {"more reads than the other side granted", more_reads_than_granted},
    {"read where none was granted", reads_not_granted},
    {"read behind a write to the same place", write_then_read},
    {"fence", fence},
    {"send with invalidate", send_invalidate},
    {NULL, NULL},
};
