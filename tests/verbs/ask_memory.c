/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about registered memory: keys, access rights, bounds. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/verbs/ask.h"

/* One request to the other end's memory that may be refused; answers with the results at both
 * ends. */
struct access {
    enum ibv_wr_opcode op;
    uint32_t length;
    uint64_t offset;
    uint32_t key_xor;
    int rights, qp_rights;
};

static void remote(const struct access *r)
{
    struct end a = {0}, b = {.rights = r->rights, .qp_rights = r->qp_rights};

    ends_open(&a, &b);
    memset(b.buf, 0x55, END_SIZE);
    memset(a.buf, 0xaa, END_SIZE);
    NEED(send_to(&a, 1, r->op, r->length, SIGNALED, (uintptr_t)b.buf + r->offset,
                 b.mr->rkey ^ r->key_xor) == 0);
    answer_wc("requester", a.scq);
    answer("states %s and %s", end_state(&a), end_state(&b));
    answer_async("responder", &b);
    for (unsigned i = 0; i < END_SIZE; i++)
        if (b.buf[i] != 0x55) {
            answer("memory changed");
            return;
        }
    answer("memory untouched");
}

#define REMOTE(name, ...)                                                                      \
    static void name(void)                                                                     \
    {                                                                                          \
        remote(&(const struct access){__VA_ARGS__});                                           \
    }
REMOTE(wrong_key, .op = WRITE, .length = 16, .key_xor = 0x00ff0000)
REMOTE(write_beyond, .op = WRITE, .length = 16, .offset = END_SIZE - 8)
REMOTE(write_before, .op = WRITE, .length = 16, .offset = -8ull)
REMOTE(read_beyond, .op = READ, .length = 16, .offset = END_SIZE - 8)
REMOTE(write_partly_beyond, .op = WRITE, .length = 32768, .offset = END_SIZE - 16384)
REMOTE(write_without_right, .op = WRITE, .length = 16,
       .rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)
REMOTE(read_without_right, .op = READ, .length = 16,
       .rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
REMOTE(write_qp_forbids, .op = WRITE, .length = 16, .qp_rights = IBV_ACCESS_REMOTE_READ)
REMOTE(read_qp_forbids, .op = READ, .length = 16, .qp_rights = IBV_ACCESS_REMOTE_WRITE)
REMOTE(zero_write, .op = WRITE, .key_xor = 0xffffffff)
REMOTE(zero_read, .op = READ, .key_xor = 0xffffffff)

static void other_domain(void)
{
    struct end a = {0}, b = {0};
    static unsigned char mem[4096];

    ends_open(&a, &b);
    struct ibv_pd *pd = ibv_alloc_pd(b.ctx);
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, mem, sizeof(mem), ALL_RIGHTS) : NULL;
    NEED(mr);
    NEED(send_to(&a, 1, WRITE, 16, SIGNALED, (uintptr_t)mem, mr->rkey) == 0);
    answer_wc("requester", a.scq);
    answer("deallocating the domain: %s", result(ibv_dealloc_pd(pd)));
}

static void stale_key(void)
{
    struct end a = {0}, b = {0};
    static unsigned char mem[4096];

    ends_open(&a, &b);
    struct ibv_mr *mr = ibv_reg_mr(b.pd, mem, sizeof(mem), ALL_RIGHTS);
    NEED(mr);
    uint32_t key = mr->rkey;
    answer("deregistering: %s", result(ibv_dereg_mr(mr)));
    mr = ibv_reg_mr(b.pd, mem, sizeof(mem), ALL_RIGHTS);
    NEED(mr);
    answer("the next key is %s", mr->rkey == key ? "the same" : "another");
    NEED(send_to(&a, 1, WRITE, 16, SIGNALED, (uintptr_t)mem, key) == 0);
    answer_wc("requester", a.scq);
}

/* Posts a send with one segment. */
static int send_segment(struct end *e, void *base, uint32_t length, uint32_t key,
                        unsigned flags)
{
    struct ibv_sge sge = {(uintptr_t)base, length, key};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = SEND,
                             .send_flags = flags},
                       *bad;

    return ibv_post_send(e->qp, &wr, &bad);
}

static void local(uint32_t key_xor, size_t offset)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(receive(&b, 2, 4096) == 0);
    answer("posting: %s",
           result(send_segment(&a, a.buf + offset, 16, a.mr->lkey ^ key_xor, SIGNALED)));
    answer_wc("requester", a.scq);
    answer("states %s and %s", end_state(&a), end_state(&b));
}
static void wrong_local_key(void)
{
    local(0x00ff0000, 0);
}
static void local_beyond(void)
{
    local(0, END_SIZE - 8);
}

static void inline_without_key(void)
{
    struct end a = {0}, b = {0};
    char word[16] = "first";

    ends_open(&a, &b);
    NEED(receive(&b, 2, 4096) == 0);
    answer("posting: %s", result(send_segment(&a, word, sizeof(word), 0xdead0000,
                                              SIGNALED | IBV_SEND_INLINE)));
    memcpy(word, "other", 6);
    answer_wc("requester", a.scq);
    answer_wc("receiver", b.rcq);
    answer("it got what was there when it was posted: %s",
           strcmp((char *)b.buf, "first") == 0 ? "yes" : "no");
}

static void read_into_readonly(void)
{
    struct end a = {.rights = IBV_ACCESS_REMOTE_READ}, b = {0};

    ends_open(&a, &b);
    answer("posting: %s", result(send_plain(&a, READ, 16, SIGNALED)));
    answer_wc("requester", a.scq);
}

