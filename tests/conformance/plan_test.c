/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compares rme_explain's plan of a message with the engine's actual choice, by its counters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cases.h"
#include "wire/wire.h"
#include "../fabric/loop.h"

#define MOST_BYTES  ((size_t)16 << 20)
#define MOST_PIECES 4096
#define GAP         64 /* bytes between the pieces of a list */
#define PROTO_AT    0
#define SENDER_AT   19
#define RECEIVER_AT 27

/* Columns of the chosen row. */
struct choice {
    bool eager, ring, reads, send_copies, recv_copies;
    unsigned long eager_max; /* largest message sent eagerly */
};

static struct choice explained(const struct node *n, uint64_t bytes, uint64_t pieces)
{
    struct choice choice;
    char *text = NULL, *row;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    rme_explain(n->rme, bytes, pieces, out);
    fclose(out);
    row = strstr(text, "eager up to ");
    assert_non_null(row);
    choice.eager_max = strtoul(row + strlen("eager up to "), NULL, 10);
    row = strstr(text, "\nprotocol ");
    assert_non_null(row);
    row = strchr(row + 1, '\n') + 1;
    assert_true(strlen(row) > RECEIVER_AT);
    choice.ring = strncmp(row + PROTO_AT, "ring write", 10) == 0;
    choice.eager = choice.ring || strncmp(row + PROTO_AT, "eager", 5) == 0;
    choice.reads = strncmp(row + PROTO_AT, "rendezvous read", 15) == 0;
    assert_true(choice.eager || choice.reads ||
                strncmp(row + PROTO_AT, "rendezvous write", 16) == 0);
    choice.send_copies = strncmp(row + SENDER_AT, "copy", 4) == 0;
    choice.recv_copies = strncmp(row + RECEIVER_AT, "copy", 4) == 0;
    free(text);
    return choice;
}

struct counts {
    uint64_t eager, ring, written, read, copied, refused, full, invites;
};

static struct counts counts_of(const struct node *n, const char *side)
{
    char name[32];
    struct counts counts = {.copied = node_counter(n, "bytes_copied"),
                            .refused = node_counter(n, "reg_refused"),
                            .full = node_counter(n, "eager_ring_full"),
                            .invites = node_counter(n, "invites_sent")};

    snprintf(name, sizeof(name), "%s_eager", side);
    counts.eager = node_counter(n, name);
    snprintf(name, sizeof(name), "%s_eager_rdma", side);
    counts.ring = node_counter(n, name);
    snprintf(name, sizeof(name), "%s_rndv_write", side);
    counts.written = node_counter(n, name);
    snprintf(name, sizeof(name), "%s_rndv_read", side);
    counts.read = node_counter(n, name);
    return counts;
}

static const char *way(bool ring, bool eager, bool read)
{
    return ring ? "by a ring write" : eager ? "eagerly" : read ? "by a read" : "by a write";
}

static void check(const char *who, size_t bytes, int pieces, const struct counts *before,
                  const struct counts *after, bool full, const struct choice *choice,
                  bool copies)
{
    bool eager = after->eager - before->eager == 1,
         written = after->written - before->written == 1;
    bool read = after->read - before->read == 1;
    bool ring = after->ring - before->ring == 1;

    if (after->refused != before->refused)
        /* unregistrable memory is copied, whichever plan would be better */
        return;
    assert_int_equal(eager + written + read, 1);
    if (choice->ring && full)
        /* no message waits for a place in the ring, and the plan assumes a message alone */
        return;
    if (eager != choice->eager || ring != choice->ring || read != choice->reads)
        fail_msg("%s: %zu bytes in %d pieces went %s, not %s", who, bytes, pieces,
                 way(ring, eager, read), way(choice->ring, choice->eager, choice->reads));
    if (after->copied - before->copied != (copies ? bytes : 0))
        fail_msg("%s: %zu bytes in %d pieces: %llu bytes were copied", who, bytes, pieces,
                 (unsigned long long)(after->copied - before->copied));
}

/* Makes a list of that many pieces; returns its extent, gaps included. */
static void make_list(struct rme_list *list, void **base, int64_t *length, char *memory,
                      size_t bytes, int pieces)
{
    size_t piece = bytes / (size_t)pieces;

    for (int i = 0; i < pieces; i++) {
        base[i] = memory;
        length[i] = (int64_t)(i < pieces - 1 ? piece : bytes - piece * (size_t)(pieces - 1));
        memory += length[i] + GAP;
    }
    *list = (struct rme_list){.base = base, .length = length, .count = pieces};
}

