/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about datagrams: UD QPs, address handles, multicast. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/verbs/ask.h"

#define HEADER 40 /* bytes before a datagram's data */

static struct ibv_ah *handle(struct end *e, const union ibv_gid *to, uint16_t lid)
{
    struct ibv_ah_attr a = {
        .port_num = 1, .dlid = lid, .is_global = 1, .grh = {.dgid = *to, .hop_limit = 16}};

    a.grh.sgid_index = e->lid ? 0 : e->gid_index;
    return ibv_create_ah(e->pd, &a);
}

/* Aims datagrams of a at b, which gets a receive of so many bytes, 0: none. */
static void aim(struct end *a, struct end *b, uint32_t bytes)
{
    a->ah = handle(a, &b->gid, b->lid);
    a->to = b->qp->qp_num;
    a->qkey = END_QKEY;
    NEED(a->ah && (bytes == 0 || receive(b, 2, bytes) == 0));
}

static int datagram(struct end *e, uint32_t length, enum ibv_wr_opcode op)
{
    return send_to(e, 1, op, length, SIGNALED, 0, 0);
}

ASK(one)
{
    struct ibv_wc wc;

    for (int i = 0; i < 16; i++)
        a->buf[i] = (uint8_t)(0xa0 + i);
    aim(a, b, 256);
    posted(datagram(a, 16, IBV_WR_SEND_WITH_IMM));
    tell(a, b, "sender");
    NEED(next_wc(b->rcq, &wc, WAIT_MS));
    answer("receiver: %s", status_name(wc.status));
    answer("%u bytes", wc.byte_len);
    answer("%s header", wc.wc_flags & IBV_WC_GRH ? "with" : "without");
    answer("%s immediate",
           wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x01020304 ? "with" : "without");
    answer("its sender is %s", wc.src_qp == a->qp->qp_num ? "right" : "wrong");
    answer("its data begin %s",
           memcmp(b->buf + HEADER, a->buf, 16) == 0 ? "after 40 bytes" : "elsewhere");
}

