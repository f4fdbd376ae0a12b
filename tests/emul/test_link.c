/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The model of a link: what arrives after what. Each test has one process whose requests are
 * compared, as the order of their completions is then that of the model, however late a timer
 * runs. Rates are so low that what must not come first would come a second later.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <signal.h>

#include "tests/emul/pair.h"

#define SLOW "20" /* MB/s: 1 MiB takes 52 ms, the buffer's whole many times that */

/* A link of this rate, for what is opened from now on. */
static void link_of(const char *mb_s)
{
    setenv("EMUVERBS_LINK_MB_S", mb_s, 1);
}

/* Of two completion queues the first has its completion when the second gets one. */
static void expect_before(struct ibv_cq *first, uint64_t id1, struct ibv_cq *second,
                          uint64_t id2)
{
    struct ibv_wc wc = {0};

    expect_wc(second, id2, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_poll_cq(first, 1, &wc), 1);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, id1);
}

#define MANY                                                                                   \
    60u /* writes of the whole buffer at 1 MB/s: a minute, of which a test waits for none */

TEST(everything_works_on_a_link)
{
    struct side a = {.rd_depth = 2}, b = {.rd_depth = 2};

    link_of("1000");
    loop_open(&a, &b);
    post_recv(&b, 50, 500000, 64);
    post_recv(&b, 51, 600000, 64);
    post_recv(&b, 52, 600000, 64);
    pattern(a.buf, 100000, 1);
    pattern(a.buf + 150000, 16, 3);
    pattern(b.buf + 200000, 100000, 2);
    post_send(&a, 1, SEND, 0, 64, 0);
    post_send(&a, 2, WRITE, 0, 100000, 0);
    for (unsigned i = 0; i < 5; i++) /* more than its depth */
        post_send(&a, 3 + i, READ, 200000 + 20000 * i, 20000, 200000 + 20000 * i);
    CHECK_EQ(try_send(&a, 8, WIMM, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE, a.raddr + 700000,
                      a.rkey),
             0);
    CHECK_EQ(try_send(&a, 9, SEND, 150000, 16, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 0), 0);
    memset(a.buf + 150000, 0, 16); /* inline data has left already */
    for (unsigned i = 1; i < 10; i++)
        expect_wc(a.scq, i, IBV_WC_SUCCESS);
    for (unsigned i = 50; i < 53; i++)
        expect_wc(b.rcq, i, IBV_WC_SUCCESS);
    CHECK(is_pattern(b.buf + 500000, 64, 1));
    CHECK(is_pattern(b.buf, 100000, 1));
    CHECK(is_pattern(a.buf + 200000, 100000, 2));
    CHECK(is_pattern(b.buf + 600000, 16, 3));
    CHECK(is_pattern(b.buf + 700000, 8, 1));
    loop_close(&a, &b);
}

TEST(what_is_under_way_is_lost_with_its_queue_pair)
{
    struct side a = {0}, b = {0};

    link_of("1");
    loop_open(&a, &b);
    memset(a.buf, 7, BUF_SIZE);
    for (unsigned i = 0; i < MANY; i++)
        post_send(&a, i, WRITE, 0, BUF_SIZE, 0);
    CHECK_EQ(qp_error(&a), 0);
    for (unsigned i = 0; i < MANY - 1; i++)
        CHECK_EQ(wait_wc(a.scq).wr_id, i);
    expect_wc(a.scq, MANY - 1, IBV_WC_WR_FLUSH_ERR);
    loop_close(&a, &b);
}

TEST(a_message_arrives_behind_the_bulk_of_another_queue_pair)
{
    struct side a = {0}, b = {0}, c = {0}, d = {0};
    struct ibv_wc wc[5];

    link_of(SLOW);
    loop_open(&a, &b);
    loop_open(&c, &d);
    post_recv(&d, 50, 0, 64);
    for (unsigned i = 1; i < 5; i++)
        post_send(&a, i, WRITE, 0, BUF_SIZE, 0);
    post_send(&c, 9, SEND, 0, 8, 0);
    expect_wc(c.scq, 9, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_poll_cq(a.scq, 5, wc), 4);
    for (unsigned i = 1; i < 5; i++)
        CHECK(wc[i - 1].wr_id == i && wc[i - 1].status == IBV_WC_SUCCESS);
    loop_close(&c, &d);
    loop_close(&a, &b);
}

TEST(a_message_before_the_bulk_of_another_queue_pair_does_not_wait)
{
    struct side a = {0}, b = {0}, c = {0}, d = {0};

    link_of(SLOW);
    loop_open(&a, &b);
    loop_open(&c, &d);
    post_recv(&d, 50, 0, 64);
    post_send(&c, 9, SEND, 0, 8, 0);
    post_send(&a, 1, WRITE, 0, BUF_SIZE, 0);
    expect_before(c.scq, 9, a.scq, 1);
    loop_close(&c, &d);
    loop_close(&a, &b);
}

TEST(answers_to_reads_are_in_order)
{
    struct side a = {0}, b = {0}, c = {0}, d = {0};

    link_of(SLOW);
    loop_open(&a, &b);
    loop_open(&c, &d);
    post_send(&a, 1, READ, 0, BUF_SIZE, 0);
    post_send(&c, 2, READ, 0, 8, 0);
    expect_before(a.scq, 1, c.scq, 2);
    loop_close(&c, &d);
    loop_close(&a, &b);
}

