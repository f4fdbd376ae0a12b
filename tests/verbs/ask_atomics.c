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
                  uint64_t swap)
{
    e->operand = first;
    e->swap = swap;
    return send_to(e, 1, op, 8, SIGNALED, (uintptr_t)e->other->buf + offset,
                   e->other->mr->rkey);
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
    answer("requester: %s, told as %s of %u bytes", status_name(wc.status),
           wc.opcode == IBV_WC_FETCH_ADD   ? "an addition"
           : wc.opcode == IBV_WC_COMP_SWAP ? "a swap"
                                           : "something else",
           wc.byte_len);
}

ASK(device_says)
{
    struct ibv_device_attr attr;

    NEED(ibv_query_device(a->ctx, &attr) == 0);
    answer("the device says %s", attr.atomic_cap == IBV_ATOMIC_NONE ? "none" : "some");
    answer("registering for them: %s",
           pointer_result(ibv_reg_mr(a->pd, a->buf, END_SIZE, ATOMIC_RIGHTS)));
    answer("without local write: %s",
           pointer_result(ibv_reg_mr(a->pd, a->buf, END_SIZE, IBV_ACCESS_REMOTE_ATOMIC)));
}

ASK(add)
{
    set_word(b, 8, 0xfffffffffffffff0);
    posted(atomic(a, ADD, 8, 0x15, 0));
    told(a);
    answer("it gets what was there: %s", word(a, 0) == 0xfffffffffffffff0 ? "yes" : "no");
    answer("the sum is there: %s", word(b, 8) == 5 ? "yes" : "no");
}

ASK(swap)
{
    set_word(b, 16, 7);
    for (uint64_t compare = 8; compare >= 7; compare--) {
        answer("compared to %s: %s", compare == 7 ? "the same" : "another",
               result(atomic(a, SWAP, 16, compare, 9)));
        told(a);
        answer("it gets %u, there is %u", (unsigned)word(a, 0), (unsigned)word(b, 16));
    }
}

ASK(misaligned)
{
    if (posted(atomic(a, ADD, 12, 1, 0)))
        told(a);
    answer("memory %s", word(b, 12) ? "changed" : "untouched");
}

ASK(many)
{
    for (int i = 0; i < 16; i++)
        NEED(atomic(a, ADD, 8, 3, 0) == 0);
    answer_wcs("sixteen at once, where the depth is 1", a->scq);
    answer("the last gets %u, there is %u", (unsigned)word(a, 0), (unsigned)word(b, 8));
}

#define ATOMIC  .b = {.rights = ATOMIC_RIGHTS, .qp_rights = QP_RIGHTS}
#define REFUSED .a.operand = 1, .tell = "requester states memory"

const struct question atomic_questions[] = {
    {"atomic operations", .ask = device_says, .setup = ALONE},
    {"fetch-and-add", .ask = add, ATOMIC},
    {"compare-and-swap", .ask = swap, ATOMIC},
    {"atomic operation at an address that is no multiple of eight", .ask = misaligned, ATOMIC},
    {"atomic operation with less than eight bytes for the answer", ATOMIC,
     .request = {ADD, 4, 8}, .tell = "posting requester"},
    {"atomic operation on a region without the right", .b = {.qp_rights = QP_RIGHTS},
     .request = {ADD, 8, 8}, REFUSED},
    {"atomic operation on a queue pair that forbids it", .b = {.rights = ATOMIC_RIGHTS},
     .request = {ADD, 8, 8}, REFUSED},
    {"atomic operation beyond the end of a region", ATOMIC, .request = {ADD, 8, END_SIZE},
     REFUSED},
    {"more atomic operations than the depth", .ask = many, .a.reads = 1,
     .b = {.rights = ATOMIC_RIGHTS, .qp_rights = QP_RIGHTS, .granted_reads = 1}},
    {NULL},
};
