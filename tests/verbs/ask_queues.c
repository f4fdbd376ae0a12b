/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about queues: state and limits of posting, and the states of a QP. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "tests/verbs/ask.h"

static int send_nothing(struct end *e, uint64_t id)
{
    return send_to(e, id, SEND, 8, SIGNALED, 0, 0);
}

static int receive_nothing(struct end *e, uint64_t id)
{
    return receive(e, id, 8);
}

/* Posts until a queue that granted `most` is full. */
static void answer_full(struct end *e, int (*post)(struct end *e, uint64_t id), unsigned most)
{
    unsigned n = 0;
    int ret = 0;

    while (n < 100000 && (ret = post(e, n)) == 0)
        n++;
    answer("takes %s than granted", n == most ? "no more" : n < most ? "less" : "more");
    answer("then %s", result(ret));
}

static void answer_granted(unsigned got, unsigned least)
{
    answer("granted at least what was asked: %s", got >= least ? "yes" : "no");
}

ASK(send_queue_full)
{
    answer_granted(a->cap.max_send_wr, 32);
    /* to an unused number, so nothing completes */
    NEED(end_rtr(a, a, 0xabcde) == 0 && end_rts(a) == 0);
    answer_full(a, send_nothing, a->cap.max_send_wr);
}

ASK(recv_queue_full)
{
    answer_granted(a->cap.max_recv_wr, 32);
    answer_full(a, receive_nothing, a->cap.max_recv_wr);
}

/* Posts n segments of 8 bytes more than granted. */
ASK(segments)
{
    struct ibv_sge sge[128];
    int n = (int)a->cap.max_send_sge + asked->n;

    NEED(n < 128);
    for (int i = 0; i < n; i++)
        sge[i] = (struct ibv_sge){(uintptr_t)a->buf + (unsigned)i * 8, 8, a->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = sge,
                             .num_sge = n,
                             .opcode = SEND,
                             .send_flags = SIGNALED},
                       *bad;
    NEED(receive(b, 2, 4096) == 0);
    if (posted(ibv_post_send(a->qp, &wr, &bad)))
        tell(a, b, "receiver");
}

ASK(segments_recv_beyond)
{
    struct ibv_sge sge[128] = {{0}};
    struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = (int)a->cap.max_recv_sge + 1}, *bad;

    NEED(wr.num_sge < 128);
    posted(ibv_post_recv(a->qp, &wr, &bad));
}

ASK(inline_beyond)
{
    unsigned most = a->cap.max_inline_data;

    NEED(receive(b, 2, 4096) == 0 && receive(b, 3, 4096) == 0);
    answer_granted(most, 64);
    answer("all of it: %s", result(send_plain(a, SEND, most, SIGNALED | IBV_SEND_INLINE)));
    tell(a, b, "sender");
    answer("a byte more: %s",
           result(send_plain(a, SEND, most + 1, SIGNALED | IBV_SEND_INLINE)));
}

ASK(chain_with_bad)
{
    for (int i = 0; i < 3; i++)
        NEED(receive(b, (uint64_t)i, 64) == 0);
    struct ibv_sge sge[64];
    struct ibv_send_wr wr[3], *bad = NULL;
    for (unsigned i = 0; i < 64; i++)
        sge[i] = (struct ibv_sge){(uintptr_t)a->buf, 8, a->mr->lkey};
    for (unsigned i = 0; i < 3; i++)
        wr[i] = (struct ibv_send_wr){.wr_id = i + 1,
                                     .next = i < 2 ? &wr[i + 1] : NULL,
                                     .sg_list = sge,
                                     .num_sge = i == 1 ? 64 : 1,
                                     .opcode = SEND,
                                     .send_flags = SIGNALED};
    posted(ibv_post_send(a->qp, wr, &bad));
    answer("bad is number %d", bad != NULL ? (int)(bad - wr) + 1 : 0);
    answer_wcs("sender", a->scq);
}

