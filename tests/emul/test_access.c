/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Conformance of the software HCA: keys, access rights, bounds and registration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

static struct side *failing;

/* Handles the fault at the middle of an attribute structure: fails the QP before the rest is
 * read. */
static void fail_it(int signal, siginfo_t *info, void *context)
{
    void *page = (void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    (void)signal, (void)context;

    CHECK_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
    CHECK_EQ(try_send(failing, 1, WRITE, 0, 16, IBV_SEND_SIGNALED, failing->raddr,
                      failing->rkey ^ 2),
             0);
    expect_wc(failing->scq, 1, IBV_WC_REM_ACCESS_ERR);
}

/* A QP that its peer fails during ibv_modify_qp has failed. */
TEST(a_failure_is_not_overwritten)
{
    const int mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
    struct sigaction fault = {.sa_sigaction = fail_it, .sa_flags = SA_SIGINFO};
    struct side a = {0}, b = {0};

    loop_open(&a, &b);
    failing = &a;
    struct ibv_qp_attr drain = {.qp_state = IBV_QPS_SQD};
    CHECK_EQ(ibv_modify_qp(b.qp, &drain, IBV_QP_STATE), 0);
    unsigned char *pages =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    struct ibv_qp_attr *attr =
        (void *)(pages + 4096 - offsetof(struct ibv_qp_attr, qp_access_flags));
    attr->qp_state = IBV_QPS_RTS;
    CHECK_EQ(mprotect(pages + 4096, 4096, PROT_NONE), 0);
    CHECK_EQ(sigaction(SIGSEGV, &fault, NULL), 0);
    alarm(60);
    CHECK_EQ(ibv_modify_qp(b.qp, attr, mask), EINVAL);
    CHECK_EQ(qp_state(&b), IBV_QPS_ERR);
    expect_async(&b, IBV_EVENT_QP_ACCESS_ERR, b.qp);
    CHECK_EQ(munmap(pages, 8192), 0);
    loop_close(&a, &b);
}

/* A QP that failed before can be moved to ERR. */
TEST(a_failed_queue_pair_can_be_stopped)
{
    struct sigaction fault = {.sa_sigaction = fail_it, .sa_flags = SA_SIGINFO};
    struct side a = {0}, b = {0};

    loop_open(&a, &b);
    failing = &a;
    struct ibv_qp_attr *attr =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(attr != MAP_FAILED);
    attr->qp_state = IBV_QPS_ERR;
    CHECK_EQ(mprotect(attr, 4096, PROT_NONE), 0);
    CHECK_EQ(sigaction(SIGSEGV, &fault, NULL), 0);
    alarm(60);
    CHECK_EQ(ibv_modify_qp(b.qp, attr, IBV_QP_STATE), 0);
    CHECK_EQ(qp_state(&b), IBV_QPS_ERR);
    expect_async(&b, IBV_EVENT_QP_ACCESS_ERR, b.qp);
    CHECK_EQ(munmap(attr, 4096), 0);
    loop_close(&a, &b);
}

/* Posts a request that must fail at the requester with `status` and leave both QPs as given. */
static void refused(enum ibv_wr_opcode op, uint64_t roff, uint32_t len, uint32_t rkey_xor,
                    int peer_access, int peer_qp_access, enum ibv_wc_status status,
                    enum ibv_event_type event)
{
    struct side a = {0}, b = {.access = peer_access, .qp_access = peer_qp_access};

    loop_open(&a, &b);
    memset(b.buf, 0x55, BUF_SIZE);
    memset(a.buf, 0xaa, 4096);
    post_recv(&b, 77, 0, 4096);
    post_recv(&a, 78, 0, 4096);
    CHECK_EQ(try_send(&a, 1, op, 0, len, IBV_SEND_SIGNALED, b.qp ? a.raddr + roff : 0,
                      a.rkey ^ rkey_xor),
             0);
    CHECK_EQ(try_send(&a, 2, SEND, 0, 8, 0, 0, 0), 0);
    expect_wc(a.scq, 1, status);
    expect_wc(a.scq, 2, IBV_WC_WR_FLUSH_ERR); /* although unsignalled */
    expect_wc(a.rcq, 78, IBV_WC_WR_FLUSH_ERR);
    expect_async(&b, event, b.qp);
    expect_wc(b.rcq, 77, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(qp_state(&a), IBV_QPS_ERR);
    CHECK_EQ(qp_state(&b), IBV_QPS_ERR);
    for (unsigned i = 0; i < BUF_SIZE; i++)
        CHECK_EQ(b.buf[i], 0x55);
    loop_close(&a, &b);
}

#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

TEST(write_with_a_wrong_key)
{
    refused(WRITE, 0, 16, 0x100, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}
TEST(write_with_a_local_key)
{
    refused(WRITE, 0, 16, 0x80000000, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}
TEST(write_beyond_the_region)
{
    refused(WRITE, BUF_SIZE - 8, 16, 0, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}
TEST(write_before_the_region)
{
    refused(WRITE, -8ull, 16, 0, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}
TEST(write_without_the_right)
{
    refused(WRITE, 0, 16, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0,
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}
TEST(read_without_the_right)
{
    refused(READ, 0, 16, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0,
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}
TEST(write_to_a_qp_that_does_not_allow_it)
{
    refused(WRITE, 0, 16, 0, ALL_RIGHTS, IBV_ACCESS_REMOTE_READ, IBV_WC_REM_INV_REQ_ERR,
            IBV_EVENT_QP_REQ_ERR);
}
TEST(read_from_a_qp_that_does_not_allow_it)
{
    refused(READ, 0, 16, 0, ALL_RIGHTS, IBV_ACCESS_REMOTE_WRITE, IBV_WC_REM_INV_REQ_ERR,
            IBV_EVENT_QP_REQ_ERR);
}

TEST(region_of_another_protection_domain)
{
    struct side a = {0}, b = {0};
    static unsigned char mem[4096];

    loop_open(&a, &b);
    struct ibv_pd *pd = ibv_alloc_pd(b.ctx);
    struct ibv_mr *mr = ibv_reg_mr(pd, mem, sizeof(mem), ALL_RIGHTS);
    CHECK(mr);
    CHECK_EQ(try_send(&a, 1, WRITE, 0, 16, IBV_SEND_SIGNALED, (uintptr_t)mem, mr->rkey), 0);
    expect_wc(a.scq, 1, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    loop_close(&a, &b);
}

TEST(stale_key_after_deregistration)
{
    struct side a = {0}, b = {0};
    static unsigned char mem[4096];

    loop_open(&a, &b);
    struct ibv_mr *mr = ibv_reg_mr(b.pd, mem, sizeof(mem), ALL_RIGHTS);
    uint32_t rkey = mr->rkey;
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    struct ibv_mr *again = ibv_reg_mr(b.pd, mem, sizeof(mem), ALL_RIGHTS);
    CHECK(again->rkey != rkey);
    CHECK_EQ(try_send(&a, 1, WRITE, 0, 16, IBV_SEND_SIGNALED, (uintptr_t)mem, rkey), 0);
    expect_wc(a.scq, 1, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dereg_mr(again), 0);
    loop_close(&a, &b);
}

TEST(zero_length_write_needs_no_key)
{
    struct side a = {0}, b = {0};

    loop_open(&a, &b);
    CHECK_EQ(try_send(&a, 1, WRITE, 0, 0, IBV_SEND_SIGNALED, 0, 0), 0);
    expect_wc(a.scq, 1, IBV_WC_SUCCESS);
    loop_close(&a, &b);
}

TEST(local_key_errors_at_the_sender)
{
    struct side a = {0}, b = {0};
    struct ibv_sge sge;
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = SEND}, *bad;

    loop_open(&a, &b);
    post_recv(&b, 9, 0, 4096);
    sge = (struct ibv_sge){(uintptr_t)a.buf, 16, a.mr->lkey + 1};
    CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
    expect_wc(a.scq, 1, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(qp_state(&a), IBV_QPS_ERR);
    CHECK_EQ(qp_state(&b), IBV_QPS_RTS); /* not notified */
    expect_none(b.rcq);
    loop_close(&a, &b);
}

TEST(read_into_memory_without_local_write)
{
    struct side a = {.access = IBV_ACCESS_REMOTE_READ}, b = {0};

    loop_open(&a, &b);
    post_send(&a, 1, READ, 0, 16, 0);
    expect_wc(a.scq, 1, IBV_WC_LOC_PROT_ERR);
    loop_close(&a, &b);
}

TEST(receive_too_small)
{
    for (unsigned len = 65; len < 10000; len += 9000) { /* through the segment, and directly */
        struct side a = {0}, b = {0};
        loop_open(&a, &b);
        memset(b.buf, 0x55, 4096);
        post_recv(&b, 1, 0, 64);
        post_recv(&b, 2, 0, 64);
        post_send(&a, 3, SEND, 0, len, 0);
        expect_wc(b.rcq, 1, IBV_WC_LOC_LEN_ERR);
        expect_wc(b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
        expect_wc(a.scq, 3, IBV_WC_REM_INV_REQ_ERR);
        CHECK_EQ(qp_state(&b), IBV_QPS_ERR);
        for (unsigned i = 64; i < 4096; i++)
            CHECK_EQ(b.buf[i], 0x55);
        loop_close(&a, &b);
    }
}

TEST(receive_with_a_wrong_key)
{
    struct side a = {0}, b = {0};
    struct ibv_sge sge;
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

    loop_open(&a, &b);
    sge = (struct ibv_sge){(uintptr_t)b.buf, 64, b.mr->lkey + 1};
    CHECK_EQ(ibv_post_recv(b.qp, &wr, &bad), 0);
    post_send(&a, 3, SEND, 0, 8, 0);
    expect_wc(b.rcq, 1, IBV_WC_LOC_PROT_ERR);
    expect_wc(a.scq, 3, IBV_WC_REM_OP_ERR);
    loop_close(&a, &b);
}

TEST(memory_that_is_gone_is_an_error_and_no_crash)
{
    struct side a = {0}, b = {0};
    void *mem = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    loop_open(&a, &b);
    struct ibv_mr *mr = ibv_reg_mr(b.pd, mem, 65536, ALL_RIGHTS);
    CHECK(mr);
    munmap(mem, 65536);
    CHECK_EQ(try_send(&a, 1, WRITE, 0, 16, IBV_SEND_SIGNALED, (uintptr_t)mem, mr->rkey), 0);
    expect_wc(a.scq, 1, IBV_WC_REM_OP_ERR);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    loop_close(&a, &b);
}

TEST(registering_what_cannot_be_pinned_fails)
{
    struct side a = {0};
    unsigned char *mem =
        mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    side_open(&a);
    munmap(mem + 4096, 4096);
    CHECK(!ibv_reg_mr(a.pd, mem, 3 * 4096, IBV_ACCESS_LOCAL_WRITE));
    CHECK_EQ(errno, EFAULT);
    mprotect(mem, 4096, PROT_READ);
    CHECK(!ibv_reg_mr(a.pd, mem, 4096, IBV_ACCESS_LOCAL_WRITE));
    CHECK_EQ(errno, EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(a.pd, mem, 4096, 0);
    CHECK(mr);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK(!ibv_reg_mr(a.pd, mem + 8192, 4096, IBV_ACCESS_REMOTE_WRITE));
    CHECK_EQ(errno, EINVAL);
    side_close(&a);
}

TEST(memlock_limit)
{
    struct side a = {0};
    static unsigned char mem[2 << 20];

    setenv("EMUVERBS_MEMLOCK", "2097152", 1);
    side_open(&a); /* registers BUF_SIZE = 1 MiB */
    CHECK(!ibv_reg_mr(a.pd, mem, (1 << 20) + 1, IBV_ACCESS_LOCAL_WRITE));
    CHECK_EQ(errno, ENOMEM);
    struct ibv_mr *mr = ibv_reg_mr(a.pd, mem, 1 << 20, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    CHECK_EQ(counter("pinned_bytes"), 2 << 20);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(counter("pinned_bytes"), 1 << 20);
    side_close(&a);
}

#define T(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    run_under_emuverbs(argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]); /* a pattern: run only these tests */
    const struct CMUnitTest tests[] = {
        T(a_failure_is_not_overwritten),
        T(a_failed_queue_pair_can_be_stopped),
        T(write_with_a_wrong_key),
        T(write_with_a_local_key),
        T(write_beyond_the_region),
        T(write_before_the_region),
        T(write_without_the_right),
        T(read_without_the_right),
        T(write_to_a_qp_that_does_not_allow_it),
        T(read_from_a_qp_that_does_not_allow_it),
        T(region_of_another_protection_domain),
        T(stale_key_after_deregistration),
        T(zero_length_write_needs_no_key),
        T(local_key_errors_at_the_sender),
        T(read_into_memory_without_local_write),
        T(receive_too_small),
        T(receive_with_a_wrong_key),
        T(memory_that_is_gone_is_an_error_and_no_crash),
        T(registering_what_cannot_be_pinned_fails),
        T(memlock_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
