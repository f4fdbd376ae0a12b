/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory windows and keys of the software HCA. tests/verbs has the tests that rxe passes as
 * well. */
#include <errno.h>
#include <sched.h>
#include <signal.h>

#include "tests/emul/pair.h"

#define BINDABLE (RIGHTS | IBV_ACCESS_MW_BIND)

static int try_bind(struct side *s, uint64_t id, struct ibv_mw *mw, uint32_t key, uint32_t off,
                    uint32_t len, unsigned rights, unsigned flags)
{
    struct ibv_send_wr wr = {.wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = flags}, *bad;

    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info =
        (struct ibv_mw_bind_info){s->mr, (uintptr_t)s->buf + off, len, rights};
    return ibv_post_send(s->qp, &wr, &bad);
}

/* Binds part of the buffer for writing under the window's next key, which it returns. */
static uint32_t bind(struct side *s, struct ibv_mw *mw, uint32_t off, uint32_t len)
{
    uint32_t key = ibv_inc_rkey(mw->rkey);

    CHECK_EQ(try_bind(s, 77, mw, key, off, len, IBV_ACCESS_REMOTE_WRITE, IBV_SEND_SIGNALED), 0);
    CHECK_EQ(expect_wc(s->scq, 77, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
    mw->rkey = key;
    return key;
}

static int try_invalidate(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t key,
                          unsigned flags)
{
    struct ibv_send_wr wr = {.wr_id = id, .opcode = op, .send_flags = flags}, *bad;

    wr.invalidate_rkey = key;
    return ibv_post_send(s->qp, &wr, &bad);
}

static void invalidate(struct side *s, uint32_t key)
{
    CHECK_EQ(try_invalidate(s, 78, IBV_WR_LOCAL_INV, key, IBV_SEND_SIGNALED), 0);
    CHECK_EQ(expect_wc(s->scq, 78, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
}

static struct ibv_mw *window(struct side *s)
{
    struct ibv_mw *mw = ibv_alloc_mw(s->pd, IBV_MW_TYPE_2);

    CHECK(mw);
    return mw;
}

/* Windows bound by a QP are free when it is destroyed, and do not belong to its successor. */
LOOP(destroyed_qp_frees_its_windows, .b = {.access = BINDABLE},
     .env = "EMUVERBS_MAX_QP=2") /* so that the next one has the same number */
{
    struct ibv_mw *mw = window(b);
    uint32_t key = bind(b, mw, 0, 4096), number = b->qp->qp_num;
    struct ibv_qp_init_attr init = {
        .send_cq = b->scq, .recv_cq = b->rcq, .qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
    CHECK_EQ(ibv_destroy_qp(b->qp), 0);
    b->qp = ibv_create_qp(b->pd, &init);
    CHECK(b->qp);
    CHECK_EQ(b->qp->qp_num, number);
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    CHECK_EQ(ibv_modify_qp(a->qp, &reset, IBV_QP_STATE), 0);
    CHECK_EQ(qp_init(a), 0);
    CHECK_EQ(qp_init(b), 0);
    CHECK_EQ(qp_rtr(a, number), 0);
    CHECK_EQ(qp_rtr(b, a->qp->qp_num), 0);
    CHECK_EQ(qp_rts(a), 0);
    CHECK_EQ(qp_rts(b), 0);
    post_to(a, 3, WRITE, 0, 64, a->raddr, key);
    expect_wc(a->scq, 3, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dereg_mr(b->mr), 0);
    b->mr = NULL;
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

/* A registration keeps track of a window after others were unbound. */
LOOP(regions_know_their_windows, .b = {.access = BINDABLE})
{
    struct ibv_mw *mw[3];

    for (int i = 0; i < 3; i++)
        bind(b, mw[i] = window(b), 4096 * (uint32_t)i, 4096);
    for (int round = 0; round < 3; round++) {
        static const int order[3][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(ibv_dereg_mr(b->mr), EINVAL);
            invalidate(b, mw[order[round][i]]->rkey);
        }
        for (int i = 0; i < 3 && round < 2; i++)
            bind(b, mw[i], 0, 4096);
    }
    CHECK_EQ(ibv_dereg_mr(b->mr), 0);
    b->mr = NULL;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(ibv_dealloc_mw(mw[i]), 0);
}

/* An invalidation keeps its order: behind the reads that its fence waits for. */
LOOP(fenced_invalidation_waits_for_reads, .b = {.access = BINDABLE},
     .env = "EMUVERBS_READ_DELAY_US=50000")
{
    struct ibv_wc wc;

    clock_stop();
    struct ibv_mw *mw = window(b);
    uint32_t key = bind(b, mw, 0, 4096);
    post_send(b, 1, READ, 0, 64, 0);
    CHECK_EQ(try_invalidate(b, 2, IBV_WR_LOCAL_INV, key, IBV_SEND_SIGNALED | IBV_SEND_FENCE),
             0);
    post_to(a, 3, WRITE, 0, 64, a->raddr, key);
    expect_wc(a->scq, 3, IBV_WC_SUCCESS); /* the key is valid until then */
    expect_none(b->scq);
    clock_step_ms(50);
    wc = expect_wc(b->scq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_RDMA_READ);
    expect_wc(b->scq, 2, IBV_WC_SUCCESS);
    post_to(a, 4, WRITE, 0, 64, a->raddr, key);
    expect_wc(a->scq, 4, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

/* Bytes without a registration: an adapter's library would dereference a null pointer, so the
 * call refuses. */
LOOP(window_without_region_refused, .b = {.access = BINDABLE})
{
    struct ibv_mw *mw = window(b);
    struct ibv_mr *mr = b->mr;
    b->mr = NULL;
    CHECK_EQ(try_bind(b, 1, mw, ibv_inc_rkey(mw->rkey), 0, 4096, IBV_ACCESS_REMOTE_WRITE,
                      IBV_SEND_SIGNALED),
             EINVAL);
    b->mr = mr;
    bind(b, mw, 0, 4096); /* not affected */
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

LOOP(device_without_windows_refuses_them, .env = "EMUVERBS_MAX_MW=0")
{
    struct ibv_device_attr attr;

    CHECK_EQ(ibv_query_device(a->ctx, &attr), 0);
    CHECK_EQ(attr.max_mw, 0);
    CHECK_EQ(attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
                                      IBV_DEVICE_MEM_WINDOW_TYPE_2B),
             0);
    for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
        errno = 0;
        CHECK(!ibv_alloc_mw(a->pd, (enum ibv_mw_type)type));
        CHECK_EQ(errno, EOPNOTSUPP);
    }
    CHECK_EQ(try_invalidate(a, 1, IBV_WR_LOCAL_INV, a->mr->rkey, 0), EOPNOTSUPP);
    CHECK_EQ(try_invalidate(a, 1, IBV_WR_SEND_WITH_INV, b->mr->rkey, 0), EOPNOTSUPP);
    struct ibv_mw none = {.type = IBV_MW_TYPE_2};
    CHECK_EQ(try_bind(a, 1, &none, 1, 0, 16, 0, 0), EOPNOTSUPP);
    struct ibv_qp_init_attr_ex init = {.send_cq = a->scq,
                                       .recv_cq = a->rcq,
                                       .qp_type = IBV_QPT_RC,
                                       .cap = {16, 16, 1, 1, 0},
                                       .pd = a->pd,
                                       .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .send_ops_flags = IBV_QP_EX_WITH_BIND_MW};
    CHECK(!ibv_create_qp_ex(a->ctx, &init));
    CHECK_EQ(errno, EOPNOTSUPP);
}

/* Keys are not predictable from others: differences of neighbours do not repeat, and all bits
 * are used. */
SIDE(keys_cannot_be_foreseen)
{
    enum { N = 512 };
    struct ibv_mr *mr[N];
    struct ibv_mw *mw[N];
    uint32_t key[N], all_set = ~0u, any_set = 0;

    for (int windows = 0; windows < 2; windows++) {
        for (int i = 0; i < N; i++) {
            if (windows)
                mw[i] = window(s);
            else
                CHECK(mr[i] = ibv_reg_mr(s->pd, s->buf, 4096, IBV_ACCESS_REMOTE_READ));
            key[i] = windows ? mw[i]->rkey >> 8 : mr[i]->rkey;
            all_set &= key[i];
            any_set |= key[i];
        }
        unsigned again = 0;
        for (int i = 0; i < N; i++)
            for (int k = 0; k < i; k++) {
                CHECK(key[i] != key[k]);
                if (i + 1 < N && key[i + 1] - key[i] == key[k + 1] - key[k])
                    again++;
            }
        CHECK(again < 8);
        CHECK_EQ(__builtin_popcount(any_set & ~all_set), windows ? 22 : 30);
        all_set = ~0u;
        any_set = 0;
    }
    for (int i = 0; i < N; i++) {
        CHECK_EQ(ibv_dereg_mr(mr[i]), 0);
        CHECK_EQ(ibv_dealloc_mw(mw[i]), 0);
    }
}

/* Over a link a bind takes no time, and the message behind it does. */
LOOP(bind_takes_no_link_time, .a = {.access = BINDABLE}, .env = "EMUVERBS_LINK_MB_S=1000")
{
    struct ibv_mw *mw = window(a);
    clock_stop();
    post_recv(b, 50, 0, 64);
    CHECK_EQ(try_bind(a, 1, mw, ibv_inc_rkey(mw->rkey), 0, 64, IBV_ACCESS_REMOTE_WRITE,
                      IBV_SEND_SIGNALED),
             0);
    post_send(a, 2, SEND, 0, 8, 0);
    clock_step_ns(1);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    expect_none(b->rcq);
    clock_step_ns(10000);
    expect_wc(a->scq, 2, IBV_WC_SUCCESS);
    expect_wc(b->rcq, 50, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
}
