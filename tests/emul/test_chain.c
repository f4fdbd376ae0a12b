/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* RDMA writes posted together and moved by one system call: apart from the counter the result
 * must not differ, whichever write is unusual or fails. */
#include <errno.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

enum { MANY = 64, STEP = 4096, BYTES = 1000 };

struct chain {
    struct ibv_send_wr wr[MANY];
    struct ibv_sge sge[MANY][2];
};

/* Makes n writes between equal offsets of both sides, of two segments each; only the last is
 * signalled. */
static void make(struct chain *c, const struct side *a, unsigned n)
{
    memset(c, 0, sizeof(*c));
    for (unsigned i = 0; i < n; i++) {
        struct ibv_send_wr *w = &c->wr[i];
        uintptr_t at = (uintptr_t)a->buf + i * STEP;
        c->sge[i][0] = (struct ibv_sge){at, BYTES / 4, a->mr->lkey};
        c->sge[i][1] = (struct ibv_sge){at + BYTES / 4, BYTES - BYTES / 4, a->mr->lkey};
        w->wr_id = i;
        w->sg_list = c->sge[i];
        w->num_sge = 2;
        w->opcode = WRITE;
        w->wr.rdma.remote_addr = a->raddr + i * STEP;
        w->wr.rdma.rkey = a->rkey;
        w->next = i + 1 < n ? w + 1 : NULL;
    }
    c->wr[n - 1].send_flags = IBV_SEND_SIGNALED;
}

static int post(struct side *a, struct chain *c, struct ibv_send_wr **bad)
{
    return ibv_post_send(a->qp, c->wr, bad);
}

static void fill(struct side *a, struct side *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        pattern(a->buf + i * STEP, BYTES, i + 1);
    memset(b->buf, 0, MANY * STEP);
}

static void check_moved(const struct side *b, unsigned from, unsigned to, bool moved)
{
    for (unsigned i = from; i < to; i++) {
        const unsigned char *at = b->buf + i * STEP;
        CHECK(moved ? is_pattern(at, BYTES, i + 1) : at[0] == 0 && at[BYTES - 1] == 0);
        CHECK_EQ(at[BYTES], 0);
    }
}

#define CHAIN .a = {.max_wr = MANY, .max_sge = 2}

LOOP(all_of_them_arrive, CHAIN)
{
    struct ibv_send_wr *bad;
    struct chain c;

    fill(a, b, MANY);
    for (unsigned n = 1; n <= MANY; n += n < 4 ? 1 : 20) {
        int64_t before = counter("chained"), writes = counter("wr_write");
        fill(a, b, n);
        make(&c, a, n);
        CHECK_EQ(post(a, &c, &bad), 0);
        expect_wc(a->scq, n - 1, IBV_WC_SUCCESS);
        expect_none(a->scq);
        check_moved(b, 0, n, true);
        check_moved(b, n, MANY, false);
        CHECK_EQ(counter("chained") - before, n > 1 ? n : 0);
        CHECK_EQ(counter("wr_write") - writes, n);
    }
}