TEST(each_device_has_a_link)
{
    struct side a = {0}, b = {0}, c = {.device = 1, .dlid = 5}, d = {.device = 1, .dlid = 5};
    struct ibv_wc wc;

    link_of("1");
    setenv("EMUVERBS_DEVICES", "2", 1);
    loop_open(&a, &b);
    loop_open(&c, &d);
    post_send(&a, 1, WRITE, 0, BUF_SIZE, 0);
    post_send(&a, 2, READ, 0, BUF_SIZE, 0);
    post_send(&c, 9, WRITE, 0, 64, 0);
    post_send(&c, 10, READ, 0, 64, 0);
    expect_wc(c.scq, 9, IBV_WC_SUCCESS);
    expect_wc(c.scq, 10, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_poll_cq(a.scq, 1, &wc), 0);
    CHECK_EQ(qp_error(&a), 0);
    loop_close(&c, &d);
    loop_close(&a, &b);
    unsetenv("EMUVERBS_DEVICES");
}

/*
 * What this process reads comes through the other's engine for some seconds, what it writes
 * leaves by its own.
 */
#define READS 16

PAIR(the_directions_are_two, run_two)
ACTIVE(the_directions_are_two)
{
    struct side t = {.sock = s->sock};
    struct ibv_wc wc[READS];

    link_of("1");
    s->rd_depth = READS;
    side_open(s);
    side_connect(s);
    side_open(&t);
    side_connect(&t);
    for (unsigned i = 0; i < READS; i++)
        post_send(s, i, READ, 0, BUF_SIZE, 0);
    expect_wc(s->scq, 0, IBV_WC_SUCCESS); /* so all requests have arrived */
    post_send(&t, READS, WRITE, 0, 8, 0);
    expect_wc(t.scq, READS, IBV_WC_SUCCESS);
    CHECK(ibv_poll_cq(s->scq, READS, wc) < READS - 1);
    meet(s);
    side_close(&t);
    side_close(s);
}
PASSIVE(the_directions_are_two)
{
    struct side t = {.sock = s->sock};

    link_of("1");
    s->rd_depth = READS;
    side_open(s);
    side_connect(s);
    side_open(&t);
    side_connect(&t);
    meet(s);
    side_close(&t);
    side_close(s);
}

/* The other process writes for a minute; what is read from it comes behind that. */
PAIR(an_answer_is_behind_the_writes_of_its_process, run_two)
ACTIVE(an_answer_is_behind_the_writes_of_its_process)
{
    struct side t = {.sock = s->sock};

    link_of("1");
    side_open(s);
    side_connect(s);
    side_open(&t);
    side_connect(&t);
    meet(s);
    post_send(&t, 1, READ, 0, 8, 0);
    post_send(s, 2, WRITE, 0, 65536, 0);
    expect_wc(s->scq, 2, IBV_WC_SUCCESS);
    expect_none(t.scq);
    meet(s);
    side_close(&t);
    side_close(s);
}
PASSIVE(an_answer_is_behind_the_writes_of_its_process)
{
    struct side t = {.sock = s->sock};

    link_of("1");
    side_open(s);
    side_connect(s);
    side_open(&t);
    side_connect(&t);
    for (unsigned i = 0; i < MANY; i++)
        post_send(s, i, WRITE, 0, BUF_SIZE, 0);
    meet(s);
    meet(s);
    side_close(&t);
    side_close(s);
}

/* Killed while it writes for a minute: its last write never comes, ours to it ends as ever. */
PAIR(what_a_killed_process_has_under_way_is_lost, run_two_kill)
ACTIVE(what_a_killed_process_has_under_way_is_lost)
{
    struct ibv_wc wc;

    link_of("1");
    side_open(s);
    side_connect(s);
    meet(s);
    for (unsigned i = 0; i < MANY; i++)
        post_send(s, i, WRITE, 4096, BUF_SIZE / 4, 0);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    do
        wc = wait_wc(s->scq);
    while (wc.status == IBV_WC_SUCCESS);
    CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    CHECK(s->buf[0] != 9);
    side_close(s);
}
PASSIVE(what_a_killed_process_has_under_way_is_lost)
{
    link_of("1");
    side_open(s);
    side_connect(s);
    s->buf[4096] = 9;
    for (unsigned i = 0; i < MANY; i++)
        post_send(s, i, WRITE, 0, BUF_SIZE, 0);
    post_send(s, MANY, WRITE, 4096, 8, 0);
    meet(s);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_works_on_a_link),
        cmocka_unit_test(what_is_under_way_is_lost_with_its_queue_pair),
        cmocka_unit_test(a_message_arrives_behind_the_bulk_of_another_queue_pair),
        cmocka_unit_test(a_message_before_the_bulk_of_another_queue_pair_does_not_wait),
        cmocka_unit_test(answers_to_reads_are_in_order),
        cmocka_unit_test(each_device_has_a_link),
        cmocka_unit_test(the_directions_are_two),
        cmocka_unit_test(an_answer_is_behind_the_writes_of_its_process),
        cmocka_unit_test(what_a_killed_process_has_under_way_is_lost),
    };

    run_under_emuverbs(argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
