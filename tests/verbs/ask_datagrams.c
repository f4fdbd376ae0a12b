/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about datagrams: UD QPs, address handles, multicast, and rdma_cm's UDP port
 * space. */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
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

/* Opens both ends; returns an address handle of the second. */
static struct ibv_ah *both(struct end *a, struct end *b)
{
    a->datagrams = b->datagrams = true;
    end_open(a, false);
    end_open(b, true);
    struct ibv_ah *ah = handle(a, &b->gid, b->lid);
    NEED(ah);
    return ah;
}

static int datagram(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
                    uint32_t length, enum ibv_wr_opcode op)
{
    struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = SIGNALED,
                             .imm_data = 0x01020304},
                       *bad;

    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    return ibv_post_send(e->qp, &wr, &bad);
}

/* Waits only shortly for a completion that must not come. */
static void answer_none(const char *who, struct ibv_cq *cq)
{
    struct ibv_wc wc;

    answer("%s: %s", who, next_wc(cq, &wc, NONE_MS) ? status_name(wc.status) : "nothing");
}

static void one(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);
    struct ibv_wc wc;

    for (int i = 0; i < 16; i++)
        a.buf[i] = (uint8_t)(0xa0 + i);
    NEED(receive(&b, 2, 256) == 0);
    answer("posting: %s",
           result(datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, IBV_WR_SEND_WITH_IMM)));
    answer_wc("sender", a.scq);
    NEED(next_wc(b.rcq, &wc, WAIT_MS));
    answer("receiver: %s", status_name(wc.status));
    answer("%u bytes", wc.byte_len);
    answer("%s header", wc.wc_flags & IBV_WC_GRH ? "with" : "without");
    answer("%s immediate",
           wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x01020304 ? "with" : "without");
    answer("its sender is %s", wc.src_qp == a.qp->qp_num ? "right" : "wrong");
    answer("its data begin %s",
           memcmp(b.buf + HEADER, a.buf, 16) == 0 ? "after 40 bytes" : "elsewhere");
}

static void reply(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);
    struct ibv_wc wc;

    NEED(receive(&b, 2, 256) == 0 && receive(&a, 2, 256) == 0);
    NEED(datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, SEND) == 0);
    NEED(next_wc(b.rcq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS);
    struct ibv_ah *back = ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)(void *)b.buf, 1);
    answer("the handle: %s", pointer_result(back));
    if (!back)
        return;
    NEED(datagram(&b, back, wc.src_qp, END_QKEY, 16, SEND) == 0);
    answer_wc("receiver of the reply", a.rcq);
}

static void no_receive(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);

    NEED(datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, SEND) == 0);
    answer_wc("sender", a.scq);
    answer_none("without a receive", b.rcq);
    NEED(receive(&b, 2, 256) == 0);
    answer_none("posted afterwards", b.rcq);
    NEED(datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, SEND) == 0);
    answer_wc("the next", b.rcq);
    answer("states %s and %s", end_state(&a), end_state(&b));
}

static void wrong_qkey(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);

    NEED(receive(&b, 2, 256) == 0);
    NEED(datagram(&a, ah, b.qp->qp_num, END_QKEY + 1, 16, SEND) == 0);
    answer_wc("sender", a.scq);
    answer_none("receiver", b.rcq);
    answer("states %s and %s", end_state(&a), end_state(&b));
}

static void own_qkey(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);

    NEED(receive(&b, 2, 256) == 0);
    NEED(datagram(&a, ah, b.qp->qp_num, 0x80000001, 16, SEND) == 0);
    answer_wc("sender", a.scq);
    answer_none("receiver", b.rcq);
}

static void short_receive(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);

    NEED(receive(&b, 2, HEADER + 15) == 0);
    NEED(datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, SEND) == 0);
    answer_wc("sender", a.scq);
    answer_wc("receiver", b.rcq);
    answer("states %s and %s", end_state(&a), end_state(&b));
}

static void over_mtu(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);
    struct ibv_port_attr port;

    NEED(ibv_query_port(a.ctx, 1, &port) == 0);
    uint32_t mtu = 128u << port.active_mtu;
    NEED(receive(&b, 2, END_SIZE) == 0);
    answer("posting a byte more: %s",
           result(datagram(&a, ah, b.qp->qp_num, END_QKEY, mtu + 1, SEND)));
    answer_wc("sender", a.scq);
    answer_none("receiver", b.rcq);
    NEED(datagram(&a, ah, b.qp->qp_num, END_QKEY, mtu, SEND) == 0);
    answer_wc("just the MTU: sender", a.scq);
    answer_wc("receiver", b.rcq);
}

