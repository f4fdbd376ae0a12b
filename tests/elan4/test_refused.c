/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Transfers that meet an address where no memory is: their link ends, in order, and nothing
 * else; and how much may be under way, of packets and of reads that are asked for.
 *
 * Links here are never given up for want of time, so one that does not end in order ends the
 * test.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/sides.h"

#define FOR_EVER "elan_drain_timeout_ms=600000"
#define PIECES   8
#define EACH     600

struct field {
    uint8_t here[PIECES * EACH], there[PIECES * EACH];
    void *hole; /* a page where nothing is */
    struct rme_mr mr;
    struct rme_lseg seg[PIECES];
    struct rme_piece piece[PIECES];
};

/* A list between `here` of the client and `there` of the server; the piece `bad` meets the
 * hole. */
static void lay_out(struct field *f, struct side *server, int bad, bool here)
{
    f->hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f->hole, MAP_FAILED);
    assert_int_equal(
        ops->reg(server->f, f->there, sizeof(f->there), RME_ACCESS_REMOTE_WRITE, &f->mr), 0);
    for (int i = 0; i < PIECES; i++) {
        bool hole = i == bad;
        f->seg[i] =
            (struct rme_lseg){hole && here ? f->hole : f->here + (size_t)i * EACH, EACH, 0};
        f->piece[i] = (struct rme_piece){
            (uintptr_t)(hole && !here ? f->hole : f->there + (size_t)i * EACH), f->mr.rkey,
            &f->seg[i], 1};
    }
}

static struct rme_xfer list(struct field *f, struct side *client, bool read, size_t note)
{
    struct rme_xfer x = {.read = read,
                         .notify = note ? RME_NOTIFY_MSG : RME_NOTIFY_IMM,
                         .imm = 7,
                         .piece = f->piece,
                         .npiece = PIECES,
                         .bytes = PIECES * EACH};

    if (note) {
        x.tx = ops->tx_get(client->link);
        assert_non_null(x.tx);
        memset(x.tx, 'n', note);
        ((char *)x.tx)[note - 1] = 0;
        x.tx_length = note;
    }
    return x;
}

/* One bad piece of a list, here or there; the message behind it may have several packets. */
static void one_is_refused(bool read, bool here, size_t note)
{
    struct side server, client, other;
    struct field f;

    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    open_side(&other, NULL, FOR_EVER);
    dial(&other, "elan4://0:2");
    until(&other, &server, RME_EV_LINK_UP, 1);
    until(&server, &other, RME_EV_LINK_UP, 2);
    lay_out(&f, &server, 5, here);
    struct rme_xfer x = list(&f, &client, read, note);
    ops->xfer(client.link, &x);
    say(&client, "behind it");
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -EFAULT);
    assert_int_equal(server.error, -ECONNRESET);
    assert_int_equal(client.count[RME_EV_XFER_DONE], 0);
    assert_int_equal(server.count[RME_EV_IMM] + server.count[RME_EV_RECV], 0);
    munmap(f.hole, 4096);
    /* others live, and so does who was refused */
    say(&other, "still here");
    until(&server, &other, RME_EV_RECV, 1);
    assert_string_equal(server.text, "still here");
    assert_int_equal(other.count[RME_EV_LINK_DOWN], 0);
    dial(&client, "elan4://0:2");
    until(&client, &server, RME_EV_LINK_UP, 2);
    until(&server, &client, RME_EV_LINK_UP, 3);
    lay_out(&f, &server, -1, true);
    x = list(&f, &client, read, note);
    ops->xfer(client.link, &x);
    ops->flush(client.f);
    until(&client, &server, RME_EV_XFER_DONE, 1);
    until(&server, &client, note ? RME_EV_RECV : RME_EV_IMM, note ? 2 : 1);
    munmap(f.hole, 4096);
    ops->link_disconnect(client.link, -ESHUTDOWN);
    ops->link_disconnect(other.link, -ESHUTDOWN);
    until(&client, &server, RME_EV_LINK_DOWN, 2);
    until(&other, &server, RME_EV_LINK_DOWN, 1);
    until(&server, NULL, RME_EV_LINK_DOWN, 3);
    close_side(&other);
    close_side(&client);
    close_side(&server);
}

