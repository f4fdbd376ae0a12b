/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Thread domains, parent domains, and device memory. */
#include <errno.h>
#include <sys/wait.h>

#include "tests/emul/pair.h"

#define DM_ACCESS                                                                              \
    (IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                \
     IBV_ACCESS_REMOTE_READ)

static struct ibv_dm *alloc(struct side *s, size_t n)
{
    struct ibv_alloc_dm_attr attr = {.length = n};

    return ibv_alloc_dm(s->ctx, &attr);
}

/* Requests of both sides access it by the registration's keys; its addresses begin at zero. */
LOOP(device_memory_is_written_and_read)
{
    unsigned char got[512];

    struct ibv_dm *dm = alloc(b, 4096);
    CHECK(dm);
    struct ibv_mr *mr = ibv_reg_dm_mr(b->pd, dm, 1024, 1024, DM_ACCESS);
    CHECK(mr);
    pattern(a->buf, 512, 5);
    post_to(a, 1, WRITE, 0, 512, 512, mr->rkey);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_memcpy_from_dm(got, dm, 1024 + 512, sizeof(got)), 0);
    CHECK(is_pattern(got, sizeof(got), 5));
    CHECK_EQ(ibv_memcpy_from_dm(got, dm, 0, sizeof(got)), 0);
    for (unsigned i = 0; i < sizeof(got); i++)
        CHECK_EQ(got[i], 0); /* zero at first, and not written elsewhere */

    pattern(got, sizeof(got), 9);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 1024, got, sizeof(got)), 0);
    post_to(a, 2, READ, 8192, 512, 0, mr->rkey);
    expect_wc(a->scq, 2, IBV_WC_SUCCESS);
    CHECK(is_pattern(a->buf + 8192, 512, 9));

    /* as a local segment */
    struct ibv_sge sge = {0, 512, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = SEND}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    post_recv(a, 7, 16384, 512);
    CHECK_EQ(ibv_post_send(b->qp, &wr, &bad), 0);
    expect_wc(a->rcq, 7, IBV_WC_SUCCESS);
    CHECK(is_pattern(a->buf + 16384, 512, 9));
    expect_wc(b->scq, 3, IBV_WC_SUCCESS);

    CHECK_EQ(ibv_free_dm(dm), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_free_dm(dm), 0);
}

SIDE(invalid_device_memory_refused)
{
    char four[8] = {0};

    struct ibv_alloc_dm_attr attr = {.length = 64, .comp_mask = 1};
    CHECK(!ibv_alloc_dm(s->ctx, &attr) && errno == EINVAL);
    CHECK(!alloc(s, 0) && errno == EINVAL);
    struct ibv_dm *dm = alloc(s, 64);
    CHECK(dm);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 1, four, 4), EINVAL);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 0, four, 3), EINVAL);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 60, four, 8), EINVAL);
    CHECK_EQ(ibv_memcpy_from_dm(four, dm, 68, 4), EINVAL);
    CHECK_EQ(ibv_memcpy_from_dm(four, dm, UINT64_MAX - 3, 8), EINVAL);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 60, four, 4), 0);
    CHECK(!ibv_reg_dm_mr(s->pd, dm, 0, 68, DM_ACCESS) && errno == EINVAL);
    CHECK(!ibv_reg_dm_mr(s->pd, dm, 0, 64, DM_ACCESS & ~IBV_ACCESS_ZERO_BASED));
    CHECK_EQ(errno, EINVAL);
    struct ibv_mr *mr = ibv_reg_dm_mr(s->pd, dm, 0, 64, DM_ACCESS);
    CHECK(mr && !mr->addr);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_free_dm(dm), 0);
}