static void to_nobody(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);
    uint32_t qpn = b.qp->qp_num;

    NEED(ibv_destroy_qp(b.qp) == 0);
    NEED(datagram(&a, ah, qpn, END_QKEY, 16, SEND) == 0);
    answer_wc("sender", a.scq);
    answer("state %s", end_state(&a));
}

static void not_a_send(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);
    int ret = datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, WRITE);

    answer("posting: %s", result(ret));
    if (!ret)
        answer_wc("it", a.scq);
}

static void bad_segment(void)
{
    struct end a = {0}, b = {0};
    struct ibv_ah *ah = both(&a, &b);
    struct ibv_mr *mr = a.mr;

    NEED(receive(&b, 2, 256) == 0);
    NEED(ibv_dereg_mr(mr) == 0);
    struct ibv_mr gone = {.lkey = 0x00ff0000};
    a.mr = &gone;
    answer("posting: %s", result(datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, SEND)));
    struct ibv_wc wc;
    NEED(next_wc(a.scq, &wc, WAIT_MS));
    answer("sender: %s", wc.status == IBV_WC_SUCCESS ? "success" : "an error");
    answer("state %s", end_state(&a));
}

static void transitions(void)
{
    struct end e = {.datagrams = true};
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = END_QKEY};

    end_open(&e, false);
    NEED(end_to(&e, IBV_QPS_RESET) == 0);
    answer("INIT without a Q_Key: %s",
           result(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT)));
    answer(
        "INIT with access flags: %s",
        result(ibv_modify_qp(
            e.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)));
    answer("INIT: %s",
           result(ibv_modify_qp(e.qp, &a,
                                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)));
    a.qp_state = IBV_QPS_RTR;
    answer("RTR with a path: %s", result(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_AV)));
    answer("RTR: %s", result(ibv_modify_qp(e.qp, &a, IBV_QP_STATE)));
    a.qp_state = IBV_QPS_RTS;
    answer("RTS without a number: %s", result(ibv_modify_qp(e.qp, &a, IBV_QP_STATE)));
    answer("RTS: %s", result(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN)));
    a.qkey = 5;
    answer("another Q_Key: %s", result(ibv_modify_qp(e.qp, &a, IBV_QP_QKEY)));
    struct ibv_qp_attr now;
    struct ibv_qp_init_attr init;
    NEED(ibv_query_qp(e.qp, &now, IBV_QP_QKEY, &init) == 0);
    answer("it is asked: %s", now.qkey == 5 ? "the new one" : "another");
}