static void write_from_nowhere(void **state)
{
    (void)state;
    one_is_refused(false, true, 0);
    one_is_refused(false, true, 4000);
}

static void write_to_nowhere(void **state)
{
    (void)state;
    one_is_refused(false, false, 0);
    one_is_refused(false, false, 100);
}

static void read_to_nowhere(void **state)
{
    (void)state;
    one_is_refused(true, true, 100);
}

static void read_from_nowhere(void **state)
{
    (void)state;
    one_is_refused(true, false, 100);
    one_is_refused(true, false, 4000);
}

/* A notification vouches for the silent transfers before it: it does not come when one is
 * refused. */
static void silent_one_is_refused(void **state)
{
    struct side server, client;
    struct field bad, good;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    lay_out(&bad, &server, 0, false);
    lay_out(&good, &server, -1, true);
    struct rme_xfer silent = list(&bad, &client, false, 0),
                    told = list(&good, &client, false, 4000);
    silent.notify = RME_NOTIFY_NONE;
    ops->xfer(client.link, &silent);
    ops->xfer(client.link, &told);
    ops->flush(client.f);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -EFAULT);
    assert_int_equal(server.count[RME_EV_RECV], 0);
    munmap(bad.hole, 4096);
    munmap(good.hole, 4096);
    close_side(&client);
    close_side(&server);
}

/* Nothing comes into the queue of who sleeps, and yet it wakes up. */
static void refusal_wakes(void **state)
{
    struct side server, client;
    struct field f;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    lay_out(&f, &server, PIECES - 1, true);
    struct rme_xfer x = list(&f, &client, false, 0);
    ops->xfer(client.link, &x);
    ops->flush(client.f);
    alarm(20);
    while (TAILQ_EMPTY(&client.f->ending)) {
        assert_int_equal(ops->arm(client.f), 0);
        ops->wait(client.f, -1);
        poll_side(&client);
    }
    alarm(0);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    munmap(f.hole, 4096);
    close_side(&client);
    close_side(&server);
}

/* The peer's queue is full: no number is sent that is 64 ahead of one that has not landed. */
static void window_of_packets(void **state)
{
    enum { SLOTS = 16, MESSAGES = 120 };
    struct side server, client;
    char text[20];
    (void)state;
    open_pair(&server, &client, "elan_slots=16", "");
    assert_int_equal(ops->rx_reserve(server.link, MESSAGES), 0);
    uint64_t *sent = &client.stats.value[RME_C_SEND_REQUESTS], before = *sent;
    for (int i = 0; i < MESSAGES; i++) {
        snprintf(text, sizeof(text), "%d", i);
        say(&client, text);
    }
    for (int i = 0; i < 100; i++)
        poll_side(&client);
    /* fewer than all slots and a window if the oldest is held back and others overtake it */
    assert_in_range(*sent - before, 64, SLOTS + 64);
    for (int i = 1; i <= MESSAGES; i++) {
        until(&server, &client, RME_EV_RECV, i);
        if (server.count[RME_EV_RECV] != i)
            continue; /* several at once */
        snprintf(text, sizeof(text), "%d", i - 1);
        assert_string_equal(server.text, text);
    }
    assert_int_equal(*sent - before, MESSAGES);
    part(&client, &server);
    close_side(&client);
    close_side(&server);
}

enum { READS = 500 };

/* A read of many pieces, asked of a peer that takes no requests: `n` is the message behind it.
 */
static void ask_in_vain(struct side *server, struct side *client, struct rme_xfer *x, size_t n)
{
    static uint8_t here[READS], there[READS];
    static struct rme_lseg seg[READS];
    static struct rme_piece piece[READS];
    struct rme_mr mr;

    assert_int_equal(ops->reg(server->f, there, READS, RME_ACCESS_REMOTE_READ, &mr), 0);
    for (int i = 0; i < READS; i++) {
        there[i] = (uint8_t)(i * 3 + 1);
        here[i] = 0;
        seg[i] = (struct rme_lseg){here + i, 1, 0};
        piece[i] =
            (struct rme_piece){(uintptr_t)there + READS - 1 - (size_t)i, mr.rkey, &seg[i], 1};
    }
    *x = (struct rme_xfer){.read = true, .piece = piece, .npiece = READS, .bytes = READS};
    if (n) {
        x->notify = RME_NOTIFY_MSG;
        x->tx = ops->tx_get(client->link);
        x->tx_length = n;
        memset(x->tx, 'n', n);
    }
    assert_int_equal(elan4_block_inputter(server->f->nic->ctx, 1), 0);
    ops->xfer(client->link, x);
    ops->flush(client->f);
    for (int i = 0; i < 200; i++)
        poll_side(client);
}