/* Objects of one domain work with objects of the other. */
/* Checks that every call with an object of the parent fails; `s` is one of its sides. */
static void check_inherited(struct side *s, struct ibv_mw *mw, struct ibv_ah *ah)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_srq_attr limit = {.srq_limit = 1};
    struct ibv_srq_init_attr si = {.attr = {.max_wr = 1}};
    struct ibv_recv_wr rwr = {0}, *rbad;
    struct ibv_send_wr swr = {.opcode = SEND}, *sbad;
    struct ibv_async_event event;
    struct ibv_cq *cq;
    struct ibv_wc wc;
    void *context;

    CHECK_EQ(ibv_post_send(s->qp, &swr, &sbad), EIO);
    CHECK(sbad == &swr);
    CHECK_EQ(ibv_post_srq_recv(s->srq, &rwr, &rbad), EIO);
    CHECK_EQ(ibv_post_recv(s->qp, &rwr, &rbad), EIO);
    CHECK(ibv_poll_cq(s->rcq, 1, &wc) == -1 && errno == EIO);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), EIO);
    CHECK(ibv_get_cq_event(s->chan, &cq, &context) == -1 && errno == EIO);
    CHECK(ibv_get_async_event(s->ctx, &event) == -1 && errno == EIO);
    CHECK_EQ(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), EIO);
    CHECK_EQ(ibv_modify_srq(s->srq, &limit, IBV_SRQ_LIMIT), EIO);
    CHECK_EQ(ibv_resize_cq(s->rcq, 100), EIO);
    CHECK_EQ(ibv_destroy_qp(s->qp), EIO);
    CHECK_EQ(ibv_destroy_srq(s->srq), EIO);
    CHECK_EQ(ibv_destroy_cq(s->rcq), EIO);
    CHECK_EQ(ibv_destroy_comp_channel(s->chan), EIO);
    CHECK_EQ(ibv_dealloc_mw(mw), EIO);
    CHECK_EQ(ibv_destroy_ah(ah), EIO);
    CHECK_EQ(ibv_dereg_mr(s->mr), EIO);
    CHECK_EQ(ibv_dealloc_pd(s->pd), EIO);
    CHECK_EQ(ibv_close_device(s->ctx), EIO);
    CHECK(!ibv_reg_mr(s->pd, s->buf, 64, 0) && errno == EIO);
    CHECK(!ibv_alloc_mw(s->pd, IBV_MW_TYPE_1) && errno == EIO);
    CHECK(!ibv_create_srq(s->pd, &si) && errno == EIO);
    CHECK(!ibv_create_cq(s->ctx, 1, NULL, NULL, 0) && errno == EIO);
    CHECK(!ibv_create_comp_channel(s->ctx) && errno == EIO);
    CHECK(!ibv_alloc_pd(s->ctx) && errno == EIO);
}

/* Neither before a forked child opens the device nor afterwards. The child's own objects
 * work. */
LOOP(objects_of_a_parent_process, .a = {.use_srq = true, .use_chan = true},
     .b = {.use_srq = true, .use_chan = true}, .unwatched = true)
{
    struct ibv_ah_attr to = {.dlid = 1, .port_num = 1};
    struct ibv_device **list = ibv_get_device_list(NULL);
    int st;

    struct ibv_mw *mw = ibv_alloc_mw(a->pd, IBV_MW_TYPE_1);
    struct ibv_ah *ah = ibv_create_ah(a->pd, &to);
    CHECK(list && mw && ah);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct side c = {0}, d = {0};
        check_inherited(a, mw, ah);
        struct ibv_context *ctx = ibv_open_device(list[0]); /* by its parent's list */
        CHECK(ctx);
        struct ibv_pd *pd = ibv_alloc_pd(ctx);
        CHECK(pd);
        CHECK_EQ(ibv_dealloc_pd(pd), 0);
        CHECK_EQ(ibv_close_device(ctx), 0);
        loop_open(&c, &d);
        check_inherited(a, mw, ah);
        post_recv(&d, 1, 0, 64);
        post_done(&c, SEND, 0, 8, 0);
        expect_wc(d.rcq, 1, IBV_WC_SUCCESS);
        loop_close(&c, &d);
        _exit(0); /* leave the parent's objects */
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK_EQ(st, 0);
    post_recv(b, 1, 0, 64);
    post_done(a, SEND, 0, 8, 0);
    expect_wc(b->rcq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    ibv_free_device_list(list);
}

LOOP(parent_domain_equals_its_domain)
{
    struct ibv_td_init_attr ti = {0};

    struct ibv_td *td = ibv_alloc_td(b->ctx, &ti);
    CHECK(td);
    struct ibv_parent_domain_init_attr attr = {.pd = b->pd, .td = td};
    struct ibv_pd *parent = ibv_alloc_parent_domain(b->ctx, &attr);
    CHECK(parent && parent != b->pd);
    struct ibv_mr *mr =
        ibv_reg_mr(parent, b->buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(mr);
    CHECK_EQ(ibv_dealloc_pd(parent), EBUSY); /* used by the registration */
    pattern(a->buf, 64, 1);
    post_to(a, 1, WRITE, 0, 64, a->raddr, mr->rkey);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    CHECK(is_pattern(b->buf, 64, 1));
    CHECK_EQ(ibv_dereg_mr(mr), 0);

    CHECK_EQ(ibv_dealloc_td(td), EBUSY);
    CHECK_EQ(ibv_dealloc_pd(parent), 0);
    CHECK_EQ(ibv_dealloc_td(td), 0);
    CHECK_EQ(counter("live_td"), 0);
}
