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

static void one_message(struct end *from, struct end *to, unsigned flags)
{
    struct ibv_wc wc;

    NEED(receive(to, 2, 64) == 0 && send_plain(from, SEND, 8, SIGNALED | flags) == 0);
    NEED(next_wc(from->scq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS);
}

static void armed(void)
{
    struct end a = {0}, b = {.with_channel = true};

    ends_open(&a, &b);
    one_message(&a, &b, 0);
    answer_event("not armed", &b);
    NEED(ibv_req_notify_cq(b.rcq, 0) == 0);
    answer_event("armed after a completion that was not polled", &b);
    one_message(&a, &b, 0);
    answer_event("armed before a completion", &b);
    one_message(&a, &b, 0);
    answer_event("once more without arming", &b);
    NEED(ibv_req_notify_cq(b.rcq, 0) == 0 && ibv_req_notify_cq(b.rcq, 0) == 0);
    one_message(&a, &b, 0);
    one_message(&a, &b, 0);
    answer_event("armed twice", &b);
    answer_event("again", &b);
}

static void solicited(void)
{
    struct end a = {0}, b = {.with_channel = true};

    ends_open(&a, &b);
    NEED(ibv_req_notify_cq(b.rcq, 1) == 0);
    one_message(&a, &b, 0);
    answer_event("a plain send", &b);
    one_message(&a, &b, IBV_SEND_SOLICITED);
    answer_event("a solicited send", &b);
    NEED(ibv_req_notify_cq(b.rcq, 1) == 0);
    NEED(receive(&b, 3, 64) == 0 && send_plain(&a, WIMM, 8, SIGNALED) == 0);
    answer_event("a plain write with immediate", &b);
    NEED(receive(&b, 3, 64) == 0 &&
         send_plain(&a, WIMM, 8, SIGNALED | IBV_SEND_SOLICITED) == 0);
    answer_event("a solicited write with immediate", &b);
    NEED(ibv_req_notify_cq(b.rcq, 1) == 0 && receive(&b, 4, 64) == 0);
    NEED(end_to(&b, IBV_QPS_ERR) == 0);
    answer_event("a flushed receive", &b);
}

static void channel_in_use(void)
{
    struct end e = {.with_channel = true};

    end_open(&e, false);
    answer("destroying the channel: %s", result(ibv_destroy_comp_channel(e.channel)));
    NEED(ibv_destroy_qp(e.qp) == 0 && ibv_destroy_cq(e.scq) == 0 && ibv_destroy_cq(e.rcq) == 0);
    answer("then: %s", result(ibv_destroy_comp_channel(e.channel)));
}

static void overflow(void)
{
    struct end a = {.cqe = 4}, b = {0};
    int most;

    ends_open(&a, &b);
    most = a.scq->cqe;
    for (int i = 0; i < most + 4; i++) {
        while (send_plain(&a, WRITE, 8, SIGNALED))
            pass_ms(1);
        pass_ms(1);
    }
    pass_ms(200);
    answer_async("requester", &a);
    answer("state %s", end_state(&a));
}

static void srq_limit(void)
{
    struct end a = {0}, b = {.srq_wr = 16};
    struct ibv_srq_attr attr = {.srq_limit = 3};

    ends_open(&a, &b);
    for (uint64_t i = 0; i < 5; i++)
        NEED(receive(&b, i, 64) == 0);
    NEED(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT) == 0);
    for (int i = 1; i <= 4; i++) {
        char who[32];
        struct ibv_wc wc;
        NEED(send_plain(&a, SEND, 8, SIGNALED) == 0 && next_wc(a.scq, &wc, WAIT_MS));
        snprintf(who, sizeof(who), "%d left", 5 - i);
        answer_async(who, &b);
    }
    NEED(ibv_query_srq(b.srq, &attr) == 0);
    answer("limit afterwards %u", attr.srq_limit);
}

static void srq_limit_at_once(void)
{
    struct end b = {.srq_wr = 16};
    struct ibv_srq_attr attr = {.srq_limit = 3};

    end_open(&b, true);
    NEED(receive(&b, 1, 64) == 0);
    answer("armed with fewer left: %s", result(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT)));
    answer_async("it", &b);
}

static void last_wqe(void)
{
    struct end a = {0}, b = {.srq_wr = 16};

    ends_open(&a, &b);
    NEED(receive(&b, 1, 64) == 0);
    NEED(end_to(&b, IBV_QPS_ERR) == 0);
    answer_async("it", &b);
    answer_wcs("receives", b.rcq);
}

static void srq_empty(void)
{
    struct end a = {.rnr_retry = -1}, b = {.srq_wr = 16};

    ends_open(&a, &b);
    NEED(send_plain(&a, SEND, 8, SIGNALED) == 0);
    answer_wc("sender", a.scq);
}

static void first_message(void)
{
    struct end a = {0}, b = {0};

    end_open(&a, false);
    end_open(&b, true);
    a.other = &b;
    b.other = &a;
    NEED(end_rtr(&b, &a, a.qp->qp_num) == 0 && end_rtr(&a, &b, b.qp->qp_num) == 0 &&
         end_rts(&a) == 0);
    NEED(receive(&b, 2, 64) == 0 && send_plain(&a, SEND, 8, SIGNALED) == 0);
    answer_wc("sender", a.scq);
    answer_wc("receiver in RTR", b.rcq);
    answer_async("it", &b);
}

static void destroy_with_event(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(send_to(&a, 1, WRITE, 8, SIGNALED, 0, 0xffff0000) == 0);
    answer_wc("requester", a.scq);
    pass_ms(100);
    answer("destroying the responder before its event is read: %s",
           result(ibv_destroy_qp(b.qp)));
    answer_async("afterwards", &b);
}

const struct question event_questions[] = {
    {"completion events", armed},
    {"solicited completion events", solicited},
    {"completion channel in use", channel_in_use},
    {"completion queue overflow", overflow},
    {"limit of a shared receive queue", srq_limit},
    {"limit armed when it is reached already", srq_limit_at_once},
    {"last request of a shared receive queue", last_wqe},
    {"empty shared receive queue, no retry", srq_empty},
    {"message to a queue pair in RTR", first_message},
    {"destroyed with an event outstanding", destroy_with_event},
    {NULL, NULL},
};
