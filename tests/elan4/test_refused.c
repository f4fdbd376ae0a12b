/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Transfers at an unmapped address: their link ends, in order, and no other; and limits of
 * packets and requested reads in flight.
 *
 * Timeouts are disabled here, so a link that does not end in order hangs the test.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/sides.h"

#define FOR_EVER "elan_quarantine_ms=600000"
#define PIECES   8
#define EACH     600

struct field {
    uint8_t here[PIECES * EACH], there[PIECES * EACH];
    void *hole; /* an unmapped page */
    struct rme_mr mr;
    struct rme_sge seg[PIECES];
    struct rme_rdma_seg piece[PIECES];
};

/* Makes a list between `here` of the client and `there` of the server; piece `bad` is
 * unmapped. */
static void lay_out(struct field *f, struct side *server, int bad, bool here)
{
    f->hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f->hole, MAP_FAILED);
    assert_int_equal(
        ops->reg(server->f, f->there, sizeof(f->there), RME_ACCESS_REMOTE_WRITE, &f->mr), 0);
    for (int i = 0; i < PIECES; i++) {
        bool hole = i == bad;
        f->seg[i] =
            (struct rme_sge){hole && here ? f->hole : f->here + (size_t)i * EACH, EACH, 0};
        f->piece[i] = (struct rme_rdma_seg){
            (uintptr_t)(hole && !here ? f->hole : f->there + (size_t)i * EACH), f->mr.rkey,
            &f->seg[i], 1};
    }
}

