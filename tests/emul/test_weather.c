/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The trace of the software HCA, faults by rate, and keys: what a user of the device sees. */
#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "tests/emul/datagrams.h"

/* Compares the lines of a trace, without their time and process, and removes the file. */
static void expect_trace(const char *path, const char *wanted)
{
    char text[4096] = "", line[256];
    unsigned long long s = 0, ns = 0, before = 0;
    size_t n = 0;
    FILE *f = fopen(path, "re");

    CHECK(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        int pid = 0, at = 0;
        CHECK_EQ(sscanf(line, "%llu.%9llu %d %n", &s, &ns, &pid, &at), 3);
        CHECK_EQ(pid, getpid());
        CHECK(s * 1000000000 + ns >= before);
        before = s * 1000000000 + ns;
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", line + at);
        CHECK(n < sizeof(text));
    }
    fclose(f);
    unlink(path);
    if (strcmp(text, wanted) != 0)
        fprintf(stderr, "trace:\n%swanted:\n%s", text, wanted);
    CHECK(strcmp(text, wanted) == 0);
}

TEST(trace_has_requests_and_completions)
{
    struct side a = {0}, b = {0};
    char path[64], wanted[2048], folder[] = "/tmp/emuverbs-trace-XXXXXX";

    CHECK(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/trace", folder);
    CHECK_EQ(chdir(folder), 0); /* the name is relative to the folder at the start */
    setenv("EMUVERBS_TRACE", "trace", 1);
    loop_open(&a, &b);
    CHECK_EQ(chdir("/"), 0);
    post_recv(&b, 0x10, 0, 100);
    post_send(&a, 0x20, IBV_WR_SEND, 0, 64, 0);
    expect_wc(a.scq, 0x20, IBV_WC_SUCCESS);
    expect_wc(b.rcq, 0x10, IBV_WC_SUCCESS);
    post_send(&a, 0x30, IBV_WR_RDMA_READ, 0, 8, 0);
    expect_wc(a.scq, 0x30, IBV_WC_SUCCESS);
    CHECK_EQ(qp_error(&b), 0);
    post_recv(&b, 0x40, 0, 7);
    expect_wc(b.rcq, 0x40, IBV_WC_WR_FLUSH_ERR);
    snprintf(wanted, sizeof(wanted),
             "qp 0x%06x post RECV 100 bytes wr_id 0x10\n"
             "qp 0x%06x post SEND 64 bytes wr_id 0x20\n"
             "qp 0x%06x done SEND 64 bytes wr_id 0x20 success\n"
             "qp 0x%06x done RECV 64 bytes wr_id 0x10 success\n"
             "qp 0x%06x post RDMA_READ 8 bytes wr_id 0x30\n"
             "qp 0x%06x done RDMA_READ 8 bytes wr_id 0x30 success\n"
             "qp 0x%06x post RECV 7 bytes wr_id 0x40\n"
             "qp 0x%06x done RECV 0 bytes wr_id 0x40 Work Request Flushed Error\n",
             b.qp->qp_num, a.qp->qp_num, a.qp->qp_num, b.qp->qp_num, a.qp->qp_num, a.qp->qp_num,
             b.qp->qp_num, b.qp->qp_num);
    loop_close(&a, &b);
    expect_trace(path, wanted);
    rmdir(folder);
}

/* Steps the stopped clock until the request completes. */
static void step_until(struct side *s, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc;

    while (ibv_poll_cq(s->scq, 1, &wc) == 0)
        clock_step_ms(1);
    CHECK_EQ(wc.wr_id, id);
    CHECK_EQ(wc.status, status);
}

/* Sends 64 messages of which some are hit; each arrives once, and each hit is one `count`. */
static void all_arrive(const char *fail, const char *count)
{
    struct side a = {.rnr_retry = 7, .min_rnr_timer = 1}, b = a;

    setenv("EMUVERBS_FAIL", fail, 1);
    loop_open(&a, &b);
    clock_stop();
    for (uint64_t id = 1; id <= 64; id++) {
        post_recv(&b, id, 4096, 64);
        post_send(&a, id, IBV_WR_SEND, 0, 64, 0);
        step_until(&a, id, IBV_WC_SUCCESS);
        expect_wc(b.rcq, id, IBV_WC_SUCCESS);
        expect_none(b.rcq);
    }
    CHECK(counter("faults_injected") > 16);
    CHECK_EQ(counter(count), counter("faults_injected"));
    clock_run();
    loop_close(&a, &b);
}

TEST(lost_transmissions_are_repeated)
{
    all_arrive("lost:50%", "retries");
}

TEST(receivers_not_ready_are_retried)
{
    all_arrive("not_ready:50%", "rnr_events");
}

static void one_fails(const char *fail, enum ibv_wc_status status)
{
    struct side a = {.rnr_retry = 1, .min_rnr_timer = 1}, b = a;

    setenv("EMUVERBS_FAIL", fail, 1);
    loop_open(&a, &b);
    clock_stop();
    post_recv(&b, 1, 0, 64);
    post_send(&a, 2, IBV_WR_SEND, 0, 64, 0);
    step_until(&a, 2, status);
    clock_run();
    loop_close(&a, &b);
}

TEST(connection_without_a_transmission_fails)
{
    one_fails("lost:100%", IBV_WC_RETRY_EXC_ERR);
}

TEST(receiver_never_ready_fails)
{
    one_fails("not_ready:100%", IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(late_request_keeps_the_order)
{
    struct side a = {0}, b = {0};

    setenv("EMUVERBS_FAIL", "late:1", 1);
    setenv("EMUVERBS_LATE_US", "5000", 1);
    loop_open(&a, &b);
    clock_stop();
    post_send(&a, 1, IBV_WR_RDMA_WRITE, 0, 64, 0);
    post_send(&a, 2, IBV_WR_RDMA_WRITE, 0, 64, 0);
    clock_step_ns(4999999);
    expect_none(a.scq);
    clock_step_ns(1);
    expect_wc(a.scq, 1, IBV_WC_SUCCESS);
    expect_wc(a.scq, 2, IBV_WC_SUCCESS);
    clock_run();
    loop_close(&a, &b);
}

static uint64_t *arrived; /* datagrams of a run, shared with its process */

static void send_datagrams(struct side *unused)
{
    struct side s = {0};
    (void)unused;

    setenv("EMUVERBS_FAIL", "lost:25%", 1);
    open_ud(&s);
    struct ibv_ah *ah = handle(&s, gid_of(&s), 1);
    for (unsigned i = 0; i < 64; i++) {
        struct ibv_wc wc;
        post_recv(&s, i, 4096, 200);
        datagram(&s, 100, ah, s.qp->qp_num, 0, 10);
        if (ibv_poll_cq(s.rcq, 1, &wc) == 1)
            *arrived |= UINT64_C(1) << i;
    }
    CHECK_EQ(counter("datagrams_lost"), 64 - __builtin_popcountll(*arrived));
    CHECK_EQ(ibv_destroy_ah(ah), 0);
}

CASE(lost_datagrams_repeat_with_their_seed)
{
    static const char *const seed[] = {"1", "1", "2"};
    uint64_t run[3];

    arrived =
        mmap(NULL, sizeof(*arrived), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(arrived != MAP_FAILED);
    for (unsigned i = 0; i < 3; i++) {
        *arrived = 0;
        setenv("EMUVERBS_SEED", seed[i], 1);
        assert_int_equal(run_one(send_datagrams), 0);
        run[i] = *arrived;
    }
    unsetenv("EMUVERBS_SEED");
    munmap(arrived, sizeof(*arrived));
    assert_true(run[0] == run[1] && run[0] != run[2]);
    assert_in_range(__builtin_popcountll(run[0]), 32, 60);
}

/* Uses keys of the wrong kind; returns what the library says, up to `size`. */
static void mix_keys(char *said, size_t size, enum ibv_wc_status remote)
{
    struct side a = {0}, b = {0};
    int err[2], keep = dup(2);

    loop_open(&a, &b);
    CHECK_EQ(pipe(err), 0);
    dup2(err[1], 2);
    CHECK_EQ(try_send(&a, 1, WRITE, 0, 8, IBV_SEND_SIGNALED, (uintptr_t)b.buf, b.mr->lkey), 0);
    struct ibv_wc wc = wait_wc(a.scq);
    dup2(keep, 2);
    CHECK_EQ(wc.status, remote);
    close(err[1]);
    ssize_t n = read(err[0], said, size - 1);
    CHECK(n >= 0);
    said[n] = 0;
    loop_close(&a, &b);
}

TEST(lkey_used_as_rkey_is_named)
{
    char said[512];

    mix_keys(said, sizeof(said), IBV_WC_REM_ACCESS_ERR);
    CHECK(strstr(said, "the lkey of a region was used as its rkey"));
    CHECK(strstr(said, "EMUVERBS_EQUAL_KEYS=1"));
}

TEST(equal_keys_work_as_either)
{
    char said[512];

    setenv("EMUVERBS_EQUAL_KEYS", "1", 1);
    mix_keys(said, sizeof(said), IBV_WC_SUCCESS);
    CHECK_EQ(*said, 0);
}