ASK(reply)
{
    struct ibv_wc wc;

    aim(a, b, 256);
    NEED(receive(a, 2, 256) == 0 && datagram(a, 16, SEND) == 0);
    NEED(next_wc(b->rcq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS);
    aim(b, a, 0);
    b->to = wc.src_qp;
    b->ah = ibv_create_ah_from_wc(b->pd, &wc, (struct ibv_grh *)(void *)b->buf, 1);
    answer("the handle: %s", pointer_result(b->ah));
    if (b->ah == NULL)
        return;
    NEED(datagram(b, 16, SEND) == 0);
    answer_wc("receiver of the reply", a->rcq);
}

static void answer_none(const char *who, struct ibv_cq *cq)
{
    struct ibv_wc wc;

    answer("%s: %s", who, next_wc(cq, &wc, NONE_MS) ? status_name(wc.status) : "nothing");
}

ASK(no_receive)
{
    aim(a, b, 0);
    NEED(datagram(a, 16, SEND) == 0);
    tell(a, b, "sender");
    answer_none("without a receive", b->rcq);
    NEED(receive(b, 2, 256) == 0);
    answer_none("posted afterwards", b->rcq);
    NEED(datagram(a, 16, SEND) == 0);
    answer_wc("the next", b->rcq);
    tell(a, b, "states");
}

/* A datagram to a receive of n bytes. */
ASK(sent)
{
    aim(a, b, (uint32_t)asked->n);
    a->qkey = asked->a.qkey;
    NEED(datagram(a, 16, SEND) == 0);
    tell(a, b, asked->tell);
}

ASK(over_mtu)
{
    struct ibv_port_attr port;

    NEED(ibv_query_port(a->ctx, 1, &port) == 0);
    uint32_t mtu = 128u << port.active_mtu;
    aim(a, b, END_SIZE);
    answer("posting a byte more: %s", result(datagram(a, mtu + 1, SEND)));
    tell(a, b, "sender receiver?");
    NEED(datagram(a, mtu, SEND) == 0);
    answer_wc("just the MTU: sender", a->scq);
    tell(a, b, "receiver");
}

ASK(to_nobody)
{
    aim(a, b, 0);
    NEED(ibv_destroy_qp(b->qp) == 0 && datagram(a, 16, SEND) == 0);
    tell(a, b, "sender state");
}

ASK(not_a_send)
{
    aim(a, b, 0);
    if (posted(datagram(a, 16, WRITE)))
        tell(a, b, "it");
}

ASK(bad_segment)
{
    struct ibv_mr *mr = a->mr, gone = {.lkey = 0x00ff0000};
    struct ibv_wc wc;

    aim(a, b, 256);
    NEED(ibv_dereg_mr(mr) == 0);
    a->mr = &gone;
    posted(datagram(a, 16, SEND));
    NEED(next_wc(a->scq, &wc, WAIT_MS));
    answer("sender: %s", wc.status == IBV_WC_SUCCESS ? "success" : "an error");
    tell(a, b, "state");
}

ASK(transitions)
{
    static const struct {
        const char *what;
        enum ibv_qp_state state;
        int mask;
    } steps[] = {
        {"INIT without a Q_Key", IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT},
        {"INIT with access flags", IBV_QPS_INIT,
         IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
        {"INIT", IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
        {"RTR with a path", IBV_QPS_RTR, IBV_QP_AV},
        {"RTR", IBV_QPS_RTR, 0},
        {"RTS without a number", IBV_QPS_RTS, 0},
        {"RTS", IBV_QPS_RTS, IBV_QP_SQ_PSN},
    };
    struct ibv_qp_attr attr = {.port_num = 1, .qkey = END_QKEY}, now;
    struct ibv_qp_init_attr init;

    NEED(end_to(a, IBV_QPS_RESET) == 0);
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        attr.qp_state = steps[i].state;
        answer("%s: %s", steps[i].what,
               result(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE | steps[i].mask)));
    }
    attr.qkey = 5;
    answer("another Q_Key: %s", result(ibv_modify_qp(a->qp, &attr, IBV_QP_QKEY)));
    NEED(ibv_query_qp(a->qp, &now, IBV_QP_QKEY, &init) == 0);
    answer("it is asked: %s", now.qkey == 5 ? "the new one" : "another");
}

ASK(handles)
{
    struct ibv_ah_attr attr = {.port_num = 9, .is_global = 1};

    attr.grh.dgid = a->gid;
    answer("of a port that does not exist: %s", pointer_result(ibv_create_ah(a->pd, &attr)));
    struct ibv_pd *pd = ibv_alloc_pd(a->ctx);
    struct end other = *a;
    other.pd = pd;
    struct ibv_ah *ah = pd != NULL ? handle(&other, &a->gid, a->lid) : NULL;
    NEED(ah);
    answer("deallocating the domain: %s", result(ibv_dealloc_pd(pd)));
    answer("destroying it: %s", result(ibv_destroy_ah(ah)));
    answer("the domain then: %s", result(ibv_dealloc_pd(pd)));
}

/* Returns a group's GID: on Ethernet an IPv4 address. */
static union ibv_gid group(const struct end *e, uint8_t last)
{
    union ibv_gid g = {.raw = {[10] = 0xff, 0xff, 239, 7, 7, last}};

    if (e->lid) {
        g.raw[0] = 0xff;
        g.raw[1] = 0x12;
    }
    return g;
}

ASK(groups)
{
    struct end rc = {0};

    end_open(&rc, false);
    union ibv_gid g = group(a, 1);
    uint16_t lid = a->lid ? 0xc001 : 0;
    answer("a queue pair of type RC: %s", result(ibv_attach_mcast(rc.qp, &g, lid)));
    answer("an address that is no group: %s", result(ibv_attach_mcast(a->qp, &a->gid, lid)));
    answer("attaching: %s", result(ibv_attach_mcast(a->qp, &g, lid)));
    answer("again: %s", result(ibv_attach_mcast(a->qp, &g, lid)));
    answer("destroying the queue pair: %s", result(ibv_destroy_qp(a->qp)));
    answer("detaching: %s", result(ibv_detach_mcast(a->qp, &g, lid)));
    answer("again: %s", result(ibv_detach_mcast(a->qp, &g, lid)));
    answer("destroying the queue pair: %s", result(ibv_destroy_qp(a->qp)));
}

ASK(to_group)
{
    union ibv_gid g = group(a, 2);
    uint16_t lid = a->lid ? 0xc001 : 0;

    aim(a, b, 256);
    a->ah = handle(a, &g, lid);
    NEED(a->ah && ibv_attach_mcast(b->qp, &g, lid) == 0);
    static const char *const what[] = {"to the number of the queue pair: sender",
                                       "to the group: sender", "after it was left: sender"};
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            a->to = 0xffffff;
        if (i == 2)
            NEED(ibv_detach_mcast(b->qp, &g, lid) == 0 && receive(b, 3, 256) == 0);
        NEED(datagram(a, 16, SEND) == 0);
        answer_wc(what[i], a->scq);
        tell(a, b, "receiver?");
    }
}

#define BOTH .setup = APART, .a.datagrams = true, .b.datagrams = true
#define ONE  .setup = ALONE, .a.datagrams = true

const struct question datagram_questions[] = {
    {"datagram", one, BOTH},
    {"reply to a datagram", reply, BOTH},
    {"datagram without a receive", no_receive, BOTH},
    {"datagram with a wrong Q_Key", sent, BOTH, .a.qkey = END_QKEY + 1, .n = 256,
     .tell = "sender receiver? states"},
    {"datagram with the sender's Q_Key", sent, BOTH, .a.qkey = 0x80000001, .n = 256,
     .tell = "sender receiver?"},
    {"datagram longer than its receive", sent, BOTH, .a.qkey = END_QKEY, .n = HEADER + 15,
     .tell = "sender receiver states"},
    {"datagram longer than the MTU", over_mtu, BOTH},
    {"datagram to nobody", to_nobody, BOTH},
    {"datagram that is a write", not_a_send, BOTH},
    {"datagram from memory that is not registered", bad_segment, BOTH},
    {"states of a queue pair for datagrams", transitions, ONE},
    {"address handles", handles, ONE},
    {"multicast groups", groups, ONE},
    {"multicast", to_group, BOTH},
    {NULL},
};