static void same_contents(const struct rme_list *list, const char *flat)
{
    for (int i = 0; i < list->count; i++) {
        assert_memory_equal(list->base[i], flat, list->length[i]);
        flat += list->length[i];
    }
}

/* Sends one message; returns whether the plan chose the ring. */
static bool one_message(struct pair *p, char *from, char *to, size_t bytes, int pieces)
{
    static void *base[MOST_PIECES];
    static int64_t length[MOST_PIECES];
    struct choice sender = explained(p->client, bytes, (uint64_t)pieces),
                  receiver = explained(p->server, bytes, (uint64_t)pieces);
    struct counts sent = counts_of(p->client, "sends"),
                  received = counts_of(p->server, "recvs"), sent_after, received_after;
    int64_t room = (int64_t)bytes, actual;
    void *whole = to;
    struct rme_list in = {.base = &whole, .length = &room, .count = 1}, out;
    struct op send = {.node = p->client}, recv = {.node = p->server};
    bool full, invited;

    make_list(&out, base, length, from, bytes, pieces);
    recv.rc = rme_post_recv(p->server->rme, p->to_client, &in, 9, 0, &recv, &actual, &recv.id);
    assert_int_equal(recv.rc, 0);
    pump_times(3);
    send.rc = rme_post_send(p->client->rme, p->to_server, &out, 9, 0, &send, &send.id);
    assert_in_range(send.rc, 0, 1);
    if (send.rc == 0)
        pump_until_reported(&send);
    pump_until_reported(&recv);
    op_check(&recv, (int64_t)bytes);
    same_contents(&out, to);
    sent_after = counts_of(p->client, "sends");
    received_after = counts_of(p->server, "recvs");
    full = sent_after.full != sent.full;
    /* an invitation was sent without knowledge of the sender */
    invited = received_after.invites != received.invites;
    check("sender", bytes, pieces, &sent, &sent_after, full || invited, &sender,
          sender.send_copies);
    if (sender.eager == receiver.eager)
        check("receiver", bytes, pieces, &received, &received_after, full || invited, &sender,
              receiver.recv_copies);
    return sender.ring;
}

/* With rx_size at its default or below, a message of that many bytes is sent eagerly at any
 * cost: the engine's header does not count. */
static void fits_a_buffer(const struct node *n)
{
    int64_t rx_size, eager_max;

    assert_int_equal(rme_option_get(n->rme, "rx_size", &rx_size), 0);
    assert_int_equal(rme_option_get(n->rme, "eager_max", &eager_max), 0);
    if (rx_size <= 4608)
        assert_int_equal(explained(n, 1, 1).eager_max,
                         rx_size < eager_max ? rx_size : eager_max);
}

static void explained_and_done(size_t most, bool is_ring)
{
    static const size_t sizes[] = {1,      64,      1000,    4000,      4096,   16000,
                                   16384,  40000,   65535,   65536,     100000, 262144,
                                   262145, 1 << 20, 3 << 20, MOST_BYTES};
    static const int pieces[] = {1, 2, 31, 256, MOST_PIECES};
    char *from = malloc(MOST_BYTES + GAP * MOST_PIECES), *to = malloc(MOST_BYTES);
    unsigned chosen = 0;
    struct pair p;

    assert_non_null(from);
    assert_non_null(to);
    for (size_t i = 0; i < MOST_BYTES + GAP * MOST_PIECES; i++)
        from[i] = (char)(i * 2654435761u >> 24);
    pair_open(&p);
    for (int i = 0; i < 4; i++) /* let the server grant the client a ring */
        pair_exchange(&p, 65000, i);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++)
            if ((size_t)pieces[k] <= sizes[i] && sizes[i] <= most)
                chosen += one_message(&p, from, to, sizes[i], pieces[k]);
    fits_a_buffer(p.client);
    for (size_t bytes = explained(p.client, 1, 1).eager_max, last = bytes + 1; bytes <= last;
         bytes++)
        if (bytes != 0)
            one_message(&p, from, to, bytes, 1);
    if ((is_ring || chosen > 8) && node_counter(p.server, "eager_ring_grants") != 0)
        assert_true(node_counter(p.client, "sends_eager_rdma") > 2);
    free(from);
    free(to);
}

CASE(engine_does_what_is_explained)
{
    explained_and_done(MOST_BYTES, false);
}

/* The same with rings. */
CASE(engine_uses_ring_as_explained)
{
    bed_options("eager_ring_bytes=512K,early_cts=0"); /* an invitation would take precedence */
    explained_and_done(262144, true);
}
