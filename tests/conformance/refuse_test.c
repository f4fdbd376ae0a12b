/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages larger than their receives, as reported at the sender. message_test.c tests the
 * receiver, and that nothing is written behind the buffer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "cases.h"

/* a list of that many pieces is queued, so its send is not complete at once */
#define PIECES 12
/* context of sends that are tested late; pump() tests context 0 */
#define CTX 1

static const bool receive_first[] = {true, false};

/* Sends the server more than fits in its receive; the send is in the given context. */
static void send_too_much(struct pair *p, const struct blob *out, const struct blob *in,
                          bool first, int ctx, int tag, struct op *send, struct op *recv)
{
    if (first)
        post_recv(recv, p->server, p->to_client, in, tag);
    pump_times(3);
    post_send_ctx(send, p->client, p->to_server, out, tag, ctx);
    pump_times(30);
    if (!first)
        post_recv(recv, p->server, p->to_client, in, tag);
    pump_until_reported(recv);
    op_check_error(recv, -EMSGSIZE, -EMSGSIZE);
}

/* Opens a pair and drops warnings of the opening, such as about a missing registration
 * cache. */
static void open_and_hush(struct pair *p)
{
    pair_open(p);
    p->client->warnings = p->server->warnings = 0;
}

static void pump_until_refused(struct node *n, uint64_t count)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (node_counter(n, "eager_refused") < count && lane_now() < end)
        pump();
    assert_int_equal(node_counter(n, "eager_refused"), count);
}

/* The receiver refuses a send that is complete but not yet reported: the send stays
 * complete. */
CASE(send_larger_than_receive_stays_complete)
{
    struct pair p;
    struct op send, recv;
    struct blob in, out;

    open_and_hush(&p);
    assert_int_equal(rme_context_open(p.client->rme, CTX), 0);
    blob_pieces(&out, PIECES, 10, 20, false, 3);
    blob_flat(&in, 100);
    for (int i = 0; i < 2; i++) {
        struct rme_done done;

        send_too_much(&p, &out, &in, receive_first[i], CTX, 60 + i, &send, &recv);
        assert_int_equal(send.rc, 0);
        pump_until_refused(p.client, (uint64_t)i + 1);
        assert_int_equal(rme_test_context(p.client->rme, CTX, &done, 1, 0), 1);
        assert_ptr_equal(done.user, &send);
        assert_int_equal(done.error, 0);
        assert_int_equal(done.actual, out.total);
        assert_int_equal(rme_test_context(p.client->rme, CTX, &done, 1, 0), 0);
        pair_exchange(&p, 100, 60 + i);
        assert_int_equal(p.client->warnings, i + 1);
    }
    assert_int_equal(node_counter(p.client, "connects"), 1);
}

/* The receiver refuses a send that was reported: one log line names the lost message, and a
 * counter counts it. */
CASE(send_larger_than_receive_is_told_afterwards)
{
    struct pair p;
    struct op send, recv;
    struct blob in, out;

    open_and_hush(&p);
    pair_exchange(&p, 100, 1); /* new peers may wait for their first credits */
    blob_flat(&out, 300);
    blob_flat(&in, 299);
    for (int i = 0; i < 2; i++) {
        char tag[32];

        snprintf(tag, sizeof tag, "tag %d ", 7000 + i);
        send_too_much(&p, &out, &in, receive_first[i], 0, 7000 + i, &send, &recv);
        assert_int_equal(send.rc, 1); /* eager sends are complete at once */
        op_check(&send, 300);
        pump_until_refused(p.client, (uint64_t)i + 1);
        pump(); /* let log lines reach the host */
        assert_int_equal(p.client->warnings, i + 1);
        assert_non_null(strstr(p.client->warning, tag));
        assert_non_null(strstr(p.client->warning, "300 bytes"));
        assert_non_null(strstr(p.client->warning, "299 bytes"));
        assert_non_null(strstr(p.client->warning, "eager_max=0"));
        pair_exchange(&p, 100, 7000 + i);
    }
    assert_int_equal(p.server->warnings, 0);
    assert_int_equal(node_counter(p.client, "connects"), 1);
}

/* With eager_max=0 a send completes only after meeting its receive: both sides get the error,
 * for any size. */
CASE(send_larger_than_receive_strict)
{
    static const struct {
        size_t out, in;
    } cases[] = {{1, 0},       {2, 1},    {100, 99},       {3000, 10},
                 {4080, 4079}, {5000, 0}, {300000, 299999}};
    struct pair p;
    struct op send, recv;
    struct blob in, out;

    bed_options("eager_max=0");
    open_and_hush(&p);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        blob_flat(&out, cases[c].out);
        blob_flat(&in, cases[c].in);
        for (int i = 0; i < 2; i++) {
            send_too_much(&p, &out, &in, receive_first[i], 0, 80, &send, &recv);
            pump_until_reported(&send);
            op_check_error(&send, -EMSGSIZE, -EMSGSIZE);
            pair_exchange(&p, 0, 80); /* an empty message always fits and needs no RTS */
            pair_exchange(&p, cases[c].out, 80);
        }
    }
    assert_int_equal(node_counter(p.client, "eager_refused"), 0);
    assert_int_equal(p.client->warnings + p.server->warnings, 0);
}

/* One side is strict, the other is not: each side's own option decides its result. */
CASE(send_larger_than_receive_one_side_strict)
{
    struct pair p;
    struct op send, recv;
    struct blob in, out;

    p.server = node_open("server", lane_uri(0));
    bed_options("eager_max=0");
    p.client = node_open("client", NULL);
    p.to_server = node_dial(p.client, lane_uri(0));
    pair_meet(&p);
    blob_flat(&out, 50);
    blob_flat(&in, 49);
    send_too_much(&p, &out, &in, true, 0, 90, &send, &recv);
    pump_until_reported(&send);
    op_check_error(&send, -EMSGSIZE, -EMSGSIZE);
    post_recv(&recv, p.client, p.to_server, &in, 91);
    post_send(&send, p.server, p.to_client, &out, 91);
    pump_until_both(&recv, &send);
    op_check_error(&recv, -EMSGSIZE, -EMSGSIZE);
    op_check_error(&send, 0, 0);
    pump_until_refused(p.server, 1);
    pair_exchange(&p, 50, 90);
}
