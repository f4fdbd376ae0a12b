/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registrations with on-demand paging: nothing is pinned, and access to unmapped memory
 * fails. */
#include <errno.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

#define DEMAND (RIGHTS | IBV_ACCESS_ON_DEMAND)
#define PAGE   4096u

/* Reserves unmapped addresses, so that no other mapping gets them meanwhile. */
static unsigned char *nothing(void *at, size_t n)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != NULL ? MAP_FIXED : 0);
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
    a->qp_access = b->qp_access = QP_RIGHTS;
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

static enum ibv_wc_status request(struct side *a, enum ibv_wr_opcode op, uint32_t len)
{
    a->operand = 5;
    post_send(a, 1, op, 0, len, 0);
    return wait_wc(a->scq).status;
}

static const struct {
    enum ibv_wr_opcode op;
    uint32_t len;
} kinds[] = {{SEND, 64}, {SEND, 65536}, {WRITE, 64}, {READ, 64}, {WIMM, 8192}, {FADD, 8}};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Neither the limit nor the count of pinned memory includes it, and no page is allocated. */
LOOP(odp_region_pins_no_memory,
     .env = "EMUVERBS_MEMLOCK=2097152") /* used by the two sides at first */
{
    int64_t pinned = counter("pinned_bytes");
    errno = 0;
    CHECK(!ibv_reg_mr(a->pd, a->buf, PAGE, RIGHTS));
    CHECK_EQ(errno, ENOMEM);
    unsigned char *p = nothing(NULL, BUF_SIZE);
    struct ibv_mr *mr = ibv_reg_mr(a->pd, p, BUF_SIZE, DEMAND);
    CHECK(mr);
    CHECK_EQ(counter("pinned_bytes"), pinned);
    something(p, BUF_SIZE);
    CHECK_EQ(present(p, BUF_SIZE), 0);
    post_to(b, 1, WRITE, 0, 64, (uintptr_t)p + 3 * PAGE, mr->rkey);
    expect_wc(b->scq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(present(p, BUF_SIZE), 1);
    CHECK_EQ(present(p + 3 * PAGE, PAGE), 1);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(counter("pinned_bytes"), pinned);
    nothing(p, BUF_SIZE);
    errno = 0;
    CHECK_EQ(ibv_dereg_mr(a->mr), 0);
    CHECK(!ibv_reg_mr(a->pd, p, PAGE, RIGHTS)); /* without the flag the memory must be mapped */
    CHECK_EQ(errno, EFAULT);
    a->mr = NULL;
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

/* Of either side: the requester gets the error at once, and its peer is not involved; at the
 * peer it fails both, like any access that is not permitted. */
TEST(absent_memory_fails_its_side)
{
    for (unsigned k = 0; k < 2 * KINDS; k++) {
        bool own = k % 2;
        enum ibv_wr_opcode op = kinds[k / 2].op;
        struct side a = {0}, b = {0};

        demand_loop(&a, &b);
        something(own ? b.buf : a.buf, BUF_SIZE);
        post_recv(&b, 2, 0, 65536);
        CHECK_EQ(request(&a, op, kinds[k / 2].len),
                 own ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
        CHECK_EQ(qp_state(&a), IBV_QPS_ERR);
        CHECK_EQ(qp_state(&b), own ? IBV_QPS_RTS : IBV_QPS_ERR);
        if (own) {
            expect_none(b.rcq);
            CHECK(!readable(b.ctx->async_fd, 0));
            CHECK(b.buf[0] == 0 && b.buf[63] == 0);
        } else {
            struct ibv_wc wc = wait_wc(b.rcq);
            CHECK(op == WIMM
                      ? wc.status != IBV_WC_SUCCESS
                      : wc.status == (op == SEND ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR));
        }
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
LOOP(all_of_the_address_space)
{
    unsigned char there[64] = {0};

    struct ibv_mr *all = ibv_reg_mr(b->pd, NULL, SIZE_MAX, DEMAND);
    struct ibv_mr *own =
        ibv_reg_mr(b->pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    CHECK(all && own && all->rkey != own->rkey);
    pattern(a->buf, 64, 4);
    post_to(a, 1, WRITE, 0, 64, (uintptr_t)there, all->rkey);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    CHECK(is_pattern(there, 64, 4));
    struct ibv_sge sge = {(uintptr_t)there, 32, own->lkey};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK_EQ(ibv_post_recv(b->qp, &wr, &bad), 0);
    memset(a->buf, 6, 32);
    post_done(a, SEND, 0, 32, 0);
    expect_wc(b->rcq, 2, IBV_WC_SUCCESS);
    CHECK(there[0] == 6 && there[31] == 6 && there[32] != 6);
    post_to(a, 4, WRITE, 0, 64, (uintptr_t)there, own->rkey);
    expect_wc(a->scq, 4, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dereg_mr(all), 0);
    CHECK_EQ(ibv_dereg_mr(own), 0);
}

SIDE(device_without_odp_refuses_it, .env = "EMUVERBS_ODP=0")
{
    struct ibv_device_attr_ex attr;

    CHECK_EQ(ibv_query_device_ex(s->ctx, NULL, &attr), 0);
    CHECK_EQ(attr.odp_caps.general_caps, 0);
    CHECK_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps, 0);
    errno = 0;
    CHECK(!ibv_reg_mr(s->pd, s->buf, PAGE, DEMAND));
    CHECK_EQ(errno, EOPNOTSUPP);
}
