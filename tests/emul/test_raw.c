/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Raw packets: delivery by flows, and unsupported requests. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/syscall.h>

#include "tests/emul/pair.h"

static struct ibv_qp *raw_qp(struct side *s)
{
    struct ibv_qp_init_attr qi = {.send_cq = s->scq,
                                  .recv_cq = s->rcq,
                                  .qp_type = IBV_QPT_RAW_PACKET,
                                  .cap = {16, 16, 2, 2, 128}};

    return ibv_create_qp(s->pd, &qi);
}

static bool permitted(void)
{
    struct side s = {0};

    setenv("EMUVERBS_ETHERNET", "1", 1);
    side_open(&s);
    struct ibv_qp *qp = raw_qp(&s);
    bool ok = qp != NULL || errno != EPERM;
    if (qp != NULL)
        CHECK_EQ(ibv_destroy_qp(qp), 0);
    side_close(&s);
    if (!ok)
        printf("skipped: raw packets need CAP_NET_RAW\n");
    return ok;
}

/* Opens a side with a QP for raw packets. */
static void open_raw(struct side *s)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

    setenv("EMUVERBS_ETHERNET", "1", 1);
    side_open(s);
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    s->qp = raw_qp(s);
    CHECK(s->qp);
    CHECK_EQ(ibv_modify_qp(s->qp, &a, IBV_QP_STATE), EINVAL); /* no port */
    CHECK_EQ(ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PORT), 0);
    a.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(s->qp, &a, IBV_QP_STATE), 0);
    a.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(s->qp, &a, IBV_QP_STATE), 0);
}

struct flow {
    struct ibv_flow_attr attr;
    struct ibv_flow_spec_eth eth;
    union {
        struct ibv_flow_spec_ipv4_ext v4;
        struct ibv_flow_spec_ipv6 v6;
        struct ibv_flow_spec_tcp_udp ports;
    };
} __attribute__((packed, aligned(4)));

/* Flows apply to the whole machine: part of this run's unique addresses. */
static uint32_t this_run;

static void number_run(void)
{
    this_run = (uint32_t)getpid();
}

__attribute__((constructor)) static void before(void)
{
    emul_before(number_run);
}

/* Makes a flow for the address 02:…:to. */
static struct flow flow_to(uint8_t to)
{
    struct flow f = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .num_of_specs = 1, .port = 1, .priority = 3},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(f.eth)}};

    memset(f.eth.mask.dst_mac, 0xff, 6);
    f.eth.val.dst_mac[0] = 2;
    memcpy(&f.eth.val.dst_mac[1], &this_run, sizeof(this_run));
    f.eth.val.dst_mac[5] = to;
    return f;
}

static struct ibv_flow *make(struct side *s, struct flow *f)
{
    struct ibv_flow *flow = ibv_create_flow(s->qp, &f->attr);

    CHECK(flow);
    return flow;
}

/* Makes a frame with UDP or TCP over IPv4 or IPv6, optionally with a VLAN tag. Returns its
 * length. */
static uint32_t frame(unsigned char *p, uint8_t to, int version, uint8_t proto, bool vlan)
{
    unsigned char *at = p + 12;

    memset(p, 0, 200);
    p[0] = 2, p[5] = to, p[6] = 2, p[11] = 0x77;
    memcpy(p + 1, &this_run, sizeof(this_run));
    if (vlan)
        memcpy(at, "\x81\x00\x20\x05", 4), at += 4;
    memcpy(at, version == 4 ? "\x08\x00" : "\x86\xdd", 2), at += 2;
    if (version == 4) {
        at[0] = 0x46, at[1] = 0x10, at[8] = 64, at[9] = proto; /* with an option */
        memcpy(at + 12, "\x0a\x00\x00\x01\x0a\x00\x00\x02", 8);
        at += 24;
    } else {
        at[0] = 0x61, at[1] = 0x23, at[2] = 0x45, at[3] = 0x67, at[6] = proto, at[7] = 9;
        memset(at + 8, 0xfd, 32);
        at += 40;
    }
    memcpy(at, "\x12\x34\x56\x78", 4);
    pattern(at + 20, 40, 5);
    return (uint32_t)(at + 60 - p);
}

