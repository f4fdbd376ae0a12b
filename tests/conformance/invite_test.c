/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Receiver-first rendezvous: a receive posted before its message opens its memory by an
 * invitation, and the sender writes without RTS.
 *
 * A small message in the other direction, on the same link and behind an invitation, proves
 * that the invitation has reached the sender.
 */
#include <errno.h>
#include <string.h>
#include "cases.h"

enum { SIZE = 262144, TAG = 5, MARK = 99 };

/* limit of bytes on the device: a larger message is not invited */
#define INVITED ",rdma_inflight_bytes=1M"

/* where control messages are counted: probes would count as well, and depend on time */
#define COUNTED ",keepalive_ms=0"

struct counts {
    uint64_t client, server, sent, taken;
};

static struct counts counts(const struct pair *p)
{
    return (struct counts){
        node_counter(p->client, "control_sent"), node_counter(p->server, "control_sent"),
        node_counter(p->server, "invites_sent"), node_counter(p->client, "invites_taken")};
}

/* Checks the counts since `before`: control messages of the client and of the server,
 * invitations sent and taken. */
static void check_counts(const struct pair *p, struct counts before, unsigned client,
                         unsigned server, unsigned sent, unsigned taken)
{
    struct counts now = counts(p);

    assert_int_equal(now.client - before.client, client);
    assert_int_equal(now.server - before.server, server);
    assert_int_equal(now.sent - before.sent, sent);
    assert_int_equal(now.taken - before.taken, taken);
}

/* Sends one byte from a node to the other: all its earlier messages have arrived as well. */
static void mark(struct node *from, struct rme_addr *to, struct node *at, struct rme_addr *of)
{
    struct op send, recv;
    struct blob out, in;

    blobs_flat(&out, &in, 1, 0);
    post_recv(&recv, at, of, &in, MARK);
    post_send(&send, from, to, &out, MARK);
    pump_until_both(&send, &recv);
    blob_free(&out);
    blob_free(&in);
}

/* Skips the test if each operation registers its memory: no memory is opened in advance then,
 * so no invitation is sent. */
static void needs_invitations(const struct pair *p)
{
    if (registers_each(p->server))
        skip();
}

/* Skips the test on connections that begin with a single credit: an invitation needs one that
 * is spare. */
static void needs_spare_credits(const struct pair *p)
{
    int64_t pool;

    assert_int_equal(rme_option_get(p->server->rme, "credits_pool", &pool), 0);
    if (pool == 0)
        skip();
}

static void client_has_heard(struct pair *p)
{
    mark(p->server, p->to_client, p->client, p->to_server);
}

static void server_has_heard(struct pair *p)
{
    mark(p->client, p->to_server, p->server, p->to_client);
}

/* Returns whether the node has credits to start an operation at once. A peer with few credits
 * reserves none. */
static bool may_start(struct node *n, struct rme_addr *peer)
{
    uint64_t needed = node_attribute(n, peer, "credits_granted") < 4 ? 1 : 3;

    return node_attribute(n, peer, "credits_free") >= needed;
}

/* Polls until both may start: credits of earlier messages are still being returned. */
static void both_may_start(const struct pair *p)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    do {
        assert_true(lane_now() < end);
        pump();
    } while (!may_start(p->client, p->to_server) || !may_start(p->server, p->to_client));
}

static void arrives(struct op *send, struct op *recv, const struct blob *in, uint64_t seed,
                    int64_t size)
{
    pump_until_both(send, recv);
    op_check(send, size);
    op_check(recv, size);
    blob_check(in, seed, size);
}

/* Sends messages whose receives come first, and checks the control messages of each. `heard`:
 * the client has an invitation before it sends; else both cross. */