static void answer_posts(const char *state, struct end *e)
{
    answer("%s: receive %s, send %s", state, result(receive(e, 1, 8)),
           result(send_nothing(e, 1)));
}

ASK(posting_by_state)
{
    struct end i = {.with = a};

    NEED(end_to(a, IBV_QPS_RESET) == 0);
    answer_posts("RESET", a);
    end_open(&i, false);
    answer_posts("INIT", &i);
    NEED(end_rtr(&i, &i, i.qp->qp_num) == 0);
    answer_posts("RTR", &i);
}

ASK(posting_in_error)
{
    NEED(end_to(a, IBV_QPS_ERR) == 0);
    answer("send: %s", result(send_plain(a, SEND, 8, 0)));
    tell(a, b, "it");
    answer("receive: %s", result(receive(a, 1, 8)));
    answer_wc("it", a->rcq);
}

ASK(transitions)
{
    answer("INIT to RTS: %s", result(end_rts(a)));
    tell(a, b, "state");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
    answer("INIT to RTR with attributes missing: %s",
           result(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU)));
    answer("INIT to INIT: %s", result(end_to(a, IBV_QPS_INIT)));
    NEED(end_rtr(a, a, a->qp->qp_num) == 0);
    answer("RTR to INIT: %s", result(end_to(a, IBV_QPS_INIT)));
    NEED(end_rts(a) == 0);
    answer("RTS to RTR: %s", result(end_rtr(a, a, a->qp->qp_num)));
    answer("RTS to ERR: %s", result(end_to(a, IBV_QPS_ERR)));
    answer("ERR to RTS: %s", result(end_rts(a)));
    answer("ERR to RESET: %s", result(end_to(a, IBV_QPS_RESET)));
    answer("RESET to RTR: %s", result(end_rtr(a, a, a->qp->qp_num)));
    tell(a, b, "state");
}

ASK(bad_path)
{
    struct end nowhere = *a;
    uint8_t index = a->gid_index;

    nowhere.lid = 0;
    nowhere.gid_index = 0;
    a->gid_index = 250;
    answer("a GID index that does not exist: %s", result(end_rtr(a, &nowhere, a->qp->qp_num)));
    a->gid_index = index;
    answer("a port that does not exist: %s", result(end_init(a, 9)));
    tell(a, b, "state");
}

ASK(error_to_reset_and_again)
{
    NEED(receive(a, 1, 64) == 0);
    NEED(end_to(a, IBV_QPS_RESET) == 0 && end_to(b, IBV_QPS_RESET) == 0);
    answer_wcs("receives given up by RESET", a->rcq);
    NEED(end_init(a, 1) == 0 && end_init(b, 1) == 0);
    ends_connect(a, b);
    NEED(receive(b, 2, 64) == 0 && send_plain(a, SEND, 8, SIGNALED) == 0);
    answer_wc("connected again, a send", a->scq);
    tell(a, b, "receiver");
}

ASK(too_large_to_create)
{
    struct ibv_device_attr d;

    NEED(ibv_query_device(a->ctx, &d) == 0);
    const struct {
        const char *what;
        struct ibv_qp_cap cap;
    } large[] = {{"send requests", {(uint32_t)d.max_qp_wr + 1, 1, 1, 1, 0}},
                 {"receives", {1, (uint32_t)d.max_qp_wr + 1, 1, 1, 0}},
                 {"segments", {1, 1, (uint32_t)d.max_sge + 1, 1, 0}},
                 {"inline", {1, 1, 1, 1, 1 << 20}}};
    for (unsigned i = 0; i < 4; i++) {
        struct ibv_qp_init_attr qi = {
            .send_cq = a->scq, .recv_cq = a->rcq, .qp_type = IBV_QPT_RC, .cap = large[i].cap};
        answer("%s: %s", large[i].what, pointer_result(ibv_create_qp(a->pd, &qi)));
    }
    answer("completions: %s",
           pointer_result(ibv_create_cq(a->ctx, d.max_cqe + 1, NULL, NULL, 0)));
    answer("no completions: %s", pointer_result(ibv_create_cq(a->ctx, 0, NULL, NULL, 0)));
    struct ibv_srq_init_attr si = {
        .attr = {.max_wr = (uint32_t)d.max_srq_wr + 1, .max_sge = 1}};
    answer("shared receives: %s", pointer_result(ibv_create_srq(a->pd, &si)));
}