/* No more requests are made than the command queue holds. */
static void queue_of_reads(void **state)
{
    struct side server, client;
    struct rme_xfer x;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    uint64_t *reads = &client.stats.value[RME_C_RDMA_READS];
    ask_in_vain(&server, &client, &x, 0);
    assert_int_equal(*reads, 96);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_XFER_DONE, 1);
    assert_int_equal(*reads, READS);
    for (int i = 0; i < READS; i++)
        assert_int_equal(*(uint8_t *)x.piece[i].seg->base, *(uint8_t *)x.piece[i].raddr);
    assert_int_equal(atomic_load(&client.f->nic->traps), 0);
    part(&client, &server);
    close_side(&client);
    close_side(&server);
}

/* The link ends while most of a read is not asked for: the message behind it is not sent, and
 * the link comes to its end in order. */
static void read_cut_short(void **state)
{
    struct side server, client;
    struct rme_xfer x;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    ask_in_vain(&server, &client, &x, 4000);
    ops->link_disconnect(client.link, -ESHUTDOWN);
    for (int i = 0; i < 100; i++)
        poll_side(&client);
    assert_int_equal(client.count[RME_EV_LINK_DOWN], 0); /* 96 are under way */
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -ESHUTDOWN);
    assert_int_equal(server.count[RME_EV_RECV], 0);
    assert_int_equal(atomic_load(&client.f->nic->traps), 0);
    assert_int_equal(client.stats.value[RME_C_RDMA_READS], 96);
    close_side(&client);
    close_side(&server);
}

/* Reads that never end, of one that does not say that they were refused, are not all that
 * there may be: others' go on. */
static void reads_of_others(void **state)
{
    enum { BAD = 8 };
    struct side server, client, other;
    struct field hole, good;
    struct rme_xfer bad[BAD], x;

    (void)state;
    open_pair(&server, &client, FOR_EVER ",elan_transfers=4", FOR_EVER);
    struct side to_client = server;
    open_side(&other, NULL, FOR_EVER);
    dial(&other, "elan4://0:2");
    until(&other, &server, RME_EV_LINK_UP, 1);
    until(&server, &other, RME_EV_LINK_UP, 2);
    lay_out(&hole, &client, 0, false);
    lay_out(&good, &other, -1, false);
    for (int i = 0; i < BAD; i++) {
        bad[i] = list(&hole, &to_client, true, 0);
        bad[i].notify = RME_NOTIFY_NONE;
        ops->xfer(to_client.link, &bad[i]);
        poll_side(&server);
    }
    x = list(&good, &server, true, 100);
    ops->xfer(server.link, &x);
    until(&server, &other, RME_EV_XFER_DONE, 1);
    until(&other, &server, RME_EV_RECV, 1);
    until(&client, &server, RME_EV_LINK_DOWN, 1); /* it says so now */
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, -EFAULT);
    ops->link_disconnect(other.link, -ESHUTDOWN);
    until(&other, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &other, RME_EV_LINK_DOWN, 2);
    munmap(hole.hole, 4096);
    munmap(good.hole, 4096);
    close_side(&other);
    close_side(&client);
    close_side(&server);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_from_nowhere),    cmocka_unit_test(write_to_nowhere),
        cmocka_unit_test(read_to_nowhere),       cmocka_unit_test(read_from_nowhere),
        cmocka_unit_test(silent_one_is_refused), cmocka_unit_test(refusal_wakes),
        cmocka_unit_test(window_of_packets),     cmocka_unit_test(queue_of_reads),
        cmocka_unit_test(read_cut_short),        cmocka_unit_test(reads_of_others),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