static void invited(const char *options, bool heard, uint64_t messages)
{
    struct pair p;
    struct blob out, in;

    pair_open_with(&p, options);
    needs_invitations(&p);
    blob_zone(&out, p.client, SIZE);
    blob_zone(&in, p.server, SIZE);
    for (uint64_t i = 0; i < messages; i++) {
        struct counts before = counts(&p);
        struct op send, recv;

        blob_fill(&out, i);
        blob_canary(&in);
        if (!heard) /* else the client would wait for a credit, and be invited */
            both_may_start(&p);
        post_recv(&recv, p.server, p.to_client, &in, TAG);
        if (heard)
            client_has_heard(&p);
        post_send(&send, p.client, p.to_server, &out, TAG);
        arrives(&send, &recv, &in, i, SIZE);
        check_counts(&p, before, !heard, 1 + !heard, 1, heard);
    }
    blob_free(&out);
    blob_free(&in);
}

/* The receiver is first: an invitation is the only control message. */
CASE(receiver_first_is_not_asked)
{
    invited("rndv=auto" INVITED COUNTED, true, 20);
}

/* The invitation waits for the next message, whose doorbell it shares, or for the next poll. */
CASE(invitation_shares_a_doorbell)
{
    struct pair p;
    struct blob in, small, small_in;
    uint64_t before;

    pair_open_with(&p, "rndv=auto,credits=8" INVITED);
    needs_invitations(&p);
    needs_spare_credits(&p);
    for (int i = 0; i < 16; i++) /* an unused client advertises too few credits for this test */
        pair_exchange(&p, 100, TAG);
    blob_zone(&in, p.server, SIZE);
    blobs_flat(&small, &small_in, 100, 0);
    for (int looks = 0; looks < 2; looks++) {
        struct op recv, send, ask;

        post_recv(&ask, p.client, p.to_server, &small_in, TAG + 1);
        client_has_heard(&p);
        before = node_counter(p.server, "doorbells");
        post_recv(&recv, p.server, p.to_client, &in, TAG);
        assert_int_equal(node_counter(p.server, "doorbells"), before);
        p.client->asleep = true;
        if (looks)
            pump();
        assert_int_equal(node_counter(p.server, "doorbells"), before + (uint64_t)looks);
        p.client->asleep = false;
        post_send(&send, p.server, p.to_client, &small, TAG + 1);
        assert_int_equal(node_counter(p.server, "doorbells"), before + 1 + (uint64_t)looks);
        pump_until_both(&send, &ask);
        op_check(&ask, 100);
        op_cancel(&recv);
        pump_until_reported(&recv);
    }
    assert_int_equal(node_counter(p.server, "invites_sent"), 2);
}

/* The sender is first: RTS and CTS. */
CASE(sender_first_asks)
{
    struct pair p;
    struct blob out, in;
    struct op send, recv;
    struct counts before;

    pair_open_with(&p, "rndv=write" INVITED COUNTED);
    blob_zone(&out, p.client, SIZE);
    blob_zone(&in, p.server, SIZE);
    blob_fill(&out, 1);
    before = counts(&p);
    post_send(&send, p.client, p.to_server, &out, TAG);
    server_has_heard(&p);
    post_recv(&recv, p.server, p.to_client, &in, TAG);
    arrives(&send, &recv, &in, 1, SIZE);
    check_counts(&p, before, 1, 1, 0, 0);
}

/* Invitation and RTS cross: the invitation is void, and CTS answers RTS.  More in a row would
 * not be sent. */
CASE(invitation_crosses_rts)
{
    /* with fewer credits, one more message returns them */
    invited("rndv=write,credits=8" INVITED COUNTED, false, 4);
}

/* The invitation crosses a small message of another tag: the invitation is void, too, because
 * the sender does not know which messages the receiver has seen. */
