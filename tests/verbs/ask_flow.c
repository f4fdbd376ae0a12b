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

ASK(what_arrives)
{
    static const struct {
        const char *what;
        enum ibv_wr_opcode op;
        uint32_t length;
    } sent[] = {{"send", SEND, 100},
                {"send of nothing", SEND, 0},
                {"send with immediate", IBV_WR_SEND_WITH_IMM, 7},
                {"write with immediate", WIMM, 5000},
                {"write of nothing with immediate", WIMM, 0}};

    for (unsigned i = 0; i < 5; i++) {
        NEED(receive(b, 2, 4096) == 0);
        NEED(send_plain(a, sent[i].op, sent[i].length, i == 4 ? SIGNALED : 0) == 0);
        answer_received(sent[i].what, b->rcq);
    }
    answer_wcs("sender", a->scq);
}

ASK(sender_opcodes)
{
    static const enum ibv_wr_opcode op[] = {SEND, WRITE, READ, WIMM};
    static const enum ibv_wc_opcode want[] = {IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
                                              IBV_WC_RDMA_WRITE};
    struct ibv_wc wc;

    for (unsigned i = 0; i < 4; i++) {
        NEED(receive(b, 2, 4096) == 0);
        NEED(send_plain(a, op[i], 64, SIGNALED) == 0 && next_wc(a->scq, &wc, WAIT_MS));
        answer("%s%s", wc.opcode == want[i] ? "right" : "wrong",
               wc.qp_num == a->qp->qp_num ? "" : ", wrong queue pair");
    }
}

ASK(receive_too_small)
{
    memset(b->buf, 0x55, END_SIZE);
    NEED(receive(b, 2, 1000) == 0 && send_plain(a, SEND, 5000, SIGNALED) == 0);
    tell(a, b, "sender receiver states");
    answer("past the buffer: %s", b->buf[1000] == 0x55 ? "untouched" : "changed");
}

