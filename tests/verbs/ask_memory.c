/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about registered memory: keys, access rights, bounds. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/verbs/ask.h"

static unsigned char mem[4096];

static struct ibv_mr *registered(struct ibv_pd *pd)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, mem, sizeof(mem), ALL_RIGHTS);

    NEED(mr);
    return mr;
}

ASK(other_domain)
{
    struct ibv_pd *pd = ibv_alloc_pd(b->ctx);
    NEED(pd);
    struct ibv_mr *mr = registered(pd);
    NEED(send_to(a, 1, WRITE, 16, SIGNALED, (uintptr_t)mem, mr->rkey) == 0);
    tell(a, b, "requester");
    answer("deallocating the domain: %s", result(ibv_dealloc_pd(pd)));
}

ASK(stale_key)
{
    struct ibv_mr *mr = registered(b->pd);
    uint32_t key = mr->rkey;
    answer("deregistering: %s", result(ibv_dereg_mr(mr)));
    answer("the next key is %s", registered(b->pd)->rkey == key ? "the same" : "another");
    NEED(send_to(a, 1, WRITE, 16, SIGNALED, (uintptr_t)mem, key) == 0);
    tell(a, b, "requester");
}

ASK(inline_without_key)
{
    struct ibv_mr none = {.lkey = 0xdead0000};

    NEED(receive(b, 2, 4096) == 0);
    a->mr = &none;
    strcpy((char *)a->buf, "first");
    posted(send_to(a, 1, SEND, 16, SIGNALED | IBV_SEND_INLINE, 0, 0));
    memcpy(a->buf, "other", 6);
    tell(a, b, "requester receiver");
    answer("it got what was there when it was posted: %s",
           strcmp((char *)b->buf, "first") == 0 ? "yes" : "no");
}

/* A message to a receive that cannot be written, by its region's rights or by its key. */
ASK(receive_unwritable)
{
    struct ibv_sge sge = {(uintptr_t)b->buf, 64, b->mr->lkey ^ asked->request.lkey_xor};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;

    posted(ibv_post_recv(b->qp, &wr, &bad));
    NEED(send_plain(a, SEND, 16, SIGNALED) == 0);
    tell(a, b, "sender receiver");
}

ASK(receive_deregistered)
{
    NEED(receive(b, 2, 4096) == 0);
    answer("deregistering: %s", result(ibv_dereg_mr(b->mr)));
    NEED(send_to(a, 1, SEND, 16, SIGNALED, 0, 0) == 0);
    tell(a, b, "sender receiver");
}

static void answer_reg(const char *what, struct end *e, void *addr, size_t length, int rights)
{
    answer("%s: %s", what, pointer_result(ibv_reg_mr(e->pd, addr, length, rights)));
}

ASK(register_rights)
{
    answer_reg("remote write alone", a, mem, sizeof(mem), IBV_ACCESS_REMOTE_WRITE);
    answer_reg("remote write and read", a, mem, sizeof(mem),
               IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    answer_reg("remote read alone", a, mem, sizeof(mem), IBV_ACCESS_REMOTE_READ);
    answer_reg("none", a, mem, sizeof(mem), 0);
}

ASK(register_nothing)
{
    void *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *fixed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    NEED(hole != MAP_FAILED && fixed != MAP_FAILED);
    munmap((char *)hole + 4096, 4096);
    answer_reg("half of it mapped", a, hole, 8192, ALL_RIGHTS);
    answer_reg("read-only pages to be written", a, fixed, 4096, ALL_RIGHTS);
    answer_reg("read-only pages to be read", a, fixed, 4096, IBV_ACCESS_REMOTE_READ);
    answer_reg("beyond the end of addresses", a, (void *)-4096ul, 8192, IBV_ACCESS_LOCAL_WRITE);
}

ASK(same_memory_twice)
{
    struct ibv_mr *second = ibv_reg_mr(b->pd, b->buf, END_SIZE, ALL_RIGHTS);

    NEED(second);
    answer("keys are %s", second->rkey == b->mr->rkey ? "the same" : "different");
    NEED(ibv_dereg_mr(b->mr) == 0);
    NEED(send_to(a, 1, WRITE, 16, SIGNALED, (uintptr_t)b->buf, second->rkey) == 0);
    answer_wc("by the other key", a->scq);
}

ASK(domain_in_use)
{
    answer("domain: %s", result(ibv_dealloc_pd(a->pd)));
    answer("completion queue: %s", result(ibv_destroy_cq(a->scq)));
    answer("queue pair: %s", result(ibv_destroy_qp(a->qp)));
    answer("completion queue then: %s", result(ibv_destroy_cq(a->scq)));
    answer("domain then: %s", result(ibv_dealloc_pd(a->pd)));
    answer("region: %s", result(ibv_dereg_mr(a->mr)));
    answer("domain then: %s", result(ibv_dealloc_pd(a->pd)));
}

#define REMOTE .tell = "requester states responder memory"
#define LWRITE IBV_ACCESS_LOCAL_WRITE
#define RWRITE IBV_ACCESS_REMOTE_WRITE
#define RREAD  IBV_ACCESS_REMOTE_READ

const struct question memory_questions[] = {
    {"write with a wrong key", .request = {WRITE, 16, .key_xor = 0x00ff0000}, REMOTE},
    {"write beyond the end of a region", .request = {WRITE, 16, END_SIZE - 8}, REMOTE},
    {"write before the start of a region", .request = {WRITE, 16, -8ull}, REMOTE},
    {"long write of which the second half is beyond the end",
     .request = {WRITE, 32768, END_SIZE - 16384}, REMOTE},
    {"read beyond the end of a region", .request = {READ, 16, END_SIZE - 8}, REMOTE},
    {"write to a region without the right", .b.rights = LWRITE | RREAD, .request = {WRITE, 16},
     REMOTE},
    {"read from a region without the right", .b.rights = LWRITE | RWRITE, .request = {READ, 16},
     REMOTE},
    {"write to a queue pair that forbids writes", .b.qp_rights = RREAD, .request = {WRITE, 16},
     REMOTE},
    {"read from a queue pair that forbids reads", .b.qp_rights = RWRITE, .request = {READ, 16},
     REMOTE},
    {"write of no bytes with a wrong key", .request = {WRITE, 0, .key_xor = ~0u}, REMOTE},
    {"read of no bytes with a wrong key", .request = {READ, 0, .key_xor = ~0u}, REMOTE},
    {"write to a region of another domain", .ask = other_domain},
    {"write with the key of a deregistered region", .ask = stale_key},
    {"send with a wrong local key",
     .request = {SEND, 16, .lkey_xor = 0x00ff0000, .receive = 4096},
     .tell = "posting requester states"},
    {"send from beyond the end of a region",
     .request = {SEND, 16, .from = END_SIZE - 8, .receive = 4096},
     .tell = "posting requester states"},
    {"inline send of memory that is not registered", .ask = inline_without_key},
    {"read into a region without local write", .a.rights = RREAD, .request = {READ, 16},
     .tell = "posting requester"},
    {"receive into a region without local write", .ask = receive_unwritable, .b.rights = RREAD},
    {"receive with a wrong local key", .ask = receive_unwritable,
     .request = {.lkey_xor = 0x00ff0000}},
    {"receive into a region deregistered meanwhile", .ask = receive_deregistered},
    {"rights that can be registered", .ask = register_rights, .setup = ALONE},
    {"memory that cannot be registered", .ask = register_nothing, .setup = ALONE},
    {"same memory registered twice", .ask = same_memory_twice},
    {"destroying what is in use", .ask = domain_in_use, .setup = ALONE},
    {NULL},
};