ASK(resize)
{
    for (int i = 0; i < 8; i++)
        NEED(receive(b, 1, 8) == 0 && send_plain(a, SEND, 8, SIGNALED) == 0);
    answer_wcs("receiver", b->rcq);
    answer("larger: %s", result(ibv_resize_cq(a->scq, 128)));
    answer("smaller than what it holds: %s", result(ibv_resize_cq(a->scq, 4)));
    answer_wcs("what it held", a->scq);
}

ASK(shared_queue)
{
    struct ibv_srq_attr attr;
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

    NEED(ibv_query_srq(a->srq, &attr) == 0);
    answer_granted(attr.max_wr, 16);
    answer("limit at first %u", attr.srq_limit);
    answer_full(a, receive_nothing, attr.max_wr);
    answer("a receive to the queue pair itself: %s", result(ibv_post_recv(a->qp, &wr, &bad)));
    attr.srq_limit = attr.max_wr + 1;
    answer("a limit beyond its size: %s", result(ibv_modify_srq(a->srq, &attr, IBV_SRQ_LIMIT)));
    answer("destroying it: %s", result(ibv_destroy_srq(a->srq)));
}

ASK(other_kinds)
{
    const struct {
        const char *what;
        int type;
    } kinds[] = {{"UC", IBV_QPT_UC}, {"UD", IBV_QPT_UD}, {"type 77", 77}};

    for (unsigned i = 0; i < 3; i++) {
        struct ibv_qp_init_attr qi = {.send_cq = a->scq,
                                      .recv_cq = a->rcq,
                                      .qp_type = (enum ibv_qp_type)kinds[i].type,
                                      .cap = {1, 1, 1, 1, 0}};
        answer("%s: %s", kinds[i].what, pointer_result(ibv_create_qp(a->pd, &qi)));
    }
}

const struct question queue_questions[] = {
    {"send queue full", .ask = send_queue_full, .setup = ALONE,
     .a = {.retry = 6, .timeout = 20}},
    {"receive queue full", .ask = recv_queue_full, .setup = ALONE},
    {"as many segments as granted", .ask = segments},
    {"a segment more than granted", .ask = segments, .n = 1},
    {"a receive with a segment more than granted", .ask = segments_recv_beyond},
    {"inline limit", .ask = inline_beyond},
    {"inline read", .request = {READ, 8, .flags = IBV_SEND_INLINE}, .tell = "posting it"},
    {"opcode that does not exist", .request = {(enum ibv_wr_opcode)200, 8},
     .tell = "posting it"},
    {"chain of three of which the second cannot be posted", .ask = chain_with_bad},
    {"posting by state", .ask = posting_by_state, .setup = ALONE},
    {"posting in the error state", .ask = posting_in_error},
    {"transitions of state", .ask = transitions, .setup = ALONE},
    {"path that cannot be", .ask = bad_path, .setup = ALONE},
    {"reset and connected again", .ask = error_to_reset_and_again},
    {"creating what is too large", .ask = too_large_to_create, .setup = ALONE},
    {"resizing a completion queue", .ask = resize, .a.cqe = 64},
    {"shared receive queue", .ask = shared_queue, .setup = ALONE, .a.srq_wr = 16},
    {"other kinds of queue pairs", .ask = other_kinds, .setup = ALONE},
    {NULL},
};
