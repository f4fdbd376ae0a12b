/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about queues: state and limits of posting, and the states of a QP. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "tests/verbs/ask.h"

static void send_queue_full(void)
{
    struct end e = {.retry = 6, .timeout = 20};
    unsigned n = 0;
    int ret = 0;

    end_open(&e, false);
    answer("granted at least what was asked: %s", e.cap.max_send_wr >= 32 ? "yes" : "no");
    /* to an unused number, so nothing completes */
    NEED(end_rtr(&e, &e, 0xabcde) == 0 && end_rts(&e) == 0);
    while (n < 100000 && (ret = send_to(&e, n, SEND, 8, SIGNALED, 0, 0)) == 0)
        n++;
    answer("takes %s than granted", n == e.cap.max_send_wr  ? "no more"
                                    : n < e.cap.max_send_wr ? "less"
                                                            : "more");
    answer("then %s", result(ret));
}

static void recv_queue_full(void)
{
    struct end e = {0};
    unsigned n = 0;
    int ret = 0;

    end_open(&e, false);
    answer("granted at least what was asked: %s", e.cap.max_recv_wr >= 32 ? "yes" : "no");
    while (n < 100000 && (ret = receive(&e, n, 8)) == 0)
        n++;
    answer("takes %s than granted", n == e.cap.max_recv_wr  ? "no more"
                                    : n < e.cap.max_recv_wr ? "less"
                                                            : "more");
    answer("then %s", result(ret));
}

/* Posts n segments of 8 bytes. */
static void segments(bool send, bool within)
{
    struct end a = {0}, b = {0};
    struct ibv_sge sge[128];

    ends_open(&a, &b);
    unsigned n = send ? a.cap.max_send_sge : a.cap.max_recv_sge;
    NEED(n < 128);
    n += within ? 0 : 1;
    for (unsigned i = 0; i < n; i++)
        sge[i] = (struct ibv_sge){(uintptr_t)a.buf + i * 8, 8, a.mr->lkey};
    struct ibv_send_wr sw = {.wr_id = 1,
                             .sg_list = sge,
                             .num_sge = (int)n,
                             .opcode = SEND,
                             .send_flags = SIGNALED},
                       *bs;
    struct ibv_recv_wr rw = {.wr_id = 1, .sg_list = sge, .num_sge = (int)n}, *br;
    NEED(receive(&b, 2, 4096) == 0);
    if (!send) {
        answer("posting: %s", result(ibv_post_recv(a.qp, &rw, &br)));
        return;
    }
    int ret = ibv_post_send(a.qp, &sw, &bs);
    answer("posting: %s", result(ret));
    if (!ret)
        answer_wc("receiver", b.rcq);
}
static void segments_most(void)
{
    segments(true, true);
}
static void segments_beyond(void)
{
    segments(true, false);
}
static void segments_recv_beyond(void)
{
    segments(false, false);
}

static void inline_beyond(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(receive(&b, 2, 4096) == 0 && receive(&b, 3, 4096) == 0);
    answer("granted at least what was asked: %s", a.cap.max_inline_data >= 64 ? "yes" : "no");
    answer("all of it: %s",
           result(send_plain(&a, SEND, a.cap.max_inline_data, SIGNALED | IBV_SEND_INLINE)));
    answer_wc("sender", a.scq);
    answer("a byte more: %s",
           result(send_plain(&a, SEND, a.cap.max_inline_data + 1, SIGNALED | IBV_SEND_INLINE)));
}

static void inline_read(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    int ret = send_plain(&a, READ, 8, SIGNALED | IBV_SEND_INLINE);
    answer("posting: %s", result(ret));
    if (!ret)
        answer_wc("it", a.scq);
}

static void bad_opcode(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    int ret = send_plain(&a, (enum ibv_wr_opcode)200, 8, SIGNALED);
    answer("posting: %s", result(ret));
    if (!ret)
        answer_wc("it", a.scq);
}

static void chain_with_bad(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    for (int i = 0; i < 3; i++)
        NEED(receive(&b, (uint64_t)i, 64) == 0);
    struct ibv_sge sge[64], one = {(uintptr_t)a.buf, 8, a.mr->lkey};
    for (unsigned i = 0; i < 64; i++)
        sge[i] = one;
    struct ibv_send_wr wr[3] = {
        {.wr_id = 1,
         .next = &wr[1],
         .sg_list = &one,
         .num_sge = 1,
         .opcode = SEND,
         .send_flags = SIGNALED},
        {.wr_id = 2,
         .next = &wr[2],
         .sg_list = sge,
         .num_sge = 64,
         .opcode = SEND,
         .send_flags = SIGNALED},
        {.wr_id = 3, .sg_list = &one, .num_sge = 1, .opcode = SEND, .send_flags = SIGNALED},
    };
    struct ibv_send_wr *bad = NULL;
    answer("posting: %s", result(ibv_post_send(a.qp, wr, &bad)));
    answer("bad is number %d", bad ? (int)(bad - wr) + 1 : 0);
    answer_wcs("sender", a.scq);
}