CASE(invitation_crosses_another_tag)
{
    struct pair p;
    struct blob out, in, small, small_in;
    struct op send[2], recv[2];
    struct counts before;

    pair_open_with(&p, "rndv=write,credits=8" INVITED COUNTED);
    needs_invitations(&p);
    blob_zone(&out, p.client, SIZE);
    blob_zone(&in, p.server, SIZE);
    blobs_flat(&small, &small_in, 100, 0);
    blob_fill(&out, 1);
    blob_fill(&small, 2);
    both_may_start(&p);
    before = counts(&p);
    post_recv(&recv[0], p.server, p.to_client, &in, TAG);
    post_recv(&recv[1], p.server, p.to_client, &small_in, TAG + 1);
    post_send(&send[1], p.client, p.to_server, &small, TAG + 1);
    client_has_heard(&p);
    post_send(&send[0], p.client, p.to_server, &out, TAG);
    arrives(&send[1], &recv[1], &small_in, 2, 100);
    arrives(&send[0], &recv[0], &in, 1, SIZE);
    check_counts(&p, before, 1, 2, 1, 0);
}

/* Messages of another size than the receive go as without an invitation: small and large ones,
 * and one too large. */
CASE(invitation_of_another_size)
{
    static const int sizes[] = {0, 100, 20000, SIZE - 1, SIZE + 1};
    struct pair p;
    struct blob in;

    pair_open_with(&p, "rndv=auto" INVITED);
    blob_zone(&in, p.server, SIZE);
    for (uint64_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct counts before = counts(&p);
        struct op send, recv;
        struct blob out;

        blob_zone(&out, p.client, (size_t)sizes[i]);
        blob_fill(&out, i);
        blob_canary(&in);
        post_recv(&recv, p.server, p.to_client, &in, TAG);
        client_has_heard(&p);
        post_send(&send, p.client, p.to_server, &out, TAG);
        if (sizes[i] <= SIZE) {
            arrives(&send, &recv, &in, i, sizes[i]);
        } else {
            pump_until_both(&send, &recv);
            op_check_error(&send, -EMSGSIZE, -EMSGSIZE);
            op_check_error(&recv, -EMSGSIZE, -EMSGSIZE);
            blob_check(&in, 0, 0);
        }
        assert_int_equal(counts(&p).taken, before.taken);
        pair_exchange(&p, 150000, TAG);
    }
}

/* The sender holds the invitation but its memory is not registered: RTS voids the invitation
 * and is answered by CTS. */
CASE(invitation_declined)
{
    struct pair p;
    struct blob out, in;
    struct op send, recv;
    struct counts before;

    pair_open_with(&p, "rndv=write" INVITED COUNTED);
    needs_invitations(&p);
    blob_zone(&in, p.server, SIZE);
    blob_flat(&out, SIZE);
    blob_fill(&out, 1);
    before = counts(&p);
    post_recv(&recv, p.server, p.to_client, &in, TAG);
    client_has_heard(&p);
    post_send(&send, p.client, p.to_server, &out, TAG);
    arrives(&send, &recv, &in, 1, SIZE);
    check_counts(&p, before, 1, 2, 1, 0);
}

/* A receive that has sent an invitation is cancelled: its memory is not written, and the
 * message meets the next receive. */
CASE(invitation_taken_back)
{
    struct pair p;
    struct blob out, first, second;
    struct op send, recv[2];

    pair_open_with(&p, "rndv=auto" INVITED);
    needs_invitations(&p);
    needs_spare_credits(&p);
    blob_zone(&out, p.client, SIZE);
    blob_zone(&first, p.server, SIZE);
    blob_zone(&second, p.server, SIZE);
    for (uint64_t i = 0; i < 10; i++) {
        blob_fill(&out, i);
        blob_canary(&first);
        blob_canary(&second);
        post_recv(&recv[0], p.server, p.to_client, &first, TAG);
        if (i % 2)
            client_has_heard(&p);
        post_recv(&recv[1], p.server, p.to_client, &second, TAG);
        op_cancel(&recv[0]);
        pump_until_reported(&recv[0]);
        op_check_error(&recv[0], -ECANCELED, -ECANCELED);
        post_send(&send, p.client, p.to_server, &out, TAG);
        arrives(&send, &recv[1], &second, i, SIZE);
        blob_check(&first, 0, 0);
    }
    assert_true(node_counter(p.server, "invites_sent") >= 10);
    assert_int_equal(node_counter(p.client, "protocol_errors") +
                         node_counter(p.server, "protocol_errors"),
                     0);
}