static void put(struct side *s, uint64_t id, uint32_t len)
{
    post_to(s, id, SEND, 0, len, 0, 0);
    CHECK_EQ(expect_wc(s->scq, id, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
}

/* Returns whether the frame at the start of a's buffer reaches b. */
static bool arrives(struct side *a, struct side *b, uint32_t len)
{
    struct ibv_wc wc;

    put(a, 1, len);
    if (ibv_poll_cq(b->rcq, 1, &wc) == 0)
        return false;
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, len);
    CHECK_EQ(wc.wc_flags, 0);
    CHECK(memcmp(a->buf, b->buf + 4096, len) == 0);
    post_recv(b, 9, 4096, 2048);
    return true;
}

static void open_two(struct side *a, struct side *b)
{
    open_raw(a);
    open_raw(b);
    post_recv(b, 9, 4096, 2048);
}

TEST(frame_without_flow_is_lost)
{
    struct side a = {0}, b = {0};
    struct flow f = flow_to(1);

    if (!permitted())
        return;
    open_two(&a, &b);
    int64_t lost = counter("datagrams_lost");
    uint32_t len = frame(a.buf, 1, 4, 17, false);
    CHECK(!arrives(&a, &b, len));
    CHECK_EQ(counter("datagrams_lost"), lost + 1);
    struct ibv_flow *flow = make(&b, &f);
    CHECK(arrives(&a, &b, len));
    CHECK_EQ(ibv_destroy_qp(b.qp), EBUSY); /* has a flow */
    frame(a.buf, 2, 4, 17, false);
    CHECK(!arrives(&a, &b, len));
    put(&a, 2, 13); /* too short */
    put(&a, 3, 4096 + 19);
    expect_none(b.rcq);
    CHECK_EQ(ibv_destroy_flow(flow), 0);
    frame(a.buf, 1, 4, 17, false);
    CHECK(!arrives(&a, &b, len));
    CHECK_EQ(counter("live_flow"), 0);
    loop_close(&a, &b);
}

/* Each field alone decides. */
TEST(flow_matches_each_field)
{
    struct side a = {0}, b = {0};

    if (!permitted())
        return;
    open_two(&a, &b);
    for (int k = 0; k < 10; k++) {
        struct flow f = flow_to(1);
        struct ibv_flow *flow;
        int version = k < 5 ? 4 : 6;
        bool vlan = k == 0 || k == 9;
        uint8_t proto = k == 4 || k == 8 ? 6 : 17;
        uint32_t len = frame(a.buf, 1, version, proto, vlan);
        for (int wrong = 0; wrong < 2; wrong++) {
            f.attr.num_of_specs = k && k != 9 ? 2 : 1;
            if (k == 0 || k == 9) {
                f.eth.val.vlan_tag = htons((uint16_t)(0x2005 + wrong));
                f.eth.mask.vlan_tag = 0xffff;
                f.eth.val.ether_type = htons(version == 4 ? 0x0800 : 0x86dd);
                f.eth.mask.ether_type = 0xffff;
            } else if (k == 4 || k == 8 || k == 3) {
                memset(&f.ports, 0, sizeof(f.ports));
                f.ports.type =
                    (proto == 6) != (wrong && k == 8) ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
                f.ports.size = sizeof(f.ports);
                f.ports.val.src_port = htons(0x1234);
                f.ports.val.dst_port = htons((uint16_t)(0x5678 + (wrong && k != 8)));
                f.ports.mask.src_port = f.ports.mask.dst_port = 0xffff;
            } else if (version == 4) {
                memset(&f.v4, 0, sizeof(f.v4));
                f.v4.type = IBV_FLOW_SPEC_IPV4_EXT;
                f.v4.size = sizeof(f.v4);
                f.v4.val.src_ip = htonl(0x0a000001u + (wrong && k == 1));
                f.v4.mask.src_ip = 0xffffffff;
                f.v4.val.tos = (uint8_t)(0x10 + (wrong && k == 2));
                f.v4.mask.tos = 0xff;
            } else {
                memset(&f.v6, 0, sizeof(f.v6));
                f.v6.type = IBV_FLOW_SPEC_IPV6;
                f.v6.size = sizeof(f.v6);
                memset(f.v6.val.dst_ip, 0xfd, 16);
                f.v6.val.dst_ip[15] ^= wrong && k == 5;
                memset(f.v6.mask.dst_ip, 0xff, 16);
                f.v6.val.flow_label = htonl(0x34567u + (wrong && k == 6));
                f.v6.mask.flow_label = htonl(0xfffff);
                f.v6.val.traffic_class = (uint8_t)(0x12 + (wrong && k == 7));
                f.v6.mask.traffic_class = 0xff;
            }
            flow = make(&b, &f);
            if (arrives(&a, &b, len) != !wrong) {
                fprintf(stderr, "field %d, %s\n", k, wrong ? "wrong" : "right");
                CHECK(false);
            }
            CHECK_EQ(ibv_destroy_flow(flow), 0);
        }
    }
    loop_close(&a, &b);
}

/* Without permission for packet sockets no such QP can be made. */
SIDE(raw_qp_needs_permission, .env = "EMUVERBS_ETHERNET=1")
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];

    CHECK_EQ(syscall(SYS_capget, &head, caps), 0);
    caps[0].effective &= ~(1u << CAP_NET_RAW);
    CHECK_EQ(syscall(SYS_capset, &head, caps), 0);
    CHECK(!raw_qp(s) && errno == EPERM);
}
