/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The model of a link: arrival times. The test controls the device's clock, so a request
 * arrives at the step predicted by the model. */
#include <signal.h>

#include "tests/emul/pair.h"

#define MANY 60u /* writes of the whole buffer at 1 MB/s: each takes 1.049 s */

LOOP(operations_complete_over_timed_link, .a = {.rd_depth = 2}, .b = {.rd_depth = 2},
     .env = "EMUVERBS_LINK_MB_S=1000")
{
    post_recv(b, 50, 500000, 64);
    post_recv(b, 51, 600000, 64);
    post_recv(b, 52, 600000, 64);
    pattern(a->buf, 100000, 1);
    pattern(a->buf + 150000, 16, 3);
    pattern(b->buf + 200000, 100000, 2);
    post_send(a, 1, SEND, 0, 64, 0);
    post_send(a, 2, WRITE, 0, 100000, 0);
    for (unsigned i = 0; i < 5; i++) /* more than its depth */
        post_send(a, 3 + i, READ, 200000 + 20000 * i, 20000, 200000 + 20000 * i);
    CHECK_EQ(try_send(a, 8, WIMM, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE, a->raddr + 700000,
                      a->rkey),
             0);
    CHECK_EQ(try_send(a, 9, SEND, 150000, 16, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 0), 0);
    memset(a->buf + 150000, 0, 16); /* inline data has left already */
    for (unsigned i = 1; i < 10; i++)
        expect_wc(a->scq, i, IBV_WC_SUCCESS);
    for (unsigned i = 50; i < 53; i++)
        expect_wc(b->rcq, i, IBV_WC_SUCCESS);
    CHECK(is_pattern(b->buf + 500000, 64, 1));
    CHECK(is_pattern(b->buf, 100000, 1));
    CHECK(is_pattern(a->buf + 200000, 100000, 2));
    CHECK(is_pattern(b->buf + 600000, 16, 3));
    CHECK(is_pattern(b->buf + 700000, 8, 1));
}

LOOP(destroyed_qp_loses_data_in_flight, .env = "EMUVERBS_LINK_MB_S=1")
{
    clock_stop();
    memset(a->buf, 7, BUF_SIZE);
    for (unsigned i = 0; i < MANY; i++)
        post_send(a, i, WRITE, 0, BUF_SIZE, 0);
    clock_step_ms(1048);
    expect_none(a->scq);
    clock_step_ms(1);
    expect_wc(a->scq, 0, IBV_WC_SUCCESS);
    expect_none(a->scq);
    CHECK_EQ(qp_error(a), 0);
    for (unsigned i = 1; i < MANY; i++)
        expect_wc(a->scq, i, IBV_WC_WR_FLUSH_ERR);
}

TEST(message_behind_other_qps_bulk_waits)
{
    struct side a = {0}, b = {0}, c = {0}, d = {0};

    setenv("EMUVERBS_LINK_MB_S", "20", 1);
    loop_open(&a, &b);
    loop_open(&c, &d);
    clock_stop();
    post_recv(&d, 50, 0, 64);
    for (unsigned i = 1; i < 5; i++)
        post_send(&a, i, WRITE, 0, BUF_SIZE, 0);
    post_send(&c, 9, SEND, 0, 8, 0);
    clock_step_ns(4 * UINT64_C(52432000) + 1000);
    for (unsigned i = 1; i < 5; i++)
        expect_wc(a.scq, i, IBV_WC_SUCCESS);
    expect_none(c.scq);
    clock_step_ns(3600);
    expect_wc(c.scq, 9, IBV_WC_SUCCESS);
    loop_close(&c, &d);
    loop_close(&a, &b);
}

TEST(answers_to_reads_are_in_order)
{
    struct side a = {0}, b = {0}, c = {0}, d = {0};

    setenv("EMUVERBS_LINK_MB_S", "20", 1);
    loop_open(&a, &b);
    loop_open(&c, &d);
    clock_stop();
    post_send(&a, 1, READ, 0, BUF_SIZE, 0);
    post_send(&c, 2, READ, 0, 8, 0);
    clock_step_ns(2 * 3200 + 52432000 + 1000); /* both requests have left */
    expect_wc(a.scq, 1, IBV_WC_SUCCESS);
    expect_none(c.scq);
    clock_step_ns(3600);
    expect_wc(c.scq, 2, IBV_WC_SUCCESS);
    loop_close(&c, &d);
    loop_close(&a, &b);
}

