/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registrations with on-demand paging: nothing is pinned, and access to unmapped memory
 * fails. */
#include <errno.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

#define FADD IBV_WR_ATOMIC_FETCH_AND_ADD
#define RIGHTS                                                                                 \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
     IBV_ACCESS_REMOTE_ATOMIC)
#define DEMAND (RIGHTS | IBV_ACCESS_ON_DEMAND)
#define PAGE   4096u

/* Reserves unmapped addresses, so that no other mapping gets them meanwhile. */
static unsigned char *nothing(void *at, size_t n)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    void *p = mmap(at, n, PROT_NONE, flags, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

/* Maps new memory there, in small pages. */
static void something(unsigned char *at, size_t n)
{
    CHECK(mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          at);
    madvise(at, n, MADV_NOHUGEPAGE); /* fails on a kernel without huge pages */
}

static unsigned present(unsigned char *at, size_t n)
{
    unsigned char vec[BUF_SIZE / PAGE];
    unsigned pages = 0;

    CHECK_EQ(mincore(at, n, vec), 0);
    for (size_t i = 0; i < n / PAGE; i++)
        pages += vec[i] & 1;
    return pages;
}

/* Gives a side a buffer of unmapped addresses in an on-demand registration. */
static void on_demand(struct side *s)
{
    CHECK_EQ(ibv_dereg_mr(s->mr), 0);
    free(s->buf);
    s->buf = nothing(NULL, BUF_SIZE);
    s->mr = ibv_reg_mr(s->pd, s->buf, BUF_SIZE, DEMAND);
    CHECK(s->mr);
}

static void aim(struct side *s, const struct side *at)
{
    s->raddr = (uintptr_t)at->buf;
    s->rkey = at->mr->rkey;
}

static void demand_loop(struct side *a, struct side *b)
{
    a->qp_access = b->qp_access = RIGHTS & ~IBV_ACCESS_LOCAL_WRITE;
    loop_open(a, b);
    on_demand(a);
    on_demand(b);
    aim(a, b);
    aim(b, a);
}

static void demand_close(struct side *s)
{
    CHECK_EQ(munmap(s->buf, BUF_SIZE), 0);
    s->buf = NULL;
    side_close(s);
}

/* Posts an atomic operation at the start of the other's buffer, or any other request. */
static enum ibv_wc_status request(struct side *a, enum ibv_wr_opcode op, uint32_t len)
{
    struct ibv_sge sge = {(uintptr_t)a->buf, len, a->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    if (op == FADD) {
        wr.wr.atomic.remote_addr = a->raddr;
        wr.wr.atomic.rkey = a->rkey;
        wr.wr.atomic.compare_add = 5;
    } else {
        wr.wr.rdma.remote_addr = a->raddr;
        wr.wr.rdma.rkey = a->rkey;
    }
    CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
    return wait_wc(a->scq).status;
}

static const struct {
    enum ibv_wr_opcode op;
    uint32_t len;
} kinds[] = {{SEND, 64}, {SEND, 65536}, {WRITE, 64}, {READ, 64}, {WIMM, 8192}, {FADD, 8}};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Neither the limit nor the count of pinned memory includes it, and no page is allocated. */
TEST(odp_region_pins_no_memory)
{
    struct side a = {0}, b = {0};

    setenv("EMUVERBS_MEMLOCK", "2097152", 1); /* used by the two sides at first */
    loop_open(&a, &b);
    int64_t pinned = counter("pinned_bytes");
    errno = 0;
    CHECK(!ibv_reg_mr(a.pd, a.buf, PAGE, RIGHTS));
    CHECK_EQ(errno, ENOMEM);
    unsigned char *p = nothing(NULL, BUF_SIZE);
    struct ibv_mr *mr = ibv_reg_mr(a.pd, p, BUF_SIZE, DEMAND);
    CHECK(mr);
    CHECK_EQ(counter("pinned_bytes"), pinned);
    something(p, BUF_SIZE);
    CHECK_EQ(present(p, BUF_SIZE), 0);
    CHECK_EQ(
        try_send(&b, 1, WRITE, 0, 64, IBV_SEND_SIGNALED, (uintptr_t)p + 3 * PAGE, mr->rkey), 0);
    expect_wc(b.scq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(present(p, BUF_SIZE), 1);
    CHECK_EQ(present(p + 3 * PAGE, PAGE), 1);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(counter("pinned_bytes"), pinned);
    nothing(p, BUF_SIZE);
    errno = 0;
    CHECK_EQ(ibv_dereg_mr(a.mr), 0);
    CHECK(!ibv_reg_mr(a.pd, p, PAGE, RIGHTS)); /* without the flag the memory must be mapped */
    CHECK_EQ(errno, EFAULT);
    a.mr = NULL;
    loop_close(&a, &b);
}

/* All requests use memory mapped after the registration. */
TEST(pages_come)
{
    for (unsigned k = 0; k < KINDS; k++) {
        struct side a = {0}, b = {0};
        uint32_t len = kinds[k].len;
        bool fetched = kinds[k].op == READ || kinds[k].op == FADD;

        demand_loop(&a, &b);
        something(a.buf, BUF_SIZE);
        something(b.buf, BUF_SIZE);
        pattern(fetched ? b.buf : a.buf, len, k);
        if (kinds[k].op == SEND || kinds[k].op == WIMM)
            post_recv(&b, 2, 0, len);
        CHECK_EQ(request(&a, kinds[k].op, len), IBV_WC_SUCCESS);
        if (kinds[k].op == SEND || kinds[k].op == WIMM)
            CHECK_EQ(expect_wc(b.rcq, 2, IBV_WC_SUCCESS).byte_len, len);
        CHECK(is_pattern(fetched ? a.buf : b.buf, len, k) || kinds[k].op == FADD);
        if (kinds[k].op == FADD)
            CHECK(is_pattern(a.buf, len, k) && b.buf[0] == k + 5);
        demand_close(&a);
        demand_close(&b);
    }
}

/* The requester gets the error at once; its peer is not involved. */
TEST(not_there_at_the_requester)
{
    for (unsigned k = 0; k < KINDS; k++) {
        struct side a = {0}, b = {0};

        demand_loop(&a, &b);
        something(b.buf, BUF_SIZE);
        post_recv(&b, 2, 0, 65536);
        CHECK_EQ(request(&a, kinds[k].op, kinds[k].len), IBV_WC_LOC_PROT_ERR);
        CHECK_EQ(qp_state(&a), IBV_QPS_ERR);
        CHECK_EQ(qp_state(&b), IBV_QPS_RTS);
        expect_none(b.rcq);
        CHECK(!readable(b.ctx->async_fd, 0));
        CHECK(b.buf[0] == 0 && b.buf[63] == 0);
        demand_close(&a);
        demand_close(&b);
    }
}

/* At the peer it fails both sides, like any access that is not permitted. */
TEST(not_there_at_the_peer)
{
    for (unsigned k = 0; k < KINDS; k++) {
        struct side a = {0}, b = {0};

        demand_loop(&a, &b);
        something(a.buf, BUF_SIZE);
        post_recv(&b, 2, 0, 65536);
        CHECK_EQ(request(&a, kinds[k].op, kinds[k].len), IBV_WC_REM_OP_ERR);
        CHECK_EQ(qp_state(&a), IBV_QPS_ERR);
        if (kinds[k].op == SEND)
            expect_wc(b.rcq, 2, IBV_WC_LOC_PROT_ERR);
        else if (kinds[k].op != WIMM)
            expect_wc(b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
        else
            CHECK(wait_wc(b.rcq).status != IBV_WC_SUCCESS);
        CHECK_EQ(qp_state(&b), IBV_QPS_ERR);
        demand_close(&a);
        demand_close(&b);
    }
}

/* The current mapping counts, and the key stays. */
TEST(mapped_anew)
{
    struct side a = {0}, b = {0};

    demand_loop(&a, &b);
    something(a.buf, BUF_SIZE);
    something(b.buf, BUF_SIZE);
    pattern(a.buf, 2 * PAGE, 1);
    CHECK_EQ(request(&a, WRITE, 2 * PAGE), IBV_WC_SUCCESS);
    CHECK(is_pattern(b.buf, 2 * PAGE, 1));
    nothing(b.buf, BUF_SIZE);
    something(b.buf, BUF_SIZE);
    b.buf[PAGE] = 77;
    CHECK_EQ(request(&a, READ, 2 * PAGE), IBV_WC_SUCCESS);
    CHECK(a.buf[0] == 0 && a.buf[1] == 0 && a.buf[PAGE] == 77);
    CHECK_EQ(madvise(b.buf, PAGE, MADV_DONTNEED), 0);
    memset(a.buf, 9, PAGE);
    CHECK_EQ(request(&a, WRITE, 64), IBV_WC_SUCCESS);
    CHECK(b.buf[0] == 9 && b.buf[63] == 9 && b.buf[64] == 0);
    CHECK_EQ(mprotect(b.buf, PAGE, PROT_READ), 0);
    CHECK_EQ(request(&a, READ, 64), IBV_WC_SUCCESS);
    CHECK_EQ(request(&a, WRITE, 64), IBV_WC_REM_OP_ERR); /* read-only now */
    demand_close(&a);
    demand_close(&b);
}

/* One registration of all addresses: its access rights are checked, and the current pages are
 * used. */
TEST(all_of_the_address_space)
{
    struct side a = {0}, b = {0};
    unsigned char there[64] = {0};

    loop_open(&a, &b);
    struct ibv_mr *all = ibv_reg_mr(b.pd, NULL, SIZE_MAX, DEMAND);
    struct ibv_mr *own =
        ibv_reg_mr(b.pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    CHECK(all && own && all->rkey != own->rkey);
    pattern(a.buf, 64, 4);
    CHECK_EQ(try_send(&a, 1, WRITE, 0, 64, IBV_SEND_SIGNALED, (uintptr_t)there, all->rkey), 0);
    expect_wc(a.scq, 1, IBV_WC_SUCCESS);
    CHECK(is_pattern(there, 64, 4));
    struct ibv_sge sge = {(uintptr_t)there, 32, own->lkey};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK_EQ(ibv_post_recv(b.qp, &wr, &bad), 0);
    memset(a.buf, 6, 32);
    post_send(&a, 3, SEND, 0, 32, 0);
    expect_wc(a.scq, 3, IBV_WC_SUCCESS);
    expect_wc(b.rcq, 2, IBV_WC_SUCCESS);
    CHECK(there[0] == 6 && there[31] == 6 && there[32] != 6);
    CHECK_EQ(try_send(&a, 4, WRITE, 0, 64, IBV_SEND_SIGNALED, (uintptr_t)there, own->rkey), 0);
    expect_wc(a.scq, 4, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dereg_mr(all), 0);
    CHECK_EQ(ibv_dereg_mr(own), 0);
    loop_close(&a, &b);
}

#define FETCH IBV_ADVISE_MR_ADVICE_PREFETCH
#define STORE IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define AS_IS IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define FLUSH IBV_ADVISE_MR_FLAG_FLUSH

static int advise(struct ibv_pd *pd, int advice, uint32_t flags, void *at, uint32_t n,
                  uint32_t key)
{
    struct ibv_sge sge = {(uintptr_t)at, n, key};

    return ibv_advise_mr(pd, (enum ibv_advise_mr_advice)advice, flags, &sge, 1);
}

TEST(advice_is_checked)
{
    struct side s = {0};

    side_open(&s);
    struct ibv_mr *pinned = s.mr;
    unsigned char *p = nothing(NULL, BUF_SIZE);
    struct ibv_mr *mr = ibv_reg_mr(s.pd, p, BUF_SIZE, DEMAND);
    struct ibv_mr *no = ibv_reg_mr(s.pd, p, BUF_SIZE, IBV_ACCESS_ON_DEMAND);
    struct ibv_pd *pd = ibv_alloc_pd(s.ctx);
    CHECK(mr && no && pd);
    CHECK_EQ(advise(s.pd, STORE, FLUSH, p, PAGE, mr->lkey), EFAULT);
    CHECK_EQ(advise(s.pd, STORE, 0, p, PAGE, mr->lkey), 0); /* without waiting */
    something(p, BUF_SIZE);
    CHECK_EQ(advise(s.pd, AS_IS, FLUSH, p, PAGE, mr->lkey), 0);
    CHECK_EQ(present(p, BUF_SIZE), 0);
    CHECK_EQ(advise(s.pd, STORE, FLUSH, p + PAGE, 2 * PAGE, mr->lkey), 0);
    CHECK_EQ(present(p, BUF_SIZE), 2);
    CHECK_EQ(present(p + PAGE, 2 * PAGE), 2);
    CHECK_EQ(advise(s.pd, FETCH, FLUSH, p + 8 * PAGE, 1, no->lkey), 0);
    CHECK_EQ(advise(s.pd, STORE, FLUSH, p, PAGE, no->lkey), EPERM);
    CHECK_EQ(advise(pd, FETCH, FLUSH, p, PAGE, mr->lkey), EPERM);
    CHECK_EQ(advise(s.pd, FETCH, FLUSH, p, PAGE, mr->lkey ^ 1), ENOENT);
    CHECK_EQ(advise(s.pd, FETCH, FLUSH, p, PAGE, mr->rkey), ENOENT);
    CHECK_EQ(advise(s.pd, FETCH, FLUSH, s.buf, PAGE, pinned->lkey), ENOENT);
    CHECK_EQ(advise(s.pd, FETCH, FLUSH, p, BUF_SIZE + 1, mr->lkey), EFAULT);
    CHECK_EQ(advise(s.pd, FETCH, FLUSH, p - 1, 2, mr->lkey), EFAULT);
    CHECK_EQ(advise(s.pd, FETCH, 2, p, PAGE, mr->lkey), EINVAL);
    CHECK_EQ(advise(s.pd, 77, FLUSH, p, PAGE, mr->lkey), EOPNOTSUPP);
    CHECK_EQ(ibv_advise_mr(s.pd, FETCH, FLUSH, NULL, 0), EINVAL);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dereg_mr(no), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(munmap(p, BUF_SIZE), 0);
    side_close(&s);
}

/* A registration may be changed to on-demand paging, and back. */
TEST(of_another_kind)
{
    struct side s = {0};

    side_open(&s);
    int64_t before = counter("pinned_bytes");
    CHECK_EQ(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, DEMAND), 0);
    CHECK_EQ(counter("pinned_bytes"), before - BUF_SIZE);
    unsigned char *p = nothing(NULL, BUF_SIZE);
    int both = IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_TRANSLATION;
    CHECK_EQ(ibv_rereg_mr(s.mr, both, NULL, p, BUF_SIZE, RIGHTS), IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(errno, EFAULT);
    CHECK_EQ(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p, BUF_SIZE, 0), 0);
    CHECK_EQ(counter("pinned_bytes"), before - BUF_SIZE);
    CHECK_EQ(ibv_rereg_mr(s.mr, both, NULL, s.buf, PAGE, RIGHTS), 0);
    CHECK_EQ(counter("pinned_bytes"), before - BUF_SIZE + PAGE);
    CHECK_EQ(munmap(p, BUF_SIZE), 0);
    side_close(&s);
}

static struct ibv_odp_caps capabilities(struct ibv_context *ctx)
{
    struct ibv_device_attr_ex a;

    CHECK_EQ(ibv_query_device_ex(ctx, NULL, &a), 0);
    return a.odp_caps;
}

TEST(device_reports_odp_capabilities)
{
    struct side s = {0};

    side_open(&s);
    struct ibv_odp_caps c = capabilities(s.ctx);
    CHECK_EQ(c.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    CHECK_EQ(c.per_transport_caps.rc_odp_caps, 63);
    CHECK_EQ(c.per_transport_caps.uc_odp_caps, 7);
    CHECK(c.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_SEND);
    side_close(&s);
}

TEST(device_without_odp_refuses_it)
{
    struct side s = {0};

    setenv("EMUVERBS_ODP", "0", 1);
    side_open(&s);
    CHECK_EQ(capabilities(s.ctx).general_caps, 0);
    CHECK_EQ(capabilities(s.ctx).per_transport_caps.rc_odp_caps, 0);
    errno = 0;
    CHECK(!ibv_reg_mr(s.pd, s.buf, PAGE, DEMAND));
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK_EQ(advise(s.pd, FETCH, FLUSH, s.buf, PAGE, s.mr->lkey), EOPNOTSUPP);
    side_close(&s);
}

/* The same between two processes: the pages are those of the registration's process. */
PAIR(pages_of_other_process_are_used, run_two)
ACTIVE(pages_of_other_process_are_used)
{
    side_open(s);
    side_connect(s);
    pattern(s->buf, 2 * PAGE, 3);
    post_send(s, 1, SEND, 0, 64, 0);
    expect_wc(s->scq, 1, IBV_WC_SUCCESS);
    post_send(s, 2, WRITE, 0, 2 * PAGE, PAGE);
    expect_wc(s->scq, 2, IBV_WC_SUCCESS);
    meet(s);
    meet(s);
    post_send(s, 3, READ, 8 * PAGE, 64, 0);
    expect_wc(s->scq, 3, IBV_WC_REM_OP_ERR);
    meet(s);
    side_close(s);
}
PASSIVE(pages_of_other_process_are_used)
{
    side_open(s);
    on_demand(s);
    something(s->buf, BUF_SIZE);
    post_recv(s, 7, 0, 64);
    side_connect(s);
    meet(s);
    expect_wc(s->rcq, 7, IBV_WC_SUCCESS);
    CHECK(is_pattern(s->buf, 64, 3));
    CHECK(is_pattern(s->buf + PAGE, 2 * PAGE, 3));
    nothing(s->buf, BUF_SIZE);
    meet(s);
    meet(s);
    CHECK_EQ(qp_state(s), IBV_QPS_ERR);
    demand_close(s);
}