static struct rme_rdma_op list(struct field *f, struct side *client, bool read, size_t note)
{
    struct rme_rdma_op x = {.read = read,
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

/* One bad piece of a list, at either side; the message behind it may have several packets. */
static void one_is_refused(bool read, bool here, size_t note)
{
    struct side server, client, other;
    struct field f;

    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    open_client(&other, &server, FOR_EVER);
    lay_out(&f, &server, 5, here);
    struct rme_rdma_op x = list(&f, &client, read, note);
    ops->rdma_op(client.link, &x);
    say(&client, "behind it");
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -EFAULT);
    assert_int_equal(server.error, -ECONNRESET);
    assert_int_equal(client.count[RME_EV_RDMA_DONE], 0);
    assert_int_equal(server.count[RME_EV_IMM] + server.count[RME_EV_RECV], 0);
    munmap(f.hole, 4096);
    /* other links stay, and so does the refused process */
    say(&other, "still here");
    until(&server, &other, RME_EV_RECV, 1);
    assert_string_equal(server.text, "still here");
    assert_int_equal(other.count[RME_EV_LINK_DOWN], 0);
    dial(&client, "elan4://0:2");
    until(&client, &server, RME_EV_LINK_UP, 2);
    until(&server, &client, RME_EV_LINK_UP, 3);
    lay_out(&f, &server, -1, true);
    x = list(&f, &client, read, note);
    ops->rdma_op(client.link, &x);
    ops->flush(client.f);
    until(&client, &server, RME_EV_RDMA_DONE, 1);
    until(&server, &client, note ? RME_EV_RECV : RME_EV_IMM, note ? 2 : 1);
    munmap(f.hole, 4096);
    leave(&client, &server);
    leave(&other, &server);
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

/* Moves a list of `n` pieces, each to the odd places of the other side, in reverse order; its
 * notification is event `count` of the server. */
static void move_list(struct side *server, struct side *client, bool read, uint32_t n,
                      int count)
{
    enum { BYTES_EACH = 24 };
    static uint8_t ours[4096 * BYTES_EACH], theirs[4096 * BYTES_EACH];
    static struct rme_sge seg[4096];
    static struct rme_rdma_seg piece[4096];
    struct rme_mr mr;

    assert_int_equal(ops->reg(server->f, theirs, sizeof(theirs), RME_ACCESS_REMOTE_WRITE, &mr),
                     0);
    assert_int_not_equal(mr.lkey, 0); /* the other key is 0 where addresses are the process's */
    for (uint32_t i = 0; i < sizeof(ours); i++) {
        ours[i] = (uint8_t)(i * 7 + n);
        theirs[i] = (uint8_t)(i * 11 + n);
    }
    for (uint32_t i = 0; i < n; i++) {
        seg[i] = (struct rme_sge){ours + (size_t)(n - 1 - i) * BYTES_EACH, BYTES_EACH / 2, 0};
        piece[i] = (struct rme_rdma_seg){(uintptr_t)theirs + (size_t)i * BYTES_EACH + 5,
                                         mr.rkey, &seg[i], 1};
    }
    struct rme_rdma_op x = {.read = read,
                            .notify = read ? RME_NOTIFY_MSG : RME_NOTIFY_IMM,
                            .piece = piece,
                            .npiece = n,
                            .bytes = (uint64_t)n * BYTES_EACH / 2};
    if (read) {
        x.tx = ops->tx_get(client->link);
        strcpy(x.tx, "read");
        x.tx_length = 5;
    }
    int done = client->count[RME_EV_RDMA_DONE];
    ops->rdma_op(client->link, &x);
    ops->flush(client->f);
    until(server, client, read ? RME_EV_RECV : RME_EV_IMM, count);
    for (uint32_t i = 0; i < n; i++)
        assert_memory_equal(theirs + (size_t)i * BYTES_EACH + 5, seg[i].base, BYTES_EACH / 2);
    until(client, server, RME_EV_RDMA_DONE, done + 1);
}

/* A list of any length is one transfer with one notification (test_lists counts packets). */
static void list_of_any_length_arrives(void **state)
{
    static const uint32_t counts[] = {1, 2, 95, 96, 97, 500, 4096};
    enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };
    struct side server, client;
    uint64_t pieces = 0;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    for (int i = 0; i < COUNTS; i++) {
        move_list(&server, &client, false, counts[i], i + 1);
        move_list(&server, &client, true, counts[i], i + 1);
        pieces += (uint64_t)2 * counts[i];
    }
    const uint64_t *n = client.stats.value;
    assert_int_equal(n[RME_C_RDMA_WRITES] + n[RME_C_RDMA_READS], pieces);
    assert_int_equal(client.count[RME_EV_RDMA_DONE], 2 * COUNTS);
    assert_int_equal(server.count[RME_EV_IMM] + server.count[RME_EV_RECV], 2 * COUNTS);
    part_and_close(&client, &server);
}

/* A notification covers the unsignalled transfers before it: it is not sent if one is
 * refused. */
static void silent_one_is_refused(void **state)
{
    struct side server, client;
    struct field bad, good;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    lay_out(&bad, &server, 0, false);
    lay_out(&good, &server, -1, true);
    struct rme_rdma_op silent = list(&bad, &client, false, 0),
                       told = list(&good, &client, false, 4000);
    silent.notify = RME_NOTIFY_NONE;
    ops->rdma_op(client.link, &silent);
    ops->rdma_op(client.link, &told);
    ops->flush(client.f);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -EFAULT);
    assert_int_equal(server.count[RME_EV_RECV], 0);
    munmap(bad.hole, 4096);
    munmap(good.hole, 4096);
    close_both(&client, &server);
}

/* A refusal puts nothing into a queue but wakes a sleeper. */
static void refusal_wakes(void **state)
{
    struct side server, client;
    struct field f;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    lay_out(&f, &server, PIECES - 1, true);
    struct rme_rdma_op x = list(&f, &client, false, 0);
    ops->rdma_op(client.link, &x);
    ops->flush(client.f);
    alarm(20);
    while (list_empty(&client.f->ending)) {
        assert_int_equal(ops->arm(client.f), 0);
        ops->wait(client.f, -1);
        poll_side(&client);
    }
    alarm(0);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    munmap(f.hole, 4096);
    close_both(&client, &server);
}

static void until_held(struct side *server, struct side *client, unsigned count)
{
    while (server->f->held.taken < count) {
        poll_side(server);
        poll_side(client);
    }
}

