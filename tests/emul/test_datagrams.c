/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Datagrams of the software HCA in one process, in cases not put to rxe in tests/verbs. */
#include <sys/mman.h>

#include "tests/emul/datagrams.h"

static unsigned sum16(const unsigned char *p, unsigned n)
{
    unsigned sum = 0;

    for (unsigned i = 0; i < n; i += 2)
        sum += (unsigned)p[i] << 8 | p[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* Checks the header before the data, by link layer, and the sender's address found from it. */
static void one_header(bool ethernet)
{
    struct side s = {0};

    setenv("EMUVERBS_ETHERNET", ethernet ? "1" : "0", 1);
    open_ud(&s);
    union ibv_gid own = gid_of(&s);
    struct ibv_ah *ah = handle(&s, own, ethernet ? 0 : 1);
    post_recv(&s, 5, 4096, 200);
    datagram(&s, 1, ah, s.qp->qp_num, 0, 10);
    struct ibv_wc wc = expect_wc(s.rcq, 5, IBV_WC_SUCCESS);
    const unsigned char *h = s.buf + 4096;
    CHECK_EQ(wc.byte_len, HEADER + 10);
    CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
    CHECK_EQ(wc.sl, 3);
    CHECK_EQ(wc.src_qp, s.qp->qp_num);
    if (ethernet) {
        CHECK_EQ(h[20], 0x45);
        CHECK_EQ(h[28], 9);
        CHECK_EQ(h[29], 17);
        CHECK_EQ(sum16(h + 20, 20), 0xffff);
        CHECK(memcmp(h + 32, own.raw + 12, 4) == 0 && memcmp(h + 36, own.raw + 12, 4) == 0);
    } else {
        CHECK_EQ(h[0] << 24 | h[1] << 16 | h[2] << 8 | h[3], 0x6a554321);
        CHECK_EQ(h[6], 0x1b);
        CHECK_EQ(h[7], 9);
        CHECK(memcmp(h + 8, &own, 16) == 0 && memcmp(h + 24, &own, 16) == 0);
    }
    struct ibv_ah_attr back = {0};
    CHECK_EQ(ibv_init_ah_from_wc(s.ctx, 1, &wc, (struct ibv_grh *)(uintptr_t)h, &back), 0);
    CHECK(back.is_global && memcmp(&back.grh.dgid, &own, 16) == 0);
    CHECK_EQ(back.grh.traffic_class, 0xa5);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    if (!ethernet) { /* a LID alone gives none */
        struct ibv_ah_attr lid = {.port_num = 1, .dlid = 1};
        ah = ibv_create_ah(s.pd, &lid);
        CHECK(ah);
        post_recv(&s, 6, 4096, 200);
        datagram(&s, 2, ah, s.qp->qp_num, 0, 10);
        CHECK_EQ(expect_wc(s.rcq, 6, IBV_WC_SUCCESS).wc_flags, 0);
        CHECK_EQ(ibv_destroy_ah(ah), 0);
    }
    side_close(&s);
}
TEST(datagram_header_is_received)
{
    one_header(false);
}
TEST(header_on_ethernet)
{
    one_header(true);
}

/* RoCE v1 has InfiniBand's header, v2 that of its IP; the answer goes out from the same GID. */
TEST(header_has_the_version_of_its_gid)
{
    struct side s = {0};

    setenv("EMUVERBS_ETHERNET", "2", 1);
    open_ud(&s);
    for (uint8_t i = 0; i < 4; i++) {
        const unsigned char *h = s.buf + 4096;
        struct ibv_ah_attr to = {.port_num = 1, .is_global = 1, .grh = {.sgid_index = i}};
        struct ibv_ah_attr back;
        CHECK_EQ(ibv_query_gid(s.ctx, 1, i, &to.grh.dgid), 0);
        struct ibv_ah *ah = ibv_create_ah(s.pd, &to);
        CHECK(ah);
        post_recv(&s, i, 4096, 200);
        datagram(&s, 1, ah, s.qp->qp_num, 0, 10);
        struct ibv_wc wc = expect_wc(s.rcq, i, IBV_WC_SUCCESS);
        CHECK_EQ(h[6], i == 0 || i == 2 ? 0x1b : i == 1 ? 17 : 0);
        CHECK(i != 3 || h[20] == 0x45);
        CHECK_EQ(ibv_init_ah_from_wc(s.ctx, 1, &wc, (struct ibv_grh *)(uintptr_t)h, &back), 0);
        CHECK_EQ(back.grh.sgid_index, i);
        CHECK(memcmp(&back.grh.dgid, &to.grh.dgid, 16) == 0);
        CHECK_EQ(ibv_destroy_ah(ah), 0);
    }
    side_close(&s);
}

/* A member whose memory is partly unmapped gets a part, and the next one everything. */
TEST(failing_member_stops_no_other)
{
    struct side s = {0};
    union ibv_gid g = group();

    setenv("EMUVERBS_BOUNCE_MAX", "0", 1); /* copied at once */
    open_ud(&s);
    g.raw[8] = (unsigned char)(getpid() >> 8);
    g.raw[9] = (unsigned char)getpid();
    struct ibv_qp *second = ud_qp(&s, NULL, 0);
    struct ibv_ah *ah = handle(&s, g, 0xc001);
    CHECK_EQ(ibv_attach_mcast(s.qp, &g, 0xc001), 0);
    CHECK_EQ(ibv_attach_mcast(second, &g, 0xc001), 0);
    struct ibv_sge two[] = {{(uintptr_t)s.buf + 4096, HEADER + 20, s.mr->lkey},
                            {(uintptr_t)s.buf + 8192, 200, s.mr->lkey}};
    struct ibv_sge sge = {(uintptr_t)s.buf + 16384, 200, s.mr->lkey};
    struct ibv_recv_wr first = {.wr_id = 11, .sg_list = two, .num_sge = 2}, *bad;
    struct ibv_recv_wr wr = {.wr_id = 12, .sg_list = &sge, .num_sge = 1};
    CHECK_EQ(ibv_post_recv(s.qp, &first, &bad), 0);
    CHECK_EQ(ibv_post_recv(second, &wr, &bad), 0);
    CHECK(mmap(s.buf + 8192, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          s.buf + 8192);
    pattern(s.buf, 100, 3);
    CHECK_EQ(try_from(&s, second, 1, ah, GROUP, 0, 100, IBV_SEND_SIGNALED), 0);
    expect_wc(s.scq, 1, IBV_WC_SUCCESS);
    expect_wc(s.rcq, 11, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(expect_wc(s.rcq, 12, IBV_WC_SUCCESS).byte_len, HEADER + 100);
    CHECK(is_pattern(s.buf + 4096 + HEADER, 20, 3));
    CHECK(is_pattern(s.buf + 16384 + HEADER, 100, 3));
    CHECK_EQ(mprotect(s.buf + 8192, 4096, PROT_READ | PROT_WRITE), 0);
    CHECK_EQ(ibv_detach_mcast(s.qp, &g, 0xc001), 0);
    CHECK_EQ(ibv_detach_mcast(second, &g, 0xc001), 0);
    CHECK_EQ(ibv_destroy_qp(second), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(&s);
}

/* Receives of an SRQ serve QPs for datagrams, too. */
TEST(shared_receives)
{
    struct side s = {.use_srq = true};

    open_ud(&s);
    struct ibv_ah *ah = handle(&s, gid_of(&s), 1);
    datagram(&s, 1, ah, s.qp->qp_num, 0, 10);
    CHECK_EQ(counter("datagrams_lost"), 1);
    post_recv(&s, 1, 4096, HEADER + 10);
    datagram(&s, 2, ah, s.qp->qp_num, 0, 10);
    expect_wc(s.rcq, 1, IBV_WC_SUCCESS);
    expect_none(s.rcq);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(&s);
}

/* A handle may be destroyed while a request with it waits. */
TEST(handle_destroyed_early)
{
    struct side s = {0};
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD};

    open_ud(&s);
    struct ibv_ah *ah = handle(&s, gid_of(&s), 1);
    post_recv(&s, 9, 4096, 100);
    CHECK_EQ(ibv_modify_qp(s.qp, &a, IBV_QP_STATE), 0);
    CHECK_EQ(try_from(&s, s.qp, 1, ah, s.qp->qp_num, 0, 10, IBV_SEND_SIGNALED), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    expect_none(s.scq);
    a.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(s.qp, &a, IBV_QP_STATE), 0);
    expect_wc(s.scq, 1, IBV_WC_SUCCESS);
    expect_wc(s.rcq, 9, IBV_WC_SUCCESS);
    side_close(&s);
}

/* Errors of the sender are reported to it. */
TEST(sender_errors_are_reported)
{
    struct side s = {0};

    open_ud(&s);
    CHECK_EQ(try_from(&s, s.qp, 1, NULL, s.qp->qp_num, 0, 10, 0), EINVAL);
    struct ibv_pd *pd = ibv_alloc_pd(s.ctx);
    struct ibv_ah_attr lid = {.port_num = 1, .dlid = 1};
    struct ibv_ah *ah = pd != NULL ? ibv_create_ah(pd, &lid) : NULL;
    CHECK(ah);
    CHECK_EQ(try_from(&s, s.qp, 1, ah, s.qp->qp_num, 0, 10, 0), 0);
    expect_wc(s.scq, 1, IBV_WC_LOC_QP_OP_ERR);
    CHECK_EQ(qp_state(&s), IBV_QPS_ERR);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    side_close(&s);
}

/* Unmapped memory is the sender's error: the receiver is not involved. */
TEST_UNWATCHED(unmapped_datagram_fails_sender_only)
{
    for (uint32_t len = 8; len <= 4096; len += 4088) {
        struct side s = {0}, to = {0};

        setenv("EMUVERBS_BOUNCE_MAX", "2048", 1); /* the second is copied at once */
        open_ud(&s);
        open_ud(&to);
        struct ibv_ah *ah = handle(&s, gid_of(&to), 1);
        post_recv(&to, 1, 0, 8192);
        CHECK(mmap(s.buf, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
              s.buf);
        CHECK_EQ(try_from(&s, s.qp, 0, ah, to.qp->qp_num, 0, 8, IBV_SEND_INLINE), EFAULT);
        CHECK_EQ(qp_state(&s), IBV_QPS_RTS);
        CHECK_EQ(try_from(&s, s.qp, 1, ah, to.qp->qp_num, 0, len, IBV_SEND_SIGNALED), 0);
        expect_wc(s.scq, 1, IBV_WC_LOC_PROT_ERR);
        CHECK_EQ(qp_state(&s), IBV_QPS_ERR);
        CHECK_EQ(qp_state(&to), IBV_QPS_RTS);
        expect_none(to.rcq);
        CHECK_EQ(mprotect(s.buf, 4096, PROT_READ | PROT_WRITE), 0);
        CHECK_EQ(ibv_destroy_ah(ah), 0);
        loop_close(&s, &to);
    }
}

/* The interface ibv_wr_*. */
TEST(extended_post_of_datagrams)
{
    struct side s = {0};

    open_ud(&s);
    struct ibv_qp *qp = ud_qp(&s, NULL, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
    struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
    struct ibv_ah *ah = handle(&s, gid_of(&s), 1);
    CHECK(x);
    post_recv(&s, 1, 4096, 100);
    post_recv(&s, 2, 8192, 100);
    pattern(s.buf, 20, 1);
    ibv_wr_start(x);
    x->wr_id = 5;
    x->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_imm(x, 0x0a0b0c0d);
    ibv_wr_set_ud_addr(x, ah, s.qp->qp_num, QKEY);
    ibv_wr_set_sge(x, s.mr->lkey, (uintptr_t)s.buf, 20);
    x->wr_id = 6;
    ibv_wr_send(x);
    ibv_wr_set_ud_addr(x, ah, s.qp->qp_num, QKEY);
    ibv_wr_set_inline_data(x, s.buf, 20);
    CHECK_EQ(ibv_wr_complete(x), 0);
    expect_wc(s.scq, 5, IBV_WC_SUCCESS);
    expect_wc(s.scq, 6, IBV_WC_SUCCESS);
    struct ibv_wc wc = expect_wc(s.rcq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(wc.imm_data, 0x0a0b0c0d);
    CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    expect_wc(s.rcq, 2, IBV_WC_SUCCESS);
    CHECK(is_pattern(s.buf + 4096 + HEADER, 20, 1) && is_pattern(s.buf + 8192 + HEADER, 20, 1));
    ibv_wr_start(x);
    ibv_wr_send(x); /* no destination */
    ibv_wr_set_sge(x, s.mr->lkey, (uintptr_t)s.buf, 20);
    CHECK_EQ(ibv_wr_complete(x), EINVAL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    side_close(&s);
}
