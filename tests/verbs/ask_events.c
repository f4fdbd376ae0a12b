/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about events: completion channels, asynchronous events, overflow. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "tests/verbs/ask.h"

static void answer_event(const char *who, struct end *e)
{
    struct ibv_cq *cq;
    void *context;

    if (!readable(e->channel->fd, NONE_MS)) {
        answer("%s: no event", who);
        return;
    }
    NEED(ibv_get_cq_event(e->channel, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
    answer("%s: event of the %s queue", who,
           cq == e->scq   ? "send"
           : cq == e->rcq ? "receive"
                          : "wrong");
}

static void one_message(struct end *from, struct end *to, enum ibv_wr_opcode op, unsigned flags)
{
    struct ibv_wc wc;

    NEED(receive(to, 2, 64) == 0 && send_plain(from, op, 8, SIGNALED | flags) == 0);
    NEED(next_wc(from->scq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS);
}

ASK(armed)
{
    one_message(a, b, SEND, 0);
    answer_event("not armed", b);
    NEED(ibv_req_notify_cq(b->rcq, 0) == 0);
    answer_event("armed after a completion that was not polled", b);
    one_message(a, b, SEND, 0);
    answer_event("armed before a completion", b);
    one_message(a, b, SEND, 0);
    answer_event("once more without arming", b);
    NEED(ibv_req_notify_cq(b->rcq, 0) == 0 && ibv_req_notify_cq(b->rcq, 0) == 0);
    one_message(a, b, SEND, 0);
    one_message(a, b, SEND, 0);
    answer_event("armed twice", b);
    answer_event("again", b);
}

ASK(solicited)
{
    NEED(ibv_req_notify_cq(b->rcq, 1) == 0);
    one_message(a, b, SEND, 0);
    answer_event("a plain send", b);
    one_message(a, b, SEND, IBV_SEND_SOLICITED);
    answer_event("a solicited send", b);
    NEED(ibv_req_notify_cq(b->rcq, 1) == 0);
    one_message(a, b, WIMM, 0);
    answer_event("a plain write with immediate", b);
    one_message(a, b, WIMM, IBV_SEND_SOLICITED);
    answer_event("a solicited write with immediate", b);
    NEED(ibv_req_notify_cq(b->rcq, 1) == 0 && receive(b, 4, 64) == 0);
    NEED(end_to(b, IBV_QPS_ERR) == 0);
    answer_event("a flushed receive", b);
}

ASK(channel_in_use)
{
    answer("destroying the channel: %s", result(ibv_destroy_comp_channel(a->channel)));
    NEED(ibv_destroy_qp(a->qp) == 0 && ibv_destroy_cq(a->scq) == 0 &&
         ibv_destroy_cq(a->rcq) == 0);
    answer("then: %s", result(ibv_destroy_comp_channel(a->channel)));
}

ASK(overflow)
{
    int most = a->scq->cqe;

    for (int i = 0; i < most + 4; i++) {
        while (send_plain(a, WRITE, 8, SIGNALED))
            pass_ms(1);
        pass_ms(1);
    }
    pass_ms(200);
    answer_async("requester", a);
    tell(a, b, "state");
}

ASK(srq_limit)
{
    struct ibv_srq_attr attr = {.srq_limit = 3};

    for (uint64_t i = 0; i < 5; i++)
        NEED(receive(b, i, 64) == 0);
    NEED(ibv_modify_srq(b->srq, &attr, IBV_SRQ_LIMIT) == 0);
    for (int i = 1; i <= 4; i++) {
        char who[32];
        struct ibv_wc wc;
        NEED(send_plain(a, SEND, 8, SIGNALED) == 0 && next_wc(a->scq, &wc, WAIT_MS));
        snprintf(who, sizeof(who), "%d left", 5 - i);
        answer_async(who, b);
    }
    NEED(ibv_query_srq(b->srq, &attr) == 0);
    answer("limit afterwards %u", attr.srq_limit);
}

ASK(srq_limit_at_once)
{
    struct ibv_srq_attr attr = {.srq_limit = 3};

    NEED(receive(b, 1, 64) == 0);
    answer("armed with fewer left: %s", result(ibv_modify_srq(b->srq, &attr, IBV_SRQ_LIMIT)));
    answer_async("it", b);
}

ASK(last_wqe)
{
    NEED(receive(b, 1, 64) == 0);
    NEED(end_to(b, IBV_QPS_ERR) == 0);
    answer_async("it", b);
    answer_wcs("receives", b->rcq);
}

ASK(first_message)
{
    NEED(end_rtr(b, a, a->qp->qp_num) == 0 && end_rtr(a, b, b->qp->qp_num) == 0 &&
         end_rts(a) == 0);
    NEED(receive(b, 2, 64) == 0 && send_plain(a, SEND, 8, SIGNALED) == 0);
    tell(a, b, "sender");
    answer_wc("receiver in RTR", b->rcq);
    answer_async("it", b);
}

ASK(destroy_with_event)
{
    NEED(send_to(a, 1, WRITE, 8, SIGNALED, 0, 0xffff0000) == 0);
    tell(a, b, "requester");
    pass_ms(100);
    answer("destroying the responder before its event is read: %s",
           result(ibv_destroy_qp(b->qp)));
    answer_async("afterwards", b);
}

const struct question event_questions[] = {
    {"completion events", .ask = armed, .b.with_channel = true},
    {"solicited completion events", .ask = solicited, .b.with_channel = true},
    {"completion channel in use", .ask = channel_in_use, .setup = ALONE,
     .a.with_channel = true},
    {"completion queue overflow", .ask = overflow, .a.cqe = 4},
    {"limit of a shared receive queue", .ask = srq_limit, .b.srq_wr = 16},
    {"limit armed when it is reached already", .ask = srq_limit_at_once, .setup = APART,
     .b.srq_wr = 16},
    {"last request of a shared receive queue", .ask = last_wqe, .b.srq_wr = 16},
    {"empty shared receive queue, no retry", .a.rnr_retry = -1, .b.srq_wr = 16,
     .request = {SEND, 8}, .tell = "sender"},
    {"message to a queue pair in RTR", .ask = first_message, .setup = APART},
    {"destroyed with an event outstanding", .ask = destroy_with_event},
    {NULL},
};