/* A packet that overtook another is delivered behind that one, and its memory is given back. */
static void overtaking_packets_give_memory_back(void **state)
{
    struct side server, client;

    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    for (int i = 0; i < 2 * ELAN_WINDOW; i++) {
        client.link->next_seq++;
        say(&client, "second");
        until_held(&server, &client, 1);
        client.link->next_seq -= 2;
        say(&client, "first");
        client.link->next_seq++;
        until(&server, &client, RME_EV_RECV, 2 * (i + 1));
        assert_string_equal(server.text, "second");
        assert_int_equal(server.f->held.taken, 0);
    }
    part_and_close(&client, &server);
}

/* Only this process's interface reports that a transfer is complete: a peer that claims so is
 * ignored, although its packet names the transfer. */
static void peer_reports_a_completion(void **state)
{
    struct side server, client;
    struct field f;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    lay_out(&f, &server, -1, true);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 1), 0);
    struct rme_rdma_op x = list(&f, &client, false, 0);
    ops->rdma_op(client.link, &x);
    ops->flush(client.f);
    const struct elan_move *m = list_first(&client.link->moves, struct elan_move, next);
    assert_true(m->let);
    /* a packet without order has the next number of its link */
    assert_int_equal(server.link->next_seq, m->use);
    assert_int_equal(elan_tx_control(server.link, ELAN_DONE, m->index, NULL, 0), 0);
    while (elan_tx_flying(server.link) != NULL)
        poll_side(&client);
    poll_side(&client); /* takes the packet, if not taken yet */
    assert_int_equal(client.count[RME_EV_RDMA_DONE], 0);
    assert_ptr_equal(list_first(&client.link->moves, struct elan_move, next), m);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_RDMA_DONE, 1);
    until(&server, &client, RME_EV_IMM, 1);
    munmap(f.hole, 4096);
    part_and_close(&client, &server);
}

static void forge_packet(struct side *to, struct elan_packet p)
{
    uint8_t out[ELAN_HEADER];

    p.to = to->f->nic->generation;
    elan_packet_encode(&p, out);
    forge(to, out, sizeof(out));
}

/* A completion that names an earlier or a later use of a transfer does not end this one. */
static void completion_of_another_use_ends_nothing(void **state)
{
    struct side server, client;
    struct field f;

    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    lay_out(&f, &server, -1, true);
    struct rme_rdma_op first = list(&f, &client, false, 0), x = first;
    ops->rdma_op(client.link, &first);
    ops->flush(client.f);
    until(&client, &server, RME_EV_RDMA_DONE, 1);
    until(&server, &client, RME_EV_IMM, 1);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 1), 0);
    ops->rdma_op(client.link, &x);
    ops->flush(client.f);
    const struct elan_move *m = list_first(&client.link->moves, struct elan_move, next);
    assert_true(m->let);
    assert_int_equal(m->use, 2); /* the same transfer again */
    for (uint32_t use = 0; use < 4; use++)
        if (use != m->use)
            forge_packet(&client, (struct elan_packet){.kind = ELAN_DONE,
                                                       .seq = use,
                                                       .from = client.f->nic->vp,
                                                       .arg = m->index});
    assert_int_equal(client.count[RME_EV_RDMA_DONE], 1);
    assert_ptr_equal(list_first(&client.link->moves, struct elan_move, next), m);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_RDMA_DONE, 2);
    until(&server, &client, RME_EV_IMM, 2);
    munmap(f.hole, 4096);
    part_and_close(&client, &server);
}