/* CANCEL of the invitation crosses the message: a small one, one of another size, or an RTS. */
CASE(invitation_taken_back_too_late)
{
    static const int sizes[] = {100, SIZE / 2, SIZE};
    struct pair p;
    struct blob first, second;

    pair_open_with(&p, "rndv=auto" INVITED);
    blob_zone(&first, p.server, SIZE);
    blob_zone(&second, p.server, SIZE);
    for (uint64_t i = 0; i < 12; i++) {
        int size = sizes[i % 3];
        bool heard = i >= 6; /* client has an invitation; else RTS crosses it as well */
        struct op send, recv[2];
        struct blob out;

        blob_zone(&out, p.client, (size_t)size);
        blob_fill(&out, i);
        blob_canary(&first);
        blob_canary(&second);
        post_recv(&recv[0], p.server, p.to_client, &first, TAG);
        post_recv(&recv[1], p.server, p.to_client, &second, TAG);
        if (heard)
            client_has_heard(&p);
        post_send(&send, p.client, p.to_server, &out, TAG);
        op_cancel(&recv[0]);
        pump_until_reported(&recv[0]);
        op_check_error(&recv[0], 0, -ECANCELED);
        pump_until_reported(&send);
        op_check_error(&send, 0, -ECANCELED);
        if (recv[0].error) {
            assert_int_equal(blob_foreign(&first, i), -1); /* some of it may have arrived */
            blob_canary(&first);
        }
        if (!recv[0].error || send.error) { /* this link is finished */
            op_cancel(&recv[1]);
            pump_until_reported(&recv[1]);
            op_check_error(&recv[1], -ECANCELED, -ECANCELED);
            if (!recv[0].error)
                blob_check(&first, i, size);
            blob_check(&second, 0, 0);
        } else {
            pump_until_reported(&recv[1]);
            op_check_blob(&recv[1], &second, i, size);
            blob_check(&first, 0, 0);
        }
        pair_exchange(&p, 150000, TAG);
    }
    assert_int_equal(node_counter(p.client, "protocol_errors") +
                         node_counter(p.server, "protocol_errors"),
                     0);
}

/* CANCEL of a taken invitation and of the next one reach the peer together: each is
 * answered. */
CASE(invitations_taken_back_in_a_row)
{
    struct pair p;
    struct blob out, in;
    struct op send, recv[2];

    /* a sleeping peer returns no credits */
    pair_open_with(&p, "rndv=auto,credits=8" INVITED);
    needs_invitations(&p);
    blob_zone(&out, p.client, SIZE);
    blob_zone(&in, p.server, SIZE);
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t written = node_counter(p.server, "recvs_rndv_write");

        blob_fill(&out, i);
        blob_canary(&in);
        both_may_start(&p);
        post_recv(&recv[0], p.server, p.to_client, &in, TAG);
        client_has_heard(&p);
        both_may_start(&p);
        p.server->asleep = true; /* the server has not noticed that its receive is complete */
        post_send(&send, p.client, p.to_server, &out, TAG);
        pump_until_reported(&send);
        p.server->asleep = false;
        p.client->asleep = true;
        op_cancel(&recv[0]);
        pump_until_reported(&recv[0]);
        op_check(&recv[0], SIZE); /* cancelled too late */
        assert_int_equal(node_counter(p.server, "recvs_rndv_write"), written + 1);
        blob_check(&in, i, SIZE);
        blob_canary(&in);
        post_recv(&recv[1], p.server, p.to_client, &in, TAG);
        op_cancel(&recv[1]);
        p.client->asleep = false;
        pump_until_reported(&recv[1]);
        op_check_error(&recv[1], -ECANCELED, -ECANCELED);
        blob_check(&in, 0, 0);
    }
    pair_exchange(&p, 150000, TAG);
    assert_int_equal(node_counter(p.client, "connects"), 1);
}

