/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The trace of the software HCA, and faults by rate: what a user of the device sees of them. */
#include <errno.h>
#include <inttypes.h>

#include "tests/emul/datagrams.h"

/* Compares the lines of a trace, without their time and process, and removes the file. */
static void expect_trace(const char *path, const char *wanted)
{
    char text[4096] = "", line[256];
    unsigned long long s = 0, ns = 0, before = 0;
    size_t n = 0;
    FILE *f = fopen(path, "re");

    CHECK(f);
    while (fgets(line, sizeof(line), f)) {
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