/* Packets of each kind to the link that had the table entry before do not reach this one. */
static void packets_to_an_earlier_link_are_ignored(void **state)
{
    struct side server, client;

    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    for (uint32_t kind = ELAN_ACCEPT; kind < ELAN_KIND_COUNT; kind++)
        forge_packet(&client, (struct elan_packet){.kind = (uint8_t)kind,
                                                   .link = client.link->number - ELAN_LINKS,
                                                   .seq = client.link->expected,
                                                   .from = server.f->nic->vp});
    say(&server, "still here");
    until(&client, &server, RME_EV_RECV, 1);
    assert_string_equal(client.text, "still here");
    say(&client, "so am I");
    until(&server, &client, RME_EV_RECV, 1);
    assert_int_equal(client.count[RME_EV_IMM] + client.count[RME_EV_LINK_DOWN], 0);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 0);
    part_and_close(&client, &server);
}

/* A process that leaves out a packet on each of its links fills half of the memory for packets
 * that overtook others, and then loses links. */
static void memory_of_held_packets(void **state)
{
    enum { EACH_LINK = ELAN_WINDOW - 1, LINKS = ELAN_HELD / 2 / EACH_LINK + 1 };
    struct side server, client;
    (void)state;
    open_side(&server, "elan4://0:2", FOR_EVER);
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    open_side(&client, NULL, FOR_EVER);
    for (int i = 1; i <= LINKS; i++) {
        assert_int_equal(server.f->held.taken, (i - 1) * EACH_LINK);
        dial(&client, "elan4://0:2");
        until(&client, &server, RME_EV_LINK_UP, i);
        until(&server, &client, RME_EV_LINK_UP, i);
        client.link->next_seq++;
        for (int k = 0; k < EACH_LINK; k++)
            say(&client, "held");
        while (elan_tx_flying(client.link) != NULL)
            poll_side(&server);
        poll_side(&server); /* takes the last packets */
        poll_side(&client);
    }
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, -ENOMEM);
    assert_int_equal(server.f->held.taken, (LINKS - 1) * EACH_LINK);
    close_side(&client);
    until(&server, NULL, RME_EV_LINK_DOWN, LINKS);
    assert_int_equal(server.f->held.taken, 0);
    close_side(&server);
}

/* The peer's queue is full: no number is sent 64 ahead of an undelivered one. */
static void window_of_packets(void **state)
{
    enum { SLOTS = 16, MESSAGES = 120 };
    struct side server, client;
    char text[20];
    (void)state;
    open_pair(&server, &client, "elan_tx_buffers=16", "");
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
    part_and_close(&client, &server);
}

enum { READS = 500 };

/* Requests a read of many pieces from a peer that accepts no requests; a message of `n` bytes
 * follows. */
static void ask_in_vain(struct side *server, struct side *client, struct rme_rdma_op *x,
                        size_t n)
{
    static uint8_t here[READS], there[READS];
    static struct rme_sge seg[READS];
    static struct rme_rdma_seg piece[READS];
    struct rme_mr mr;

    assert_int_equal(ops->reg(server->f, there, READS, RME_ACCESS_REMOTE_READ, &mr), 0);
    for (int i = 0; i < READS; i++) {
        there[i] = (uint8_t)(i * 3 + 1);
        here[i] = 0;
        seg[i] = (struct rme_sge){here + i, 1, 0};
        piece[i] = (struct rme_rdma_seg){(uintptr_t)there + READS - 1 - (size_t)i, mr.rkey,
                                         &seg[i], 1};
    }
    *x = (struct rme_rdma_op){.read = true, .piece = piece, .npiece = READS, .bytes = READS};
    if (n) {
        x->notify = RME_NOTIFY_MSG;
        x->tx = ops->tx_get(client->link);
        x->tx_length = n;
        memset(x->tx, 'n', n);
    }
    assert_int_equal(elan4_block_inputter(server->f->nic->ctx, 1), 0);
    ops->rdma_op(client->link, x);
    ops->flush(client->f);
    for (int i = 0; i < 200; i++)
        poll_side(client);
}

