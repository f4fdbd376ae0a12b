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
TEST(qp_failure_survives_modify)
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
TEST(failed_qp_moves_to_err)
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

#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

TEST(write_with_a_local_key)
{
    struct side a = {0}, b = {0};

    loop_open(&a, &b);
    CHECK_EQ(try_send(&a, 1, WRITE, 0, 16, IBV_SEND_SIGNALED, a.raddr, a.rkey ^ 0x80000000), 0);
    expect_wc(a.scq, 1, IBV_WC_REM_ACCESS_ERR);
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

TEST(unmapped_memory_is_remote_error)
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
        T(qp_failure_survives_modify),      T(failed_qp_moves_to_err),
        T(write_with_a_local_key),          T(receive_too_small),
        T(unmapped_memory_is_remote_error), T(memlock_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