static void posting_by_state(void)
{
    struct end e = {0};

    end_open(&e, false);
    NEED(end_to(&e, IBV_QPS_RESET) == 0);
    answer("RESET: receive %s, send %s", result(receive(&e, 1, 8)),
           result(send_to(&e, 1, SEND, 8, SIGNALED, 0, 0)));
    struct end i = {0};
    end_open(&i, false);
    answer("INIT: receive %s, send %s", result(receive(&i, 1, 8)),
           result(send_to(&i, 1, SEND, 8, SIGNALED, 0, 0)));
    NEED(end_rtr(&i, &i, i.qp->qp_num) == 0);
    answer("RTR: receive %s, send %s", result(receive(&i, 1, 8)),
           result(send_to(&i, 1, SEND, 8, SIGNALED, 0, 0)));
}

static void posting_in_error(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(end_to(&a, IBV_QPS_ERR) == 0);
    answer("send: %s", result(send_plain(&a, SEND, 8, 0)));
    answer_wc("it", a.scq);
    answer("receive: %s", result(receive(&a, 1, 8)));
    answer_wc("it", a.rcq);
}

static void transitions(void)
{
    struct end e = {0};

    end_open(&e, false);
    answer("INIT to RTS: %s", result(end_rts(&e)));
    answer("state %s", end_state(&e));
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
    answer("INIT to RTR with attributes missing: %s",
           result(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_PATH_MTU)));
    answer("INIT to INIT: %s", result(end_to(&e, IBV_QPS_INIT)));
    NEED(end_rtr(&e, &e, e.qp->qp_num) == 0);
    answer("RTR to INIT: %s", result(end_to(&e, IBV_QPS_INIT)));
    NEED(end_rts(&e) == 0);
    answer("RTS to RTR: %s", result(end_rtr(&e, &e, e.qp->qp_num)));
    answer("RTS to ERR: %s", result(end_to(&e, IBV_QPS_ERR)));
    answer("ERR to RTS: %s", result(end_rts(&e)));
    answer("ERR to RESET: %s", result(end_to(&e, IBV_QPS_RESET)));
    answer("RESET to RTR: %s", result(end_rtr(&e, &e, e.qp->qp_num)));
    answer("state %s", end_state(&e));
}

static void bad_path(void)
{
    struct end e = {0};

    end_open(&e, false);
    struct end nowhere = e;
    nowhere.lid = 0;
    nowhere.gid_index = 0;
    uint8_t index = e.gid_index;
    e.gid_index = 250;
    answer("a GID index that does not exist: %s", result(end_rtr(&e, &nowhere, e.qp->qp_num)));
    e.gid_index = index;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 9};
    answer(
        "a port that does not exist: %s",
        result(ibv_modify_qp(
            e.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)));
    answer("state %s", end_state(&e));
}

static void error_to_reset_and_again(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(receive(&a, 1, 64) == 0);
    NEED(end_to(&a, IBV_QPS_RESET) == 0 && end_to(&b, IBV_QPS_RESET) == 0);
    answer_wcs("receives given up by RESET", a.rcq);
    struct ibv_qp_attr i = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    NEED(ibv_modify_qp(a.qp, &i, mask) == 0 && ibv_modify_qp(b.qp, &i, mask) == 0);
    NEED(end_rtr(&a, &b, b.qp->qp_num) == 0 && end_rtr(&b, &a, a.qp->qp_num) == 0);
    NEED(end_rts(&a) == 0 && end_rts(&b) == 0);
    NEED(receive(&b, 2, 64) == 0 && send_plain(&a, SEND, 8, SIGNALED) == 0);
    answer_wc("connected again, a send", a.scq);
    answer_wc("receiver", b.rcq);
}