/* On-demand memory is released again: deregistration does not wait. */
LOOP(memory_on_demand_is_written, CHAIN)
{
    struct ibv_send_wr *bad;
    struct chain c;

    fill(a, b, MANY);
    struct ibv_mr *mr =
        ibv_reg_mr(b->pd, b->buf, MANY * STEP,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND);
    CHECK(mr != NULL);
    int64_t before = counter("chained");
    make(&c, a, MANY);
    for (unsigned i = 0; i < MANY; i++)
        c.wr[i].wr.rdma.rkey = mr->rkey;
    CHECK_EQ(post(a, &c, &bad), 0);
    expect_wc(a->scq, MANY - 1, IBV_WC_SUCCESS);
    check_moved(b, 0, MANY, true);
    CHECK_EQ(counter("chained") - before, MANY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* In posting order, including empty ones. */
LOOP(each_is_reported_that_asks, CHAIN)
{
    struct ibv_send_wr *bad;
    struct chain c;

    fill(a, b, MANY);
    make(&c, a, MANY);
    for (unsigned i = 0; i < MANY; i += 3)
        c.wr[i].send_flags = IBV_SEND_SIGNALED;
    c.wr[6].num_sge = 0;
    c.sge[9][0].length = c.sge[9][1].length = 0;
    CHECK_EQ(post(a, &c, &bad), 0);
    for (unsigned i = 0; i < MANY; i += 3)
        expect_wc(a->scq, i, IBV_WC_SUCCESS);
    check_moved(b, 0, 6, true);
    check_moved(b, 6, 7, false);
    check_moved(b, 9, 10, false);
    check_moved(b, 10, MANY, true);
}

/* The 20th request fails alone: earlier ones have moved, later ones have not, and are
 * flushed. */
static void one_is_wrong(void (*spoil)(struct chain *c, struct side *a),
                         enum ibv_wc_status status)
{
    struct side a = {.max_wr = MANY, .max_sge = 2}, b = {0};
    struct ibv_send_wr *bad;
    struct chain c;

    loop_open(&a, &b);
    fill(&a, &b, MANY);
    int64_t chained = counter("chained");
    make(&c, &a, MANY);
    spoil(&c, &a);
    CHECK_EQ(post(&a, &c, &bad), 0);
    expect_wc(a.scq, 20, status);
    for (unsigned i = 21; i < MANY; i++)
        expect_wc(a.scq, i, IBV_WC_WR_FLUSH_ERR);
    expect_none(a.scq);
    check_moved(&b, 0, 20, true);
    check_moved(&b, 20, MANY, false);
    CHECK_EQ(counter("chained"), chained);
    CHECK_EQ(qp_state(&a), IBV_QPS_ERR);
    loop_close(&a, &b);
}

static void wrong_key(struct chain *c, struct side *a)
{
    (void)a;
    c->wr[20].wr.rdma.rkey++;
}

static void wrong_lkey(struct chain *c, struct side *a)
{
    (void)a;
    c->sge[20][1].lkey++;
}

static void out_of_bounds(struct chain *c, struct side *a)
{
    c->wr[20].wr.rdma.remote_addr = a->raddr + BUF_SIZE - BYTES + 1;
}

/* Registered, then unmapped: detected when the data is to be moved. */
static void gone(struct chain *c, struct side *a)
{
    (void)c;
    CHECK_EQ(munmap(a->buf + 20 * STEP, STEP), 0);
}

TEST(wrong_request_ends_chain)
{
    one_is_wrong(wrong_key, IBV_WC_REM_ACCESS_ERR);
    one_is_wrong(wrong_lkey, IBV_WC_LOC_PROT_ERR);
    one_is_wrong(out_of_bounds, IBV_WC_REM_ACCESS_ERR);
    if (!is_watched())
        one_is_wrong(gone, IBV_WC_LOC_PROT_ERR);
}

/* One that the post call refuses: earlier ones are posted. */
LOOP(one_is_refused, CHAIN)
{
    struct ibv_send_wr *bad = NULL;
    struct chain c;

    fill(a, b, MANY);
    make(&c, a, MANY);
    c.wr[20].num_sge = 3;
    CHECK_EQ(post(a, &c, &bad), EINVAL);
    CHECK(bad == &c.wr[20]);
    CHECK_EQ(counter("chained"), 20);
    check_moved(b, 0, 20, true);
    check_moved(b, 20, MANY, false);
}

/* A queue accepts as many as it has room for. */
LOOP(short_queue_takes_part_of_chain, .a = {.max_wr = 10, .max_sge = 2})
{
    struct ibv_send_wr *bad = NULL;
    struct chain c;

    fill(a, b, MANY);
    make(&c, a, MANY);
    CHECK_EQ(post(a, &c, &bad), ENOMEM);
    CHECK(bad >= &c.wr[10] && bad < &c.wr[MANY]);
    unsigned n = (unsigned)(bad - c.wr);
    check_moved(b, 0, n, true);
    check_moved(b, n, MANY, false);
}

/* Later requests see the written data; other requests in between are not part of the chain. */
LOOP(others_keep_their_places, CHAIN)
{
    struct ibv_send_wr *bad;
    struct chain c;

    fill(a, b, MANY);
    make(&c, a, 6);
    post_recv(b, 77, 0, 0);
    c.wr[2].opcode = READ; /* reads data of the first write into the place of the last */
    c.wr[2].wr.rdma.remote_addr = a->raddr;
    c.sge[2][0].addr = (uintptr_t)a->buf + 5 * STEP;
    c.sge[2][1].addr = c.sge[2][0].addr + BYTES / 4;
    c.wr[3].send_flags = IBV_SEND_FENCE;
    c.wr[5].opcode = WIMM;
    CHECK_EQ(post(a, &c, &bad), 0);
    expect_wc(b->rcq, 77, IBV_WC_SUCCESS);
    expect_wc(a->scq, 5, IBV_WC_SUCCESS);
    CHECK(is_pattern(a->buf + 5 * STEP, BYTES, 1));
    CHECK(is_pattern(b->buf + 5 * STEP, BYTES, 1));
    CHECK_EQ(counter("chained"), 2);
}

/* No chains: with the knob, for comparison; with a link, whose model gives each a time; with a
 * fault that must hit one. */
static void one_by_one(struct side *a, struct side *b)
{
    struct ibv_send_wr *bad;
    struct chain c;

    fill(a, b, MANY);
    make(&c, a, MANY);
    CHECK_EQ(post(a, &c, &bad), 0);
    expect_wc(a->scq, MANY - 1, IBV_WC_SUCCESS);
    check_moved(b, 0, MANY, true);
    CHECK_EQ(counter("chained"), 0);
}

LOOP(one_by_one_by_option, CHAIN, .env = "EMUVERBS_WRITE_CHAIN=1")
{
    one_by_one(a, b);
}

LOOP(one_by_one_on_a_link, CHAIN, .env = "EMUVERBS_LINK_MB_S=1000")
{
    one_by_one(a, b);
}

LOOP(one_by_one_where_one_may_fail, CHAIN, .env = "EMUVERBS_FAIL=completion:1000")
{
    one_by_one(a, b);
}
