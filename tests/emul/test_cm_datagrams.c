/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* rdma_cm's UDP port space on the software HCA, between processes; tests/verbs has the rest. */
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>

#include "tests/emul/cm_help.h"
#include "tests/emul/stop.h"

#define HEADER 40

/* A listener that is destroyed with a request open rejects it. */
PAIR(listener_goes_away, run_two)
ACTIVE(listener_goes_away)
{
    space = RDMA_PS_UDP;
    meet(s);
    struct rdma_cm_id *id = ask(PORT);
    meet(s);
    CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), 2);
    finished(id, NULL);
}
PASSIVE(listener_goes_away)
{
    space = RDMA_PS_UDP;
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT, 4);
    meet(s);
    struct rdma_cm_id *id = id_of(RDMA_CM_EVENT_CONNECT_REQUEST);
    meet(s);
    finished(id, l);
}

/* A listener that does not answer ends the request by a timeout. */
PAIR(stopped_listener, run_two)
ACTIVE(stopped_listener)
{
    space = RDMA_PS_UDP;
    setenv("EMUVERBS_CM_TIMEOUT_MS", "200", 1);
    meet(s);
    CHECK(process_stop(s->peer));
    struct rdma_cm_id *id = ask(PORT);
    CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    meet(s);
    finished(id, NULL);
}
PASSIVE(stopped_listener)
{
    space = RDMA_PS_UDP;
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT, 4);
    meet(s);
    meet(s);
    drop(l); /* and the request, for which nothing waits */
    all_gone();
}

/* Ports of the two port spaces are independent. */
TEST(port_spaces)
{
    struct rdma_cm_id *tcp = listen_at("127.0.0.1", PORT, 4);

    space = RDMA_PS_UDP;
    struct rdma_cm_id *l = new_id(NULL);
    CHECK_EQ(l->qp_type, IBV_QPT_UD);
    CHECK_EQ(rdma_bind_addr(l, at("127.0.0.1", PORT)), 0);
    setenv("EMUVERBS_LISTEN_WAIT_MS", "0", 1);
    struct rdma_cm_id *id = ask(PORT);
    CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), 1);
    drop(id);
    finished(l, tcp);
}

static struct sockaddr *group_at(int last)
{
    static struct sockaddr_in in;

    in = (struct sockaddr_in){.sin_family = AF_INET};
    /* unique on this machine */
    in.sin_addr.s_addr =
        htonl(0xef000000u | ((unsigned)getppid() & 0xffff) << 8 | (unsigned)last);
    return (struct sockaddr *)&in;
}

/* Two members of a group, like mckey's, in any order of event and leaving. */
PAIR(group_members_leave_in_any_order, run_two)
ACTIVE(group_members_leave_in_any_order)
{
    unsigned char buf[32] = "to all";

    space = RDMA_PS_UDP;
    struct rdma_cm_id *id = new_id(NULL);
    CHECK_EQ(rdma_bind_addr(id, at("127.0.0.1", 0)), 0);
    give_qp(id);
    CHECK_EQ(rdma_join_multicast(id, group_at(1), buf), 0);
    struct rdma_cm_event *e = next_event(RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(e->param.ud.private_data == buf);
    struct ibv_ah *ah = ibv_create_ah(id->pd, &e->param.ud.ah_attr);
    CHECK(ah);
    struct ibv_sge sge = {(uintptr_t)buf, sizeof(buf), 0};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
                       *bad;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = e->param.ud.qp_num;
    wr.wr.ud.remote_qkey = e->param.ud.qkey;
    CHECK_EQ(rdma_ack_cm_event(e), 0);
    meet(s);
    CHECK_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
    CHECK_EQ(wait_wc(id->send_cq).status, IBV_WC_SUCCESS);
    meet(s);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK_EQ(rdma_leave_multicast(id, group_at(1)), 0);
    CHECK_EQ(rdma_join_multicast(id, group_at(2), NULL), 0);
    CHECK_EQ(rdma_leave_multicast(id, group_at(2)), 0); /* with its event unfetched */
    CHECK(!readable(chan->fd, 0));
    CHECK_EQ(rdma_join_multicast(id, group_at(3), NULL), 0);
    drop(id); /* this one unfetched, too */
    all_gone();
}
PASSIVE(group_members_leave_in_any_order)
{
    unsigned char buf[128];
    struct rdma_cm_id *id;
    struct ibv_qp_init_attr qi = {.qp_type = IBV_QPT_UD, .cap = {16, 16, 2, 2, 32}};

    /* without a channel: the call waits for its event */
    CHECK_EQ(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), 0);
    CHECK_EQ(rdma_bind_addr(id, at("127.0.0.1", 0)), 0);
    CHECK_EQ(rdma_create_qp(id, NULL, &qi), 0);
    CHECK_EQ(rdma_join_multicast(id, group_at(1), NULL), 0);
    errno = 0;
    CHECK(rdma_join_multicast(id, group_at(1), NULL) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(rdma_join_multicast(id, at("127.0.0.1", 0), NULL) == -1 && errno == EINVAL);
    struct ibv_mr *mr = ibv_reg_mr(id->pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    CHECK_EQ(rdma_post_recv(id, NULL, buf, sizeof(buf), mr), 0);
    meet(s);
    CHECK_EQ(wait_wc(id->recv_cq).byte_len, HEADER + 32);
    CHECK(memcmp(buf + HEADER, "to all", 7) == 0);
    meet(s);
    CHECK_EQ(rdma_leave_multicast(id, group_at(1)), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    rdma_destroy_qp(id);
    CHECK_EQ(rdma_destroy_id(id), 0);
    CHECK_EQ(counter("live_cm_id"), 0);
    CHECK_EQ(counter("live_qp"), 0);
}