/* Requests in flight are bounded by the command queue. */
static void queue_of_reads(void **state)
{
    struct side server, client;
    struct rme_rdma_op x;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    uint64_t *reads = &client.stats.value[RME_C_RDMA_READS];
    ask_in_vain(&server, &client, &x, 0);
    assert_int_equal(*reads, ELAN_READS);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_RDMA_DONE, 1);
    assert_int_equal(*reads, READS);
    for (int i = 0; i < READS; i++)
        assert_int_equal(*(uint8_t *)x.piece[i].seg->base, *(uint8_t *)x.piece[i].raddr);
    assert_int_equal(atomic_load(&client.f->nic->traps), 0);
    part_and_close(&client, &server);
}

/* The link ends while most of a read is not requested: the message behind it is not sent, and
 * the link ends in order. */
static void read_cut_short(void **state)
{
    struct side server, client;
    struct rme_rdma_op x;
    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    ask_in_vain(&server, &client, &x, 4000);
    ops->link_disconnect(client.link, -ESHUTDOWN);
    for (int i = 0; i < 100; i++)
        poll_side(&client);
    assert_int_equal(client.count[RME_EV_LINK_DOWN], 0); /* some are in flight */
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -ESHUTDOWN);
    assert_int_equal(server.count[RME_EV_RECV], 0);
    assert_int_equal(atomic_load(&client.f->nic->traps), 0);
    assert_int_equal(client.stats.value[RME_C_RDMA_READS], ELAN_READS);
    close_both(&client, &server);
}

/* Reads that never complete, at a peer that does not report their refusal, use only a part of
 * the limit: others' go on. */
static void reads_of_others(void **state)
{
    enum { BAD = 8 };
    struct side server, client, other;
    struct field hole, good;
    struct rme_rdma_op bad[BAD], x;

    (void)state;
    open_pair(&server, &client, FOR_EVER ",elan_tx_buffers=16", FOR_EVER);
    struct side to_client = server;
    open_client(&other, &server, FOR_EVER);
    lay_out(&hole, &client, 0, false);
    lay_out(&good, &other, -1, false);
    for (int i = 0; i < BAD; i++) {
        bad[i] = list(&hole, &to_client, true, 0);
        bad[i].notify = RME_NOTIFY_NONE;
        ops->rdma_op(to_client.link, &bad[i]);
        poll_side(&server);
    }
    x = list(&good, &server, true, 100);
    ops->rdma_op(server.link, &x);
    until(&server, &other, RME_EV_RDMA_DONE, 1);
    until(&other, &server, RME_EV_RECV, 1);
    until(&client, &server, RME_EV_LINK_DOWN, 1); /* reports them now */
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, -EFAULT);
    leave(&other, &server);
    munmap(hole.hole, 4096);
    munmap(good.hole, 4096);
    close_both(&client, &server);
}

/* ---- False refusals ---- */

/* Makes a transfer of two pieces to the client's memory at `there`, with a notification. */
static struct rme_rdma_op two_pieces(struct field *f, uint8_t *there, struct side *client)
{
    assert_int_equal(
        ops->reg(client->f, there, (size_t)2 * EACH, RME_ACCESS_REMOTE_WRITE, &f->mr), 0);
    memset(f->here, 'A', sizeof(f->here));
    for (int i = 0; i < 2; i++) {
        f->seg[i] = (struct rme_sge){f->here + (size_t)i * EACH, EACH, 0};
        f->piece[i] = (struct rme_rdma_seg){(uintptr_t)there + (size_t)i * EACH, f->mr.rkey,
                                            &f->seg[i], 1};
    }
    return (struct rme_rdma_op){.notify = RME_NOTIFY_IMM,
                                .imm = 7,
                                .piece = f->piece,
                                .npiece = 2,
                                .bytes = (uint64_t)2 * EACH};
}

/* Reports all of a transfer in flight to this process as refused. */
static void lie(struct side *liar, enum compat_trap kind, const struct field *f)
{
    E4_Addr at[2] = {f->piece[0].raddr + f->piece[0].rkey,
                     f->piece[1].raddr + f->piece[1].rkey};

    assert_int_equal(
        elan_tx_alone(liar->f, &liar->link->peer, ELAN_REFUSED, kind, at, sizeof(at)), 0);
}

