/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Re-registration of memory in the software HCA: ibv_rereg_mr. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"

#define TRANSLATION IBV_REREG_MR_CHANGE_TRANSLATION
#define PD          IBV_REREG_MR_CHANGE_PD
#define ACCESS      IBV_REREG_MR_CHANGE_ACCESS
#define HALF        (BUF_SIZE / 2)

/* Writes 64 bytes to b's memory at `to` by its registration's key. */
static enum ibv_wc_status write_to(struct side *a, struct side *b, const void *to)
{
    post_to(a, 1, WRITE, 0, 64, (uintptr_t)to, b->mr->rkey);
    return wait_wc(a->scq).status;
}

static bool all_are(const unsigned char *p, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

TEST(another_place_of_another_size)
{
    struct side a = {0}, b = {0};
    unsigned char *other = aligned_alloc(4096, 8192);

    loop_open(&a, &b);
    CHECK(other);
    memset(other, 0, 8192);
    pattern(a.buf, 64, 1);
    struct ibv_mr was = *b.mr;
    int64_t pinned = counter("pinned_bytes");
    CHECK_EQ(ibv_rereg_mr(b.mr, TRANSLATION, NULL, other, 8192, 0), 0);
    CHECK(b.mr->addr == other);
    CHECK_EQ(b.mr->length, 8192);
    CHECK_EQ(b.mr->rkey, was.rkey);
    CHECK_EQ(b.mr->lkey, was.lkey);
    CHECK_EQ(counter("pinned_bytes"), pinned - BUF_SIZE + 8192);
    CHECK_EQ(write_to(&a, &b, other + 8192 - 64), IBV_WC_SUCCESS);
    CHECK(is_pattern(other + 8192 - 64, 64, 1));
    CHECK_EQ(write_to(&a, &b, b.buf), IBV_WC_REM_ACCESS_ERR);
    CHECK(all_are(b.buf, BUF_SIZE, 0));
    loop_close(&a, &b);
    free(other);
}

LOOP(other_rights, .b = {.access = IBV_ACCESS_LOCAL_WRITE})
{
    CHECK_EQ(ibv_rereg_mr(b->mr, ACCESS, NULL, NULL, 0,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
             0);
    CHECK_EQ(write_to(a, b, b->buf), IBV_WC_SUCCESS);
    CHECK_EQ(ibv_rereg_mr(b->mr, ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
    CHECK_EQ(write_to(a, b, b->buf), IBV_WC_REM_ACCESS_ERR);
}

LOOP(another_domain)
{
    struct ibv_pd *pd = ibv_alloc_pd(b->ctx);
    CHECK(pd);
    CHECK_EQ(ibv_rereg_mr(b->mr, PD, pd, NULL, 0, 0), 0);
    CHECK(b->mr->pd == pd);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_rereg_mr(b->mr, PD, b->pd, NULL, 0, 0), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(write_to(a, b, b->buf), IBV_WC_SUCCESS);

    pd = ibv_alloc_pd(b->ctx);
    CHECK(pd);
    CHECK_EQ(ibv_rereg_mr(b->mr, PD, pd, NULL, 0, 0), 0);
    CHECK_EQ(write_to(a, b, b->buf), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dereg_mr(b->mr), 0);
    b->mr = NULL;
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void refused(struct side *s, int flags, struct ibv_pd *pd, void *addr, size_t length,
                    int access, int why)
{
    struct ibv_mr was = *s->mr;

    errno = 0;
    CHECK_EQ(ibv_rereg_mr(s->mr, flags, pd, addr, length, access), IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(errno, why);
    CHECK_EQ(memcmp(&was, s->mr, sizeof(was)), 0);
}

/* A refusal changes neither the registration nor its rights nor the counted bytes. */
TEST(invalid_reregistrations_refused)
{
    struct side a = {0}, b = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                        IBV_ACCESS_MW_BIND};

    setenv("EMUVERBS_MEMLOCK", "4194304", 1); /* four times BUF_SIZE; two are registered */
    loop_open(&a, &b);
    int64_t pinned = counter("pinned_bytes");
    unsigned char *hole =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *large = aligned_alloc(4096, 3 * BUF_SIZE);
    CHECK(hole != MAP_FAILED && large);
    CHECK_EQ(munmap(hole + 4096, 4096), 0);

    refused(&b, 0, NULL, NULL, 0, 0, EINVAL);
    refused(&b, 8, NULL, NULL, 0, 0, EINVAL);
    refused(&b, PD, NULL, NULL, 0, 0, EINVAL);
    refused(&b, PD, a.pd, NULL, 0, 0, EINVAL); /* of another context */
    refused(&b, TRANSLATION, NULL, NULL, 4096, 0, EINVAL);
    refused(&b, TRANSLATION, NULL, b.buf, 0, 0, EINVAL);
    refused(&b, TRANSLATION, NULL, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE, EINVAL);
    refused(&b, TRANSLATION, NULL, hole, 8192, 0, EFAULT);
    refused(&b, TRANSLATION, NULL, large, 3 * BUF_SIZE, 0, ENOMEM);
    refused(&b, ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL);
    refused(&b, ACCESS, NULL, NULL, 0, 1 << 18, EINVAL);

    struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
    struct ibv_mw_bind bind = {
        .bind_info = {b.mr, (uintptr_t)b.buf, 4096, IBV_ACCESS_REMOTE_WRITE}};
    CHECK(mw);
    CHECK_EQ(ibv_bind_mw(b.qp, mw, &bind), 0);
    refused(&b, TRANSLATION, NULL, b.buf, 4096, 0, EBUSY);
    CHECK_EQ(counter("pinned_bytes"), pinned);
    CHECK_EQ(write_to(&a, &b, b.buf + BUF_SIZE - 64), IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK_EQ(ibv_rereg_mr(b.mr, TRANSLATION, NULL, b.buf, 4096, 0), 0);
    loop_close(&a, &b);
    CHECK_EQ(munmap(hole, 4096), 0);
    free(large);
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

/* A message that has arrived and was not polled is in memory before ibv_rereg_mr returns; later
 * changes by the program stay. */
LOOP(arrived_message_copied_before_rereg_returns, PRIVATE)
{
    pattern(a->buf, 256, 5);
    post_recv(b, 1, 0, 256);
    post_done(a, SEND, 0, 256, 0);
    CHECK_EQ(counter("bounced"), 1);
    CHECK_EQ(ibv_rereg_mr(b->mr, TRANSLATION, NULL, b->buf + HALF, HALF, 0), 0);
    CHECK(is_pattern(b->buf, 256, 5));
    memset(b->buf, 9, 256);
    expect_wc(b->rcq, 1, IBV_WC_SUCCESS);
    CHECK(all_are(b->buf, 256, 9));
}

static void *post_one(void *arg)
{
    post_send(arg, 2, SEND, 0, 256, 0);
    return NULL;
}

/* A message that is checked and not yet pushed is written only into the registration's current
 * range. If its receive is outside of that, the receive fails. */
static void met_on_its_way(struct side *a, struct side *b, bool away)
{
    pattern(a->buf, 256, 5);
    memset(b->buf, 9, BUF_SIZE);
    post_recv(b, 1, 0, 256);
    pthread_t poster = spawn(post_one, a);
    wait_stopped(a->stop);
    CHECK_EQ(counter("bounced"), 1);
    CHECK_EQ(ibv_rereg_mr(b->mr, TRANSLATION, NULL, b->buf + (away ? HALF : 0), HALF, 0), 0);
    expect_none(a->scq);
    go_on(a->stop, 0);
    CHECK_EQ(pthread_join(poster, NULL), 0);
    CHECK_EQ(wait_wc(b->rcq).status, away ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
    CHECK(away ? all_are(b->buf, BUF_SIZE, 9) : is_pattern(b->buf, 256, 5));
}
LOOP(data_in_flight_spares_old_place, PRIVATE, .stop = "push")
{
    met_on_its_way(a, b, true);
}
LOOP(data_in_flight_follows_moved_region, PRIVATE, .stop = "push")
{
    met_on_its_way(a, b, false);
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