static void too_large_to_create(void)
{
    struct end e = {0};
    struct ibv_device_attr d;

    end_open(&e, false);
    NEED(ibv_query_device(e.ctx, &d) == 0);
    struct ibv_qp_init_attr qi = {
        .send_cq = e.scq, .recv_cq = e.rcq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    struct ibv_qp_init_attr big = qi;
    big.cap.max_send_wr = (uint32_t)d.max_qp_wr + 1;
    answer("send requests: %s", pointer_result(ibv_create_qp(e.pd, &big)));
    big = qi;
    big.cap.max_recv_wr = (uint32_t)d.max_qp_wr + 1;
    answer("receives: %s", pointer_result(ibv_create_qp(e.pd, &big)));
    big = qi;
    big.cap.max_send_sge = (uint32_t)d.max_sge + 1;
    answer("segments: %s", pointer_result(ibv_create_qp(e.pd, &big)));
    big = qi;
    big.cap.max_inline_data = 1 << 20;
    answer("inline: %s", pointer_result(ibv_create_qp(e.pd, &big)));
    answer("completions: %s",
           pointer_result(ibv_create_cq(e.ctx, d.max_cqe + 1, NULL, NULL, 0)));
    answer("no completions: %s", pointer_result(ibv_create_cq(e.ctx, 0, NULL, NULL, 0)));
    struct ibv_srq_init_attr si = {
        .attr = {.max_wr = (uint32_t)d.max_srq_wr + 1, .max_sge = 1}};
    answer("shared receives: %s", pointer_result(ibv_create_srq(e.pd, &si)));
}

static void resize(void)
{
    struct end a = {.cqe = 64}, b = {0};

    ends_open(&a, &b);
    for (int i = 0; i < 8; i++)
        NEED(receive(&b, 1, 8) == 0 && send_plain(&a, SEND, 8, SIGNALED) == 0);
    answer_wcs("receiver", b.rcq);
    answer("larger: %s", result(ibv_resize_cq(a.scq, 128)));
    answer("smaller than what it holds: %s", result(ibv_resize_cq(a.scq, 4)));
    answer_wcs("what it held", a.scq);
}

static void shared_queue(void)
{
    struct end e = {.srq_wr = 16};
    struct ibv_srq_attr attr;
    unsigned n = 0;
    int ret = 0;

    end_open(&e, true);
    NEED(ibv_query_srq(e.srq, &attr) == 0);
    answer("granted at least what was asked: %s", attr.max_wr >= 16 ? "yes" : "no");
    answer("limit at first %u", attr.srq_limit);
    while (n < 100000 && (ret = receive(&e, n, 8)) == 0)
        n++;
    answer("takes %s than granted", n == attr.max_wr  ? "no more"
                                    : n < attr.max_wr ? "less"
                                                      : "more");
    answer("then %s", result(ret));
    struct ibv_sge sge = {(uintptr_t)e.buf, 8, e.mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    answer("a receive to the queue pair itself: %s", result(ibv_post_recv(e.qp, &wr, &bad)));
    attr.srq_limit = attr.max_wr + 1;
    answer("a limit beyond its size: %s", result(ibv_modify_srq(e.srq, &attr, IBV_SRQ_LIMIT)));
    answer("destroying it: %s", result(ibv_destroy_srq(e.srq)));
}

static void other_kinds(void)
{
    struct end e = {0};

    end_open(&e, false);
    struct ibv_qp_init_attr qi = {.send_cq = e.scq, .recv_cq = e.rcq, .cap = {1, 1, 1, 1, 0}};
    qi.qp_type = IBV_QPT_UC;
    answer("UC: %s", pointer_result(ibv_create_qp(e.pd, &qi)));
    qi.qp_type = IBV_QPT_UD;
    answer("UD: %s", pointer_result(ibv_create_qp(e.pd, &qi)));
    qi.qp_type = (enum ibv_qp_type)77;
    answer("type 77: %s", pointer_result(ibv_create_qp(e.pd, &qi)));
}

const struct question queue_questions[] = {
    {"send queue full", send_queue_full},
    {"receive queue full", recv_queue_full},
    {"as many segments as granted", segments_most},
    {"a segment more than granted", segments_beyond},
    {"a receive with a segment more than granted", segments_recv_beyond},
    {"inline limit", inline_beyond},
    {"inline read", inline_read},
    {"opcode that does not exist", bad_opcode},
    {"chain of three of which the second cannot be posted", chain_with_bad},
    {"posting by state", posting_by_state},
    {"posting in the error state", posting_in_error},
    {"transitions of state", transitions},
    {"path that cannot be", bad_path},
    {"reset and connected again", error_to_reset_and_again},
    {"creating what is too large", too_large_to_create},
    {"resizing a completion queue", resize},
    {"shared receive queue", shared_queue},
    {"other kinds of queue pairs", other_kinds},
    {NULL, NULL},
};