/* Opens a server and two clients, the first of which accepts nothing.  Returns the
 * server's link to that one; server->link is the other one. */
static struct rme_link *open_three(struct side *server, const char *options, struct side *deaf,
                                   const char *its_options, struct side *other)
{
    struct rme_link *first;

    open_pair(server, deaf, options, its_options);
    first = server->link;
    open_client(other, server, FOR_EVER);
    assert_int_equal(elan4_block_inputter(deaf->f->nic->ctx, 1), 0);
    return first;
}

/* A process that reports DMAs in flight as refused, and then accepts them, harms no other:
 * their events are not reused while it lives. */
static void false_refusal_harms_no_other_link(void **state)
{
    static struct field to_liar, to_other;
    struct side server, liar, other;
    (void)state;
    struct rme_link *first = open_three(&server, "elan_dead_ms=3600000,elan_quarantine_ms=50",
                                        &liar, "elan_quarantine_ms=50", &other);
    struct rme_rdma_op x = two_pieces(&to_liar, to_liar.there, &liar);
    ops->rdma_op(first, &x);
    ops->flush(server.f);
    struct elan_move *m = list_first(&first->moves, struct elan_move, next);
    assert_non_null(m);
    lie(&liar, COMPAT_TRAP_SINK, &to_liar);
    until(&server, &other, RME_EV_LINK_DOWN, 1); /* the liar accepts no BYE */
    assert_int_equal(server.error, -EFAULT);
    assert_int_equal(server.f->kept_moves, 1);

    /* lasts while another process's transfer is in flight */
    assert_int_equal(elan4_block_inputter(other.f->nic->ctx, 1), 0);
    struct rme_rdma_op y = two_pieces(&to_other, to_other.there, &other);
    ops->rdma_op(server.link, &y);
    ops->flush(server.f);
    struct elan_move *n = list_first(&server.link->moves, struct elan_move, next);
    assert_non_null(n);
    assert_ptr_not_equal(n, m);
    assert_int_equal(EVENT_COUNT(n->data), -64);
    assert_int_equal(elan4_block_inputter(liar.f->nic->ctx, 0), 0);
    until(&liar, &server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(liar.count[RME_EV_IMM], 0);
    assert_memory_equal(to_liar.there, to_liar.here, (size_t)2 * EACH);
    for (int i = 0; i < 300; i++)
        poll_side(&server);
    assert_int_equal(server.f->kept_moves, 1);
    assert_int_equal(EVENT_COUNT(n->data), -64);
    assert_int_equal(elan4_block_inputter(other.f->nic->ctx, 0), 0);
    until(&other, &server, RME_EV_IMM, 1);
    assert_memory_equal(to_other.there, to_other.here, (size_t)2 * EACH);
    close_side(&other);
    close_side(&liar);
    close_side(&server);
}

/* A queue with requests that a process does not accept, and reports as refused, is not used for
 * another link when there are no more queues. */
static void false_refusal_blocks_no_other_reads(void **state)
{
    enum { MOST = 1024 };
    static struct field to_liar, to_other;
    static E4_CmdQ *taken[MOST];
    struct side server, liar, other;
    unsigned n = 0;
    (void)state;
    struct rme_link *first = open_three(
        &server, "elan_dead_ms=3600000,elan_quarantine_ms=20000", &liar, FOR_EVER, &other);
    struct rme_rdma_op x = two_pieces(&to_liar, to_liar.there, &liar);
    x.read = true;
    x.notify = RME_NOTIFY_NONE;
    ops->rdma_op(first, &x);
    ops->flush(server.f);
    assert_non_null(first->reads);
    while (n < MOST && (taken[n] = compat_cmdq(server.f->nic->ctx, server.f->nic->alloc,
                                               CQ_Size8K, COMPAT_ASK_PERMISSIONS)) != NULL)
        n++;
    assert_in_range(n, 1, MOST - 1);
    lie(&liar, COMPAT_TRAP_SOURCE, &to_liar);
    while (server.f->kept_moves == 0)
        poll_side(&server);
    assert_true(list_empty(&first->moves));
    assert_int_equal(first->state, ELAN_ENDING_STATE); /* the liar accepts no BYE */

    struct rme_rdma_op y = two_pieces(&to_other, to_other.there, &other);
    y.read = true;
    y.notify = RME_NOTIFY_NONE;
    ops->rdma_op(server.link, &y);
    ops->flush(server.f);
    pass(&server, 30000); /* the end of the liar's link frees a queue */
    until(&server, &other, RME_EV_RDMA_DONE, 1);
    assert_memory_equal(to_other.there, to_other.here, (size_t)2 * EACH);
    while (n > 0)
        compat_free_cmdq(server.f->nic->ctx, server.f->nic->alloc, taken[--n]);
    close_side(&other);
    close_side(&liar);
    close_side(&server);
}

/* ---- Notifications that wait ---- */

/*
 * A probe overtakes a notification that waits for earlier data, and may land after it.  No
 * packet may then be sent whose number is ELAN_WINDOW ahead of the notification's, which the
 * peer would take for invalid.
 */
static void probe_passes_waiting_notification(void **state)
{
    struct side server, client;
    struct rme_rdma_op silent = {.notify = RME_NOTIFY_NONE};
    struct rme_rdma_op told = {.notify = RME_NOTIFY_IMM, .imm = 5};
    char *tx;
    (void)state;
    open_pair(&server, &client, "", "");
    while (elan_tx_flying(server.link) != NULL || elan_tx_flying(client.link) != NULL) {
        poll_side(&server);
        poll_side(&client);
    }
    poll_side(&server);
    assert_int_equal(elan4_block_inputter(client.f->nic->ctx, 1), 0);
    uint32_t first = server.link->next_seq;
    ops->rdma_op(server.link, &silent);
    ops->rdma_op(server.link, &told);
    ops->flush(server.f);
    assert_false(list_empty(&server.link->queued)); /* `told` */
    ops->link_probe(server.link);
    assert_non_null(elan_tx_flying(server.link));
    until(&server, NULL, RME_EV_RDMA_DONE, 1);
    assert_true(list_empty(&server.link->queued));
    for (int i = 0; i < ELAN_WINDOW; i++) {
        assert_non_null(tx = ops->tx_get(server.link));
        strcpy(tx, "behind both");
        ops->tx_send(server.link, tx, strlen(tx) + 1);
        ops->flush(server.f);
    }
    assert_int_equal(server.link->next_seq - first, ELAN_WINDOW);
    assert_int_equal(elan4_block_inputter(client.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_RECV, ELAN_WINDOW);
    assert_int_equal(client.imm, 5);
    until(&server, &client, RME_EV_RDMA_DONE, 2);
    part_and_close(&client, &server);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_from_nowhere),
        cmocka_unit_test(write_to_nowhere),
        cmocka_unit_test(read_to_nowhere),
        cmocka_unit_test(read_from_nowhere),
        cmocka_unit_test(list_of_any_length_arrives),
        cmocka_unit_test(silent_one_is_refused),
        cmocka_unit_test(refusal_wakes),
        cmocka_unit_test(peer_reports_a_completion),
        cmocka_unit_test(completion_of_another_use_ends_nothing),
        cmocka_unit_test(packets_to_an_earlier_link_are_ignored),
        cmocka_unit_test(memory_of_held_packets),
        cmocka_unit_test(overtaking_packets_give_memory_back),
        cmocka_unit_test(window_of_packets),
        cmocka_unit_test(queue_of_reads),
        cmocka_unit_test(read_cut_short),
        cmocka_unit_test(reads_of_others),
        cmocka_unit_test(false_refusal_harms_no_other_link),
        cmocka_unit_test(false_refusal_blocks_no_other_reads),
        cmocka_unit_test(probe_passes_waiting_notification),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