static void receive_readonly(void)
{
    struct end a = {0}, b = {.rights = IBV_ACCESS_REMOTE_READ};

    ends_open(&a, &b);
    answer("posting: %s", result(receive(&b, 2, 4096)));
    NEED(send_plain(&a, SEND, 16, SIGNALED) == 0);
    answer_wc("sender", a.scq);
    answer_wc("receiver", b.rcq);
}

static void receive_wrong_key(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    struct ibv_sge sge = {(uintptr_t)b.buf, 64, b.mr->lkey ^ 0x00ff0000};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
    answer("posting: %s", result(ibv_post_recv(b.qp, &wr, &bad)));
    NEED(send_plain(&a, SEND, 16, SIGNALED) == 0);
    answer_wc("sender", a.scq);
    answer_wc("receiver", b.rcq);
}

static void receive_deregistered(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    NEED(receive(&b, 2, 4096) == 0);
    answer("deregistering: %s", result(ibv_dereg_mr(b.mr)));
    NEED(send_to(&a, 1, SEND, 16, SIGNALED, 0, 0) == 0);
    answer_wc("sender", a.scq);
    answer_wc("receiver", b.rcq);
}

static void register_rights(void)
{
    struct end e = {0};
    static unsigned char mem[4096];

    end_open(&e, false);
    answer("remote write alone: %s",
           pointer_result(ibv_reg_mr(e.pd, mem, sizeof(mem), IBV_ACCESS_REMOTE_WRITE)));
    answer("remote write and read: %s",
           pointer_result(ibv_reg_mr(e.pd, mem, sizeof(mem),
                                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)));
    answer("remote read alone: %s",
           pointer_result(ibv_reg_mr(e.pd, mem, sizeof(mem), IBV_ACCESS_REMOTE_READ)));
    answer("none: %s", pointer_result(ibv_reg_mr(e.pd, mem, sizeof(mem), 0)));
}

static void register_nothing(void)
{
    struct end e = {0};
    void *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *fixed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    NEED(hole != MAP_FAILED && fixed != MAP_FAILED);
    end_open(&e, false);
    munmap((char *)hole + 4096, 4096);
    answer("half of it mapped: %s", pointer_result(ibv_reg_mr(e.pd, hole, 8192, ALL_RIGHTS)));
    answer("read-only pages to be written: %s",
           pointer_result(ibv_reg_mr(e.pd, fixed, 4096, ALL_RIGHTS)));
    answer("read-only pages to be read: %s",
           pointer_result(ibv_reg_mr(e.pd, fixed, 4096, IBV_ACCESS_REMOTE_READ)));
    answer("beyond the end of addresses: %s",
           pointer_result(ibv_reg_mr(e.pd, (void *)-4096ul, 8192, IBV_ACCESS_LOCAL_WRITE)));
}

static void same_memory_twice(void)
{
    struct end a = {0}, b = {0};

    ends_open(&a, &b);
    struct ibv_mr *second = ibv_reg_mr(b.pd, b.buf, END_SIZE, ALL_RIGHTS);
    NEED(second);
    answer("keys are %s", second->rkey == b.mr->rkey ? "the same" : "different");
    NEED(ibv_dereg_mr(b.mr) == 0);
    NEED(send_to(&a, 1, WRITE, 16, SIGNALED, (uintptr_t)b.buf, second->rkey) == 0);
    answer_wc("by the other key", a.scq);
}

static void domain_in_use(void)
{
    struct end e = {0};

    end_open(&e, false);
    answer("domain: %s", result(ibv_dealloc_pd(e.pd)));
    answer("completion queue: %s", result(ibv_destroy_cq(e.scq)));
    answer("queue pair: %s", result(ibv_destroy_qp(e.qp)));
    answer("completion queue then: %s", result(ibv_destroy_cq(e.scq)));
    answer("domain then: %s", result(ibv_dealloc_pd(e.pd)));
    answer("region: %s", result(ibv_dereg_mr(e.mr)));
    answer("domain then: %s", result(ibv_dealloc_pd(e.pd)));
}

const struct question memory_questions[] = {
    {"write with a wrong key", wrong_key},
    {"write beyond the end of a region", write_beyond},
    {"write before the start of a region", write_before},
    {"long write of which the second half is beyond the end", write_partly_beyond},
    {"read beyond the end of a region", read_beyond},
    {"write to a region without the right", write_without_right},
    {"read from a region without the right", read_without_right},
    {"write to a queue pair that forbids writes", write_qp_forbids},
    {"read from a queue pair that forbids reads", read_qp_forbids},
    {"write of no bytes with a wrong key", zero_write},
    {"read of no bytes with a wrong key", zero_read},
    {"write to a region of another domain", other_domain},
    {"write with the key of a deregistered region", stale_key},
    {"send with a wrong local key", wrong_local_key},
    {"send from beyond the end of a region", local_beyond},
    {"inline send of memory that is not registered", inline_without_key},
    {"read into a region without local write", read_into_readonly},
    {"receive into a region without local write", receive_readonly},
    {"receive with a wrong local key", receive_wrong_key},
    {"receive into a region deregistered meanwhile", receive_deregistered},
    {"rights that can be registered", register_rights},
    {"memory that cannot be registered", register_nothing},
    {"same memory registered twice", same_memory_twice},
    {"destroying what is in use", domain_in_use},
    {NULL, NULL},
};
