/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about atomic operations. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/verbs/ask.h"

#define ADD           IBV_WR_ATOMIC_FETCH_AND_ADD
#define SWAP          IBV_WR_ATOMIC_CMP_AND_SWP
#define ATOMIC_RIGHTS (ALL_RIGHTS | IBV_ACCESS_REMOTE_ATOMIC)

#define QP_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static int atomic(struct end *e, enum ibv_wr_opcode op, uint64_t offset, uint64_t first,
                  uint64_t swap, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = SIGNALED},
                       *bad;

    wr.wr.atomic.remote_addr = (uintptr_t)e->other->buf + offset;
    wr.wr.atomic.rkey = e->other->mr->rkey;
    wr.wr.atomic.compare_add = first;
    wr.wr.atomic.swap = swap;
    return ibv_post_send(e->qp, &wr, &bad);
}

static void open_with(struct end *a, struct end *b, int rights, int qp_rights)
{
    b->rights = rights;
    b->qp_rights = qp_rights;
    ends_open(a, b);
}

static uint64_t word(const struct end *e, unsigned offset)
{
    uint64_t w;

    memcpy(&w, e->buf + offset, sizeof(w));
    return w;
}

static void set_word(struct end *e, unsigned offset, uint64_t w)
{
    memcpy(e->buf + offset, &w, sizeof(w));
}

static void told(struct end *a)
{
    struct ibv_wc wc;

    NEED(next_wc(a->scq, &wc, WAIT_MS));
    if (wc.status != IBV_WC_SUCCESS)
        answer("requester: %s", status_name(wc.status));
    else
        answer("requester: success, told as %s of %u bytes",
               wc.opcode == IBV_WC_FETCH_ADD   ? "an addition"
               : wc.opcode == IBV_WC_COMP_SWAP ? "a swap"
                                               : "something else",
               wc.byte_len);
}

static void device_says(void)
{
    struct end a = {0};
    struct ibv_device_attr attr;

    end_open(&a, false);
    NEED(ibv_query_device(a.ctx, &attr) == 0);
    answer("the device says %s", attr.atomic_cap == IBV_ATOMIC_NONE ? "none" : "some");
    answer("registering for them: %s",
           pointer_result(ibv_reg_mr(a.pd, a.buf, END_SIZE, ATOMIC_RIGHTS)));
    answer("without local write: %s",
           pointer_result(ibv_reg_mr(a.pd, a.buf, END_SIZE, IBV_ACCESS_REMOTE_ATOMIC)));
}

static void add(void)
{
    struct end a = {0}, b = {0};

    open_with(&a, &b, ATOMIC_RIGHTS, QP_RIGHTS);
    set_word(&b, 8, 0xfffffffffffffff0);
    answer("posting: %s", result(atomic(&a, ADD, 8, 0x15, 0, 8)));
    told(&a);
    answer("it gets what was there: %s", word(&a, 0) == 0xfffffffffffffff0 ? "yes" : "no");
    answer("the sum is there: %s", word(&b, 8) == 5 ? "yes" : "no");
}

static void swap(void)
{
    struct end a = {0}, b = {0};

    open_with(&a, &b, ATOMIC_RIGHTS, QP_RIGHTS);
    set_word(&b, 16, 7);
    answer("compared to another: %s", result(atomic(&a, SWAP, 16, 8, 9, 8)));
    told(&a);
    answer("it gets %u, there is %u", (unsigned)word(&a, 0), (unsigned)word(&b, 16));
    answer("compared to the same: %s", result(atomic(&a, SWAP, 16, 7, 9, 8)));
    told(&a);
    answer("it gets %u, there is %u", (unsigned)word(&a, 0), (unsigned)word(&b, 16));
}

static void misaligned(void)
{
    struct end a = {0}, b = {0};

    open_with(&a, &b, ATOMIC_RIGHTS, QP_RIGHTS);
    int ret = atomic(&a, ADD, 12, 1, 0, 8);
    answer("posting: %s", result(ret));
    if (!ret)
        told(&a);
    answer("memory %s", word(&b, 12) ? "changed" : "untouched");
}

static void too_little(void)
{
    struct end a = {0}, b = {0};

    open_with(&a, &b, ATOMIC_RIGHTS, QP_RIGHTS);
    int ret = atomic(&a, ADD, 8, 1, 0, 4);
    answer("posting: %s", result(ret));
    if (!ret)
        told(&a);
}

/* An operation that may be refused. */
static void refused(int rights, int qp_rights, uint64_t offset)
{
    struct end a = {0}, b = {0};

    open_with(&a, &b, rights, qp_rights);
    NEED(atomic(&a, ADD, offset, 1, 0, 8) == 0);
    told(&a);
    answer("states %s and %s", end_state(&a), end_state(&b));
    answer("memory %s", word(&b, 8) ? "changed" : "untouched");
}
static void without_right(void)
{
    refused(ALL_RIGHTS, QP_RIGHTS, 8);
}
static void qp_forbids(void)
{
    refused(ATOMIC_RIGHTS, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 8);
}
static void beyond(void)
{
    refused(ATOMIC_RIGHTS, QP_RIGHTS, END_SIZE);
}

static void many(void)
{
    struct end a = {.reads = 1}, b = {.granted_reads = 1};

    open_with(&a, &b, ATOMIC_RIGHTS, QP_RIGHTS);
    for (int i = 0; i < 16; i++)
        NEED(atomic(&a, ADD, 8, 3, 0, 8) == 0);
    answer_wcs("sixteen at once, where the depth is 1", a.scq);
    answer("the last gets %u, there is %u", (unsigned)word(&a, 0), (unsigned)word(&b, 8));
}

const struct question atomic_questions[] = {
    {"atomic operations", device_says},
    {"fetch-and-add", add},
    {"compare-and-swap", swap},
    {"atomic operation at an address that is no multiple of eight", misaligned},
    {"atomic operation with less than eight bytes for the answer", too_little},
    {"atomic operation on a region without the right", without_right},
    {"atomic operation on a queue pair that forbids it", qp_forbids},
    {"atomic operation beyond the end of a region", beyond},
    {"more atomic operations than the depth", many},
    {NULL, NULL},
};