ASK(scattered_receive)
{
    unsigned char *to = b->buf;

    for (int i = 0; i < 3000; i++)
        a->buf[i] = (unsigned char)(i / 1000 + 1);
    struct ibv_sge sge[3] = {{(uintptr_t)to + 10001, 999, b->mr->lkey},
                             {(uintptr_t)to, 1001, b->mr->lkey},
                             {(uintptr_t)to + 20003, 2000, b->mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = sge, .num_sge = 3}, *bad;
    NEED(ibv_post_recv(b->qp, &wr, &bad) == 0 && send_plain(a, SEND, 3000, SIGNALED) == 0);
    answer_received("receiver", b->rcq);
    bool right = to[10001] == 1 && to[10999] == 1 && to[0] == 1 && to[1] == 2 &&
                 to[1000] == 2 && to[20003] == 3 && to[21002] == 3 && to[21003] == 0;
    answer("bytes are where they belong: %s", right ? "yes" : "no");
}

ASK(late_receive)
{
    NEED(send_plain(a, SEND, 8, SIGNALED) == 0);
    pass_ms(50);
    NEED(receive(b, 2, 64) == 0);
    tell(a, b, "sender receiver");
}

/* Sends to an unused QP number: 4 us << 10 is 4 ms for each try. */
ASK(nobody)
{
    NEED(end_rtr(a, a, 0xabcde) == 0 && end_rts(a) == 0);
    NEED(send_to(a, 1, SEND, 8, SIGNALED, 0, 0) == 0);
    tell(a, b, "sender state");
}

ASK(to_destroyed)
{
    NEED(ibv_destroy_qp(b->qp) == 0 && send_plain(a, WRITE, 8, SIGNALED) == 0);
    tell(a, b, "sender");
}

ASK(to_error)
{
    NEED(end_to(b, IBV_QPS_ERR) == 0 && send_plain(a, WRITE, 8, SIGNALED) == 0);
    tell(a, b, "sender");
}

ASK(to_not_ready)
{
    NEED(end_rtr(a, b, b->qp->qp_num) == 0 && end_rts(a) == 0);
    NEED(send_plain(a, WRITE, 8, SIGNALED) == 0);
    tell(a, b, "sender");
}

static void answer_flushed(struct ibv_cq *cq, uint64_t first, const char *what)
{
    struct ibv_wc wc;
    uint64_t n = 0;
    bool order = true;

    for (; next_wc(cq, &wc, n < 5 ? 2000 : NONE_MS); n++)
        order = order && wc.wr_id == first + n && wc.status == IBV_WC_WR_FLUSH_ERR;
    answer("%d of 5 %s, %s", (int)n, what, order ? "in order" : "not all in order and flushed");
}

ASK(flush)
{
    for (uint64_t i = 0; i < 5; i++)
        NEED(receive(a, 20 + i, 64) == 0);
    for (uint64_t i = 0; i < 5; i++) /* the first waits for a receive, the others behind it */
        NEED(send_to(a, 10 + i, SEND, 8, i % 2 ? SIGNALED : 0, 0, 0) == 0);
    NEED(end_to(a, IBV_QPS_ERR) == 0);
    answer_flushed(a->scq, 10, "sends flushed, signalled or not");
    answer_flushed(a->rcq, 20, "receives flushed");
}

ASK(flush_behind_error)
{
    NEED(receive(a, 20, 64) == 0 && receive(b, 20, 64) == 0);
    NEED(send_to(a, 1, WRITE, 8, 0, 0, 0xffff0000) == 0);
    NEED(send_to(a, 2, SEND, 8, 0, 0, 0) == 0);
    answer_wcs("sends that were not signalled", a->scq);
    answer_wcs("requester's receives", a->rcq);
    answer_wcs("responder's receives", b->rcq);
}

ASK(signalling)
{
    struct end c = {.sig_all = 1}, d = {0};

    for (int i = 0; i < 3; i++)
        NEED(send_plain(a, WRITE, 8, i == 2 ? SIGNALED : 0) == 0);
    answer_wcs("only the last signalled", a->scq);
    ends_open(&c, &d);
    for (int i = 0; i < 3; i++)
        NEED(send_plain(&c, WRITE, 8, 0) == 0);
    answer_wcs("a queue pair that signals all", c.scq);
}

ASK(unsignalled_reclaim)
{
    unsigned n = 0;
    struct ibv_wc wc;

    while (n < a->cap.max_send_wr && send_plain(a, WRITE, 8, 0) == 0)
        n++;
    answer("filled with what is not signalled: %s", n == a->cap.max_send_wr ? "yes" : "no");
    NEED(!next_wc(a->scq, &wc, NONE_MS));
    answer("another after they were done: %s", result(send_plain(a, WRITE, 8, SIGNALED)));
}

ASK(many_reads)
{
    for (int i = 0; i < asked->n; i++)
        NEED(send_plain(a, READ, 8192, SIGNALED) == 0);
    answer_wcs(asked->n == 16 ? "sixteen at once" : "eight at once", a->scq);
}

/* Copies of an end's buffer begin 4096 bytes further. */
static struct end behind(const struct end *e)
{
    struct end copy = *e;

    copy.buf += 4096;
    return copy;
}

ASK(write_then_read)
{
    struct end to = behind(a);

    strcpy((char *)a->buf, "written");
    NEED(send_plain(a, WRITE, 8, 0) == 0 && send_plain(&to, READ, 8, SIGNALED) == 0);
    tell(a, b, "read");
    answer("it sees the write before it: %s",
           strcmp((char *)to.buf, "written") == 0 ? "yes" : "no");
}

ASK(fence)
{
    strcpy((char *)b->buf, "read");
    NEED(receive(b, 2, 64) == 0);
    struct ibv_sge sge = {(uintptr_t)a->buf, 8, a->mr->lkey};
    struct ibv_send_wr wr[2] = {
        {.wr_id = 1, .next = &wr[1], .sg_list = &sge, .num_sge = 1, .opcode = READ},
        {.wr_id = 2,
         .sg_list = &sge,
         .num_sge = 1,
         .opcode = SEND,
         .send_flags = SIGNALED | IBV_SEND_FENCE}};
    struct ibv_send_wr *bad;
    wr[0].wr.rdma.remote_addr = (uintptr_t)b->buf;
    wr[0].wr.rdma.rkey = b->mr->rkey;
    NEED(ibv_post_send(a->qp, wr, &bad) == 0);
    tell(a, b, "sender receiver");
    answer("the send carries what was read: %s",
           strcmp((char *)b->buf, "read") == 0 ? "yes" : "no");
}

ASK(send_invalidate)
{
    NEED(receive(b, 2, 64) == 0);
    int ret = send_plain(a, IBV_WR_SEND_WITH_INV, 8, SIGNALED);
    answer("posting, of a plain region's key: %s", result(ret));
    if (!ret)
        tell(a, b, "sender");
}

ASK(large)
{
    memset(a->buf, 0x7e, END_SIZE);
    NEED(receive(b, 2, END_SIZE) == 0 && send_plain(a, SEND, END_SIZE, SIGNALED) == 0);
    answer_received("receiver", b->rcq);
    answer("last byte %#x", b->buf[END_SIZE - 1]);
}

const struct question flow_questions[] = {
    {"what a receiver is told", .ask = what_arrives},
    {"what a sender is told", .ask = sender_opcodes},
    {"message larger than its receive", .ask = receive_too_small},
    {"receive of three segments", .ask = scattered_receive},
    {"message of many packets", .ask = large},
    {"no receive posted, no retry", .a.rnr_retry = -1, .request = {SEND, 8},
     .tell = "sender states"},
    {"no receive posted, retry for ever, then one is", .ask = late_receive},
    {"write with immediate and no receive posted, no retry", .a.rnr_retry = -1,
     .request = {WIMM, 8}, .tell = "sender"},
    {"to nobody, no retry", .ask = nobody, .setup = ALONE, .a = {.retry = -1, .timeout = 10}},
    {"to nobody, two retries", .ask = nobody, .setup = ALONE, .a = {.retry = 2, .timeout = 10}},
    {"to nobody, seven retries", .ask = nobody, .setup = ALONE,
     .a = {.retry = 7, .timeout = 10}},
    {"to a queue pair destroyed meanwhile", .ask = to_destroyed,
     .a = {.retry = 1, .timeout = 10}},
    {"to a queue pair in the error state", .ask = to_error, .a = {.retry = 1, .timeout = 10}},
    {"to a queue pair that is not connected", .ask = to_not_ready, .setup = APART,
     .a = {.retry = 1, .timeout = 10}},
    {"flush", .ask = flush},
    {"flush behind a refused write", .ask = flush_behind_error},
    {"signalling", .ask = signalling},
    {"send queue full of what is not signalled", .ask = unsignalled_reclaim},
    {"more reads than the depth, which is 1 on both sides", .ask = many_reads,
     .a = {.reads = 1, .granted_reads = 1}, .b = {.reads = 1, .granted_reads = 1}, .n = 16},
    {"more reads than the other side granted", .ask = many_reads, .a.reads = 8,
     .b.granted_reads = 1, .n = 8},
    {"read where none was granted", .b.granted_reads = -1, .request = {READ, 8},
     .tell = "requester responder"},
    {"read behind a write to the same place", .ask = write_then_read},
    {"fence", .ask = fence},
    {"send with invalidate", .ask = send_invalidate},
    {NULL},
};