/* A forced cancel of a receive that has sent an invitation does not break the link. */
CASE(invitation_taken_back_by_force)
{
    struct pair p;
    struct blob in;
    struct op recv;

    pair_open_with(&p, "rndv=auto" INVITED);
    rme_set_forceful_cancel(p.server->rme);
    blob_zone(&in, p.server, SIZE);
    post_recv(&recv, p.server, p.to_client, &in, TAG);
    client_has_heard(&p);
    op_cancel(&recv);
    pump_until_reported(&recv);
    op_check_error(&recv, -ECANCELED, -ECANCELED);
    pair_exchange(&p, 150000, TAG);
    assert_int_equal(node_counter(p.client, "connects"), 1);
}

/* The peer does not answer, so the link ends with the invitation open; the next link starts
 * without it. */
CASE(invitation_dies_with_its_link)
{
    struct pair p;
    struct blob out, in;
    struct op send, recv;

    pair_open_with(&p, "rndv=auto,connect_timeout_ms=5000" INVITED);
    blob_zone(&in, p.server, SIZE);
    post_recv(&recv, p.server, p.to_client, &in, TAG);
    client_has_heard(&p);
    p.client->asleep = true;
    op_cancel(&recv);
    pump_until_reported(&recv);
    op_check_error(&recv, -ECANCELED, -ECANCELED);
    p.client->asleep = false;
    pair_reconnect(&p);
    blob_flat(&out, SIZE);
    blob_fill(&out, 1);
    post_send(&send, p.client, p.to_server, &out, TAG);
    server_has_heard(&p);
    blob_check(&in, 0, 0);
    post_recv(&recv, p.server, p.to_client, &in, TAG);
    arrives(&send, &recv, &in, 1, SIZE);
}

/* Receives whose invitations stay unused stop sending them to the peer; a receive retries now
 * and then, and with success all receives do. */
CASE(inviting_in_vain_is_noticed)
{
    struct pair p;
    struct blob out, in, large_out, large_in;
    struct op send, recv;
    struct counts before;

    pair_open_with(&p, "rndv=auto" INVITED);
    needs_invitations(&p);
    needs_spare_credits(&p);
    blob_flat(&out, 10);
    blob_zone(&in, p.server, 100000);
    blob_zone(&large_out, p.client, SIZE);
    blob_zone(&large_in, p.server, SIZE);
    before = counts(&p);
    for (int i = 0; i < 200; i++) {
        post_recv(&recv, p.server, p.to_client, &in, TAG);
        post_send(&send, p.client, p.to_server, &out, TAG);
        pump_until_reported(&recv);
        op_check(&recv, 10);
    }
    assert_in_range(counts(&p).sent - before.sent, 5, 10);
    for (int i = 0; i < 70; i++) {
        before = counts(&p);
        post_recv(&recv, p.server, p.to_client, &large_in, TAG);
        client_has_heard(&p);
        post_send(&send, p.client, p.to_server, &large_out, TAG);
        pump_until_both(&send, &recv);
    }
    assert_int_equal(counts(&p).sent - before.sent, 1);
}

/* A side with early_cts=0 neither gets nor sends an invitation. */
CASE(invitations_not_wanted)
{
    static const char *const options[] = {"early_cts=0", NULL};

    for (int side = 0; side < 2; side++) {
        struct pair p;
        struct blob out, in;
        struct op send, recv;

        bed_options(options[side]);
        p.server = node_open("server", lane_uri(0));
        bed_options(options[!side]);
        p.client = node_open("client", NULL);
        p.to_server = node_dial(p.client, lane_uri(0));
        pair_meet(&p);
        blob_zone(&out, p.client, SIZE);
        blob_zone(&in, p.server, SIZE);
        blob_fill(&out, 1);
        post_recv(&recv, p.server, p.to_client, &in, TAG);
        client_has_heard(&p);
        post_send(&send, p.client, p.to_server, &out, TAG);
        arrives(&send, &recv, &in, 1, SIZE);
        assert_int_equal(counts(&p).sent, 0);
        bed_again();
    }
}
