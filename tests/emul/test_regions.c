/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages for memory that is deregistered or unmapped. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

static bool all_are(const unsigned char *p, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

/* Sent data is not accessible otherwise. */
#define PRIVATE .a = {.access = IBV_ACCESS_LOCAL_WRITE}, .b = {.access = IBV_ACCESS_LOCAL_WRITE}

/* Sends through the shared segment: a page and usual headers, no more. */
LOOP(small_sends_make_no_call, PRIVATE)
{
    for (uint32_t size = 4671; size <= 4673; size++) {
        post_recv(b, size, 0, 8192);
        post_done(a, SEND, 0, size, 0);
        expect_wc(b->rcq, size, IBV_WC_SUCCESS);
    }
    CHECK_EQ(counter("bounced"), 2);
}

/* A message that has arrived and was not polled is in memory before ibv_dereg_mr returns; later
 * changes by the program stay. */
LOOP(arrived_message_copied_before_dereg_returns, PRIVATE)
{
    pattern(a->buf, 256, 5);
    post_recv(b, 1, 0, 256);
    post_done(a, SEND, 0, 256, 0);
    CHECK_EQ(counter("bounced"), 1);
    CHECK_EQ(ibv_dereg_mr(b->mr), 0);
    b->mr = NULL;
    CHECK(is_pattern(b->buf, 256, 5));
    memset(b->buf, 9, 256);
    expect_wc(b->rcq, 1, IBV_WC_SUCCESS);
    CHECK(all_are(b->buf, 256, 9));
}

/* Unmaps memory of the sender or of the receiver; no message is copied through the segment. */
static void send_unmapped(struct side *s, struct side *of)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

    CHECK(mmap(of->buf, 4096, PROT_NONE, flags, -1, 0) == of->buf);
    post_send(s, 2, SEND, 0, 64, 0);
}
TEST_UNWATCHED(memory_that_is_gone_is_no_signal)
{
    setenv("EMUVERBS_BOUNCE_MAX", "0", 1);
    for (int receiver = 0; receiver < 2; receiver++) {
        struct side a = {0}, b = {0};

        loop_open(&a, &b);
        post_recv(&b, 1, 0, 64);
        send_unmapped(&a, receiver ? &b : &a);
        expect_wc(a.scq, 2, receiver ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR);
        expect_wc(b.rcq, 1, receiver ? IBV_WC_LOC_PROT_ERR : IBV_WC_GENERAL_ERR);
        CHECK_EQ(mprotect(receiver ? b.buf : a.buf, 4096, PROT_READ | PROT_WRITE), 0);
        loop_close(&a, &b);
    }
}