static void handles(void)
{
    struct end e = {.datagrams = true};
    struct ibv_ah_attr a = {.port_num = 9, .is_global = 1};

    end_open(&e, false);
    a.grh.dgid = e.gid;
    answer("of a port that does not exist: %s", pointer_result(ibv_create_ah(e.pd, &a)));
    struct ibv_pd *pd = ibv_alloc_pd(e.ctx);
    a.port_num = 1;
    a.grh.sgid_index = e.lid ? 0 : e.gid_index;
    a.dlid = e.lid;
    struct ibv_ah *ah = pd ? ibv_create_ah(pd, &a) : NULL;
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

static void groups(void)
{
    struct end a = {0}, rc = {0};

    a.datagrams = true;
    end_open(&a, false);
    end_open(&rc, false);
    union ibv_gid g = group(&a, 1);
    uint16_t lid = a.lid ? 0xc001 : 0;
    answer("a queue pair of type RC: %s", result(ibv_attach_mcast(rc.qp, &g, lid)));
    answer("an address that is no group: %s", result(ibv_attach_mcast(a.qp, &a.gid, lid)));
    answer("attaching: %s", result(ibv_attach_mcast(a.qp, &g, lid)));
    answer("again: %s", result(ibv_attach_mcast(a.qp, &g, lid)));
    answer("destroying the queue pair: %s", result(ibv_destroy_qp(a.qp)));
    answer("detaching: %s", result(ibv_detach_mcast(a.qp, &g, lid)));
    answer("again: %s", result(ibv_detach_mcast(a.qp, &g, lid)));
    answer("destroying the queue pair: %s", result(ibv_destroy_qp(a.qp)));
}

static void to_group(void)
{
    struct end a = {0}, b = {0};

    both(&a, &b);
    union ibv_gid g = group(&a, 2);
    uint16_t lid = a.lid ? 0xc001 : 0;
    struct ibv_ah *ah = handle(&a, &g, lid);
    NEED(ah && ibv_attach_mcast(b.qp, &g, lid) == 0);
    NEED(receive(&b, 2, 256) == 0);
    NEED(datagram(&a, ah, b.qp->qp_num, END_QKEY, 16, SEND) == 0);
    answer_wc("to the number of the queue pair: sender", a.scq);
    answer_none("receiver", b.rcq);
    NEED(datagram(&a, ah, 0xffffff, END_QKEY, 16, SEND) == 0);
    answer_wc("to the group: sender", a.scq);
    answer_none("receiver", b.rcq);
    NEED(ibv_detach_mcast(b.qp, &g, lid) == 0 && receive(&b, 3, 256) == 0);
    NEED(datagram(&a, ah, 0xffffff, END_QKEY, 16, SEND) == 0);
    answer_wc("after it was left: sender", a.scq);
    answer_none("receiver", b.rcq);
}

/* ---- rdma_cm ---- */

static struct rdma_event_channel *channel;
static uint8_t data[256];

static struct sockaddr *address(int port)
{
    static struct sockaddr_in in;

    in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    NEED(inet_pton(AF_INET, cm_address, &in.sin_addr) == 1);
    return (struct sockaddr *)&in;
}

static struct rdma_cm_id *new_id(void)
{
    struct rdma_cm_id *id;

    if (!channel)
        channel = rdma_create_event_channel();
    NEED(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
    return id;
}

static struct rdma_cm_event expect(enum rdma_cm_event_type type)
{
    struct rdma_cm_event *e, copy;

    NEED(readable(channel->fd, WAIT_MS) && rdma_get_cm_event(channel, &e) == 0);
    copy = *e;
    memset(data, 0, sizeof(data));
    if (e->param.ud.private_data && e->event != RDMA_CM_EVENT_MULTICAST_JOIN)
        memcpy(data, e->param.ud.private_data, e->param.ud.private_data_len);
    rdma_ack_cm_event(e);
    NEED(copy.event == type);
    return copy;
}

static void give_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr qi = {.qp_type = IBV_QPT_UD, .cap = {16, 16, 1, 1, 0}};

    NEED(rdma_create_qp(id, NULL, &qi) == 0);
}

static struct rdma_cm_id *resolved(int port)
{
    struct rdma_cm_id *id = new_id();

    NEED(rdma_resolve_addr(id, NULL, address(port), 2000) == 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    NEED(rdma_resolve_route(id, 2000) == 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_qp(id);
    return id;
}

static struct rdma_conn_param parameters(int length)
{
    static uint8_t bytes[256];

    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i + 1);
    return (struct rdma_conn_param){.private_data = bytes, .private_data_len = (uint8_t)length};
}

static int right_bytes(void)
{
    int n = 0;

    while (n < 255 && data[n] == (uint8_t)(n + 1))
        n++;
    return n;
}

static struct rdma_cm_id *asked(struct rdma_cm_id **active)
{
    struct rdma_conn_param p = parameters(181);
    struct rdma_cm_id *listener = new_id();

    NEED(rdma_bind_addr(listener, address(cm_port)) == 0 && rdma_listen(listener, 4) == 0);
    *active = resolved(cm_port);
    answer("queue pair in %s", qp_state((*active)->qp));
    answer("181 bytes: %s", result(rdma_connect(*active, &p)));
    p = parameters(180);
    answer("180 bytes: %s", result(rdma_connect(*active, &p)));
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    answer("the listener gets %d, right are %d", e.param.ud.private_data_len, right_bytes());
    return e.id;
}

static void too_long_answer(void)
{
    struct rdma_conn_param p = parameters(137);
    struct rdma_cm_id *id, *other = asked(&id);

    give_qp(other);
    answer("137 bytes: %s", result(rdma_accept(other, &p)));
}

static void resolve_service(void)
{
    struct rdma_conn_param p = parameters(136);
    struct rdma_cm_id *id, *other = asked(&id);
    static unsigned char buf[256];
    struct ibv_wc wc;

    give_qp(other);
    answer("answering with 136 bytes: %s", result(rdma_accept(other, &p)));
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_ESTABLISHED);
    answer("the active side gets %d, right are %d", e.param.ud.private_data_len, right_bytes());
    answer("it is told %s", e.id == id && e.param.ud.qp_num == other->qp->qp_num
                                ? "the queue pair"
                                : "another queue pair");
    answer("Q_Key %x", e.param.ud.qkey);
    answer("the passive side: %s", readable(channel->fd, NONE_MS) ? "an event" : "no event");
    struct ibv_mr *mr = ibv_reg_mr(other->pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah *ah = ibv_create_ah(id->pd, &e.param.ud.ah_attr);
    NEED(mr && ah);
    struct ibv_sge sge = {(uintptr_t)buf, sizeof(buf), mr->lkey};
    struct ibv_recv_wr rr = {.sg_list = &sge, .num_sge = 1}, *bad_rr;
    NEED(ibv_post_recv(other->qp, &rr, &bad_rr) == 0);
    struct ibv_send_wr wr = {.opcode = SEND, .send_flags = SIGNALED}, *bad;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = e.param.ud.qp_num;
    wr.wr.ud.remote_qkey = e.param.ud.qkey;
    NEED(ibv_post_send(id->qp, &wr, &bad) == 0);
    NEED(next_wc(other->recv_cq, &wc, WAIT_MS));
    answer("a datagram there: %s, %u bytes", status_name(wc.status), wc.byte_len);
    answer("disconnecting: %s", result(rdma_disconnect(id)));
}

static void refused_service(void)
{
    struct rdma_cm_id *id, *other = asked(&id);

    answer("refusing: %s", result(rdma_reject(other, NULL, 0)));
    answer("status %d", expect(RDMA_CM_EVENT_UNREACHABLE).status);
}

static void no_service(void)
{
    struct rdma_conn_param p = parameters(4);
    struct rdma_cm_id *id = resolved(cm_port);

    NEED(rdma_connect(id, &p) == 0);
    answer("status %d", expect(RDMA_CM_EVENT_UNREACHABLE).status);
}

static void join(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct rdma_cm_id *id = new_id();

    to.sin_addr.s_addr = htonl(0xef070703);
    answer("without an address: %s",
           result(rdma_join_multicast(id, (struct sockaddr *)&to, NULL)));
    NEED(rdma_bind_addr(id, address(0)) == 0);
    give_qp(id);
    answer("joining: %s", result(rdma_join_multicast(id, (struct sockaddr *)&to, &to)));
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_MULTICAST_JOIN);
    answer("status %d", e.status);
    answer("the context is %s", e.param.ud.private_data == &to ? "right" : "wrong");
    answer("queue pair %x, Q_Key %x", e.param.ud.qp_num, e.param.ud.qkey);
    const uint8_t *gid = e.param.ud.ah_attr.grh.dgid.raw;
    bool v4 = gid[0] == 0 && gid[10] == 0xff && gid[12] == 239;
    answer("a group: %s",
           e.param.ud.ah_attr.is_global && (gid[0] == 0xff || v4) ? "yes" : "no");
    answer("leaving: %s", result(rdma_leave_multicast(id, (struct sockaddr *)&to)));
    answer("again: %s", result(rdma_leave_multicast(id, (struct sockaddr *)&to)));
}

const struct question datagram_questions[] = {
    {"datagram", one},
    {"reply to a datagram", reply},
    {"datagram without a receive", no_receive},
    {"datagram with a wrong Q_Key", wrong_qkey},
    {"datagram with the sender's Q_Key", own_qkey},
    {"datagram longer than its receive", short_receive},
    {"datagram longer than the MTU", over_mtu},
    {"datagram to nobody", to_nobody},
    {"datagram that is a write", not_a_send},
    {"datagram from memory that is not registered", bad_segment},
    {"states of a queue pair for datagrams", transitions},
    {"address handles", handles},
    {"multicast groups", groups},
    {"multicast", to_group},
    {"asking where to send datagrams", resolve_service},
    {"answering more than fits where to send datagrams", too_long_answer},
    {"refusing to say where to send datagrams", refused_service},
    {"asking where nobody listens", no_service},
    {"joining a group by its address", join},
    {NULL, NULL},
};