TEST(each_device_has_a_link)
{
    struct side a = {0}, b = {0}, c = {.device = 1, .dlid = 5}, d = {.device = 1, .dlid = 5};

    setenv("EMUVERBS_LINK_MB_S", "1", 1);
    setenv("EMUVERBS_DEVICES", "2", 1);
    loop_open(&a, &b);
    loop_open(&c, &d);
    clock_stop();
    post_send(&a, 1, WRITE, 0, BUF_SIZE, 0);
    post_send(&a, 2, READ, 0, BUF_SIZE, 0);
    post_send(&c, 9, WRITE, 0, 64, 0);
    post_send(&c, 10, READ, 0, 64, 0);
    clock_step_ms(1);
    expect_wc(c.scq, 9, IBV_WC_SUCCESS);
    expect_wc(c.scq, 10, IBV_WC_SUCCESS);
    expect_none(a.scq);
    CHECK_EQ(qp_error(&a), 0);
    loop_close(&c, &d);
    loop_close(&a, &b);
}

/* The other process writes for a minute; reads from it are queued behind that. */
PAIR(read_response_follows_responders_writes, run_two)
ACTIVE(read_response_follows_responders_writes)
{
    struct side t = {.sock = s->sock};
    uint64_t later;

    setenv("EMUVERBS_LINK_MB_S", "1", 1);
    side_join(s);
    side_join(&t);
    clock_stop(); /* before the other's starts */
    meet(s);
    meet(s);
    post_send(&t, 1, READ, 0, 8, 0);
    post_send(s, 2, WRITE, 0, 65536, 0);
    clock_step_ms(66);
    expect_wc(s->scq, 2, IBV_WC_SUCCESS);
    clock_step_ms(1000 * MANY);
    expect_none(t.scq);
    meet(s); /* the other sends its time: at most that much later */
    CHECK_EQ(read(s->sock, &later, sizeof(later)), sizeof(later));
    clock_step_ns(later);
    expect_wc(t.scq, 1, IBV_WC_SUCCESS);
    meet(s);
    side_close(&t);
    side_close(s);
}
PASSIVE(read_response_follows_responders_writes)
{
    struct side t = {.sock = s->sock};

    setenv("EMUVERBS_LINK_MB_S", "1", 1);
    side_join(s);
    side_join(&t);
    meet(s);
    clock_stop();
    for (unsigned i = 0; i < MANY; i++)
        post_send(s, i, WRITE, 0, BUF_SIZE, 0);
    meet(s);
    meet(s);
    uint64_t later = clock_step_ms(1050 * MANY); /* all of them have left */
    CHECK_EQ(write(s->sock, &later, sizeof(later)), sizeof(later));
    meet(s);
    side_close(&t);
    side_close(s);
}

/* The peer is killed while it writes: its last write never arrives, ours to it fails as
 * usual. */
PAIR(killed_process_loses_data_in_flight, run_two_kill)
ACTIVE(killed_process_loses_data_in_flight)
{
    struct ibv_wc wc;

    setenv("EMUVERBS_LINK_MB_S", "1", 1);
    side_join(s);
    clock_stop();
    meet(s);
    for (unsigned i = 0; i < MANY; i++)
        post_send(s, i, WRITE, 4096, BUF_SIZE / 4, 0);
    clock_step_ms(263);
    expect_wc(s->scq, 0, IBV_WC_SUCCESS);
    expect_none(s->scq);
    kill_peer_and_wait(s);
    for (unsigned steps = 0; ibv_poll_cq(s->scq, 1, &wc) == 0; steps++) {
        CHECK(steps < 20); /* retried for half a second */
        clock_step_ms(50);
    }
    CHECK_EQ(wc.wr_id, 1);
    CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQ(s->buf[4096], 9);
    CHECK(s->buf[0] != 9);
    side_close(s);
}
PASSIVE(killed_process_loses_data_in_flight)
{
    setenv("EMUVERBS_LINK_MB_S", "1", 1);
    side_join(s);
    clock_stop();
    s->buf[4096] = 9;
    for (unsigned i = 0; i < MANY; i++)
        post_send(s, i, WRITE, 0, BUF_SIZE, 0);
    post_send(s, MANY, WRITE, 4096, 8, 0);
    clock_step_ms(1050);
    expect_wc(s->scq, 0, IBV_WC_SUCCESS);
    meet(s);
    pause_forever();
}
