/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checks that a send of data is reported before the peer's answer to that data, in whichever
 * order the device completes them. Over the loop fabric local completions are withheld as long
 * as a test wants; over real devices only the order is checked.
 */
#include <errno.h>
#include "../fabric/loop.h"
#include "cases.h"

enum { SMALL = 100, LARGE = 300000, HUGE = 6 << 20, TAG = 8, DATA_TAG = 9, CREDITS = 8 };

/* One fragment for LARGE, so that all its data is in flight at once. */
#define ONE_UNIT "fragment_bytes=1M,rdma_inflight_bytes=1M"
/*
 * Options for messages that must not be deferred. No probes, because the server's probes would
 * use the credits of its answers.
 */
#define WRITTEN "rndv=write,eager_max=4K,credits=8,keepalive_ms=0"

/* A large message, and an answer that is posted when the receiver has the message. */
struct dialogue {
    struct node *from, *to;
    struct rme_addr *there, *back; /* handles: of `to` at `from`, and of `from` at `to` */
    struct blob data_out, data_in, out, in;
    struct op data_send, data_recv, send, recv;
};

static void dialogue_new(struct dialogue *d, const struct pair *p, bool from_client,
                         size_t answer)
{
    d->from = from_client ? p->client : p->server;
    d->to = from_client ? p->server : p->client;
    d->there = from_client ? p->to_server : p->to_client;
    d->back = from_client ? p->to_client : p->to_server;
    blob_flat(&d->data_out, LARGE);
    blob_flat(&d->data_in, LARGE);
    blob_flat(&d->out, answer);
    blob_flat(&d->in, answer);
    blob_fill(&d->data_out, 1);
    blob_fill(&d->out, 2);
}

static void dialogue_free(struct dialogue *d)
{
    blob_free(&d->data_out);
    blob_free(&d->data_in);
    blob_free(&d->out);
    blob_free(&d->in);
}

static void post_data(struct dialogue *d)
{
    post_recv(&d->data_recv, d->to, d->back, &d->data_in, DATA_TAG);
    post_recv(&d->recv, d->from, d->there, &d->in, TAG);
    post_send(&d->data_send, d->from, d->there, &d->data_out, DATA_TAG);
}

/* Polls until the receiver has reported the data, or the device withholds the completion. */
static void let_data_arrive(struct dialogue *d)
{
    for (int i = 0; i < 2000 && !d->data_recv.reports; i++)
        pump();
}

/* Opens a pair over the loop; the data of a dialogue has arrived, and the device withholds its
 * completion. */
static bool withhold(struct dialogue *d, struct pair *p, const char *options)
{
    only_over_loop();
    pair_open_with(p, options);
    dialogue_new(d, p, true, SMALL);
    post_data(d);
    loop_hold(LOOP_HOLD_DONES);
    let_data_arrive(d);
    if (d->data_recv.reports || d->data_send.reports)
        return true;
    loop_hold(0); /* the receiver reads, and FIN waits for the device, too */
    pump_until_both(&d->data_recv, &d->data_send);
    return false;
}

static void dialogue_check(struct dialogue *d)
{
    op_check(&d->data_send, LARGE);
    op_check(&d->data_recv, LARGE);
    op_check(&d->recv, d->in.total);
    blob_check(&d->data_in, 1, LARGE);
    blob_check(&d->in, 2, d->in.total);
    assert_true(d->data_send.place < d->recv.place);
}

/* Sends answers of every kind, both ways, many times. */
CASE(answer_comes_after_its_data)
{
    static const size_t answers[] = {8, 0, 3000, LARGE};
    struct dialogue d;
    struct pair p;

    pair_open(&p);
    for (int i = 0; i < 80; i++) {
        dialogue_new(&d, &p, i % 2, answers[i / 2 % 4]);
        post_data(&d);
        pump_until_reported(&d.data_recv);
        post_send(&d.send, d.to, d.back, &d.out, TAG);
        pump_until_both(&d.recv, &d.send);
        pump_until_reported(&d.data_send);
        dialogue_check(&d);
        dialogue_free(&d);
    }
}

/* While the device withholds the data's completion, answers are not reported either: expected,
 * unexpected, small and large ones. */
CASE(answer_waits_for_the_device)
{
    static const size_t answers[] = {8, 0, 3000, LARGE};
    struct dialogue d;
    struct blob word;
    struct op un;
    struct pair p;

    only_over_loop();
    pair_open_with(&p, ONE_UNIT);
    blob_flat(&word, SMALL);
    for (int i = 0; i < 8; i++) {
        dialogue_new(&d, &p, i % 2 == 0, answers[i / 2]);
        post_data(&d);
        loop_hold(LOOP_HOLD_DONES);
        let_data_arrive(&d);
        /* if the receiver reads, its own report waits for its device, and so do its later
         * messages */
        if (d.data_recv.reports) {
            post_send(&d.send, d.to, d.back, &d.out, TAG);
            if (d.from == p.server)
                post_unexpected(&un, d.to, d.back, &word, TAG);
            pump_times(200);
            assert_int_equal(d.data_send.reports, 0);
            assert_int_equal(d.recv.reports, 0);
            assert_int_equal(p.server->ninbox, 0);
            assert_true(node_counter(d.from, "deferred") > 0);
            loop_hold(0);
            if (d.from == p.server) {
                pump_until_unexpected(p.server, 1);
                assert_int_equal(d.data_send.reports, 1);
                inbox_drop(p.server);
                pump_until_reported(&un);
            }
        } else if (!d.data_send.reports) { /* FIN is sent when the reads are complete */
            loop_hold(0);
            pump_until_reported(&d.data_recv);
            post_send(&d.send, d.to, d.back, &d.out, TAG);
        } else { /* FIN has followed the reads */
            struct blob next;
            struct op later, got;

            blob_flat(&next, SMALL);
            post_recv(&got, d.to, d.back, &next, DATA_TAG);
            post_send(&later, d.from, d.there, &next, DATA_TAG);
            pump_times(200);
            assert_int_equal(got.reports, 0);
            loop_hold(0);
            pump_until_both(&got, &later);
            op_check(&got, SMALL);
            assert_true(d.data_recv.place < got.place);
            blob_free(&next);
            post_send(&d.send, d.to, d.back, &d.out, TAG);
        }
        pump_until_both(&d.recv, &d.send);
        pump_until_reported(&d.data_send);
        dialogue_check(&d);
        dialogue_free(&d);
    }
}

/* A large message from the client is stalled; messages of the server are reported at once. */
static void no_wait_behind(struct pair *p)
{
    struct blob large[2], small[2];
    struct op large_op[2], small_op[2];

    for (int i = 0; i < 2; i++) {
        blob_flat(&large[i], HUGE);
        blob_flat(&small[i], SMALL);
    }
    loop_hold(LOOP_HOLD_DATA | LOOP_HOLD_DONES);
    post_recv(&large_op[0], p->server, p->to_client, &large[0], DATA_TAG);
    post_recv(&small_op[0], p->client, p->to_server, &small[0], TAG);
    post_send(&large_op[1], p->client, p->to_server, &large[1], DATA_TAG);
    pump_times(100);
    /* send as many as there are credits: returned ones are behind the data */
    for (int i = 0; i < 2; i++) {
        post_send(&small_op[1], p->server, p->to_client, &small[1], TAG);
        pump_until_reported(&small_op[0]);
        op_check(&small_op[0], SMALL);
        post_recv(&small_op[0], p->client, p->to_server, &small[0], TAG);
    }
    assert_int_equal(large_op[0].reports + large_op[1].reports, 0);
    loop_hold(0);
    pump_until_all(large_op, 2);
    pump_until_reported(&small_op[1]);
    post_send(&small_op[1], p->server, p->to_client, &small[1], TAG);
    pump_until_all(small_op, 2);
    for (int i = 0; i < 2; i++) {
        op_check(&large_op[i], HUGE);
        blob_free(&large[i]);
        blob_free(&small[i]);
    }
}

/*
 * Uses the link until the client advertises the usual number of credits. Without a shared queue
 * a new link has so few that a CREDIT message follows the second request for data, and would be
 * in flight beside it like a probe.
 */
static void use_link(struct pair *p)
{
    for (int i = 0; node_attribute(p->client, p->to_server, "credits_promised") < CREDITS;
         i++) {
        assert_in_range(i, 0, 100);
        pair_exchange(p, SMALL, i);
    }
    pump_times(100);
}

CASE(answer_to_something_else_does_not_wait)
{
    struct pair p;

    only_over_loop();
    pair_open_with(&p, WRITTEN);
    use_link(&p);
    no_wait_behind(&p);
}

/* Does the same after both sides have advertised more credits: new credits are not taken for
 * returned ones. */
CASE(answer_on_busy_link_is_immediate)
{
    enum { FLOOD = 300 };
    static struct op send[2][FLOOD], recv[2][FLOOD];
    struct blob b;
    struct pair p;

    only_over_loop();
    pair_open_with(&p, WRITTEN);
    blob_flat(&b, SMALL);
    for (int i = 0; i < FLOOD; i++) {
        post_recv(&recv[0][i], p.server, p.to_client, &b, TAG);
        post_recv(&recv[1][i], p.client, p.to_server, &b, TAG);
        post_send(&send[0][i], p.client, p.to_server, &b, TAG);
        post_send(&send[1][i], p.server, p.to_client, &b, TAG);
    }
    for (int i = 0; i < 2; i++) {
        pump_until_all(send[i], FLOOD);
        pump_until_all(recv[i], FLOOD);
    }
    /* so the server asked for more credits */
    assert_true(node_counter(p.client, "credit_stalls") > 0);
    no_wait_behind(&p);
}

/* A large answer into memory opened by an invitation: its immediate has no header with a count
 * of earlier messages. */
CASE(answer_by_invitation)
{
    struct dialogue d;
    struct pair p;

    only_over_loop();
    pair_open_with(&p, ONE_UNIT);
    for (int i = 0; i < 4; i++) {
        dialogue_new(&d, &p, true, LARGE);
        blob_zone(&d.in, d.from, LARGE);
        post_recv(&d.recv, d.from, d.there, &d.in, TAG);
        pair_exchange(&p, 1, 77); /* an invitation has arrived if there is one */
        post_recv(&d.data_recv, d.to, d.back, &d.data_in, DATA_TAG);
        post_send(&d.data_send, d.from, d.there, &d.data_out, DATA_TAG);
        loop_hold(LOOP_HOLD_DONES);
        let_data_arrive(&d);
        if (d.data_recv.reports) {
            post_send(&d.send, d.to, d.back, &d.out, TAG);
            pump_times(200);
            assert_int_equal(d.recv.reports, 0);
            loop_hold(0);
        } else {
            loop_hold(0);
            pump_until_reported(&d.data_recv);
            post_send(&d.send, d.to, d.back, &d.out, TAG);
        }
        pump_until_both(&d.recv, &d.send);
        pump_until_reported(&d.data_send);
        dialogue_check(&d);
        dialogue_free(&d);
    }
}

/* More answers than receive buffers are deferred; they meet their receives in sending order. */
CASE(answers_keep_their_order)
{
    enum { N = 200 };
    static struct op send[N], recv[N];
    static struct blob out[N], in[N];
    struct dialogue d;
    struct pair p;

    withhold(&d, &p, ONE_UNIT);
    for (int i = 0; i < N; i++) {
        size_t size = i % 10 == 9 ? 100000 : (size_t)i;
        blobs_flat(&out[i], &in[i], size, (uint64_t)i);
        post_recv(&recv[i], p.client, p.to_server, &in[i], 3);
    }
    for (int i = 0; i < N; i++)
        post_send(&send[i], p.server, p.to_client, &out[i], 3);
    pump_times(300);
    loop_hold(0);
    pump_until_all_of(send, recv, N);
    post_send(&d.send, d.to, d.back, &d.out, TAG);
    pump_until_both(&d.recv, &d.send);
    dialogue_check(&d);
    for (int i = 0; i < N; i++)
        op_check_blob(&recv[i], &in[i], (uint64_t)i, out[i].total);
    dialogue_free(&d);
}

/* Receives that are complete and held back end in the order of their posts, small and empty
 * ones, of one tag and of several. */
CASE(held_receives_end_in_order)
{
    enum { HELD = 6 }; /* fewer than credits */
    static struct op send[HELD], recv[HELD];
    struct blob out, in;
    struct dialogue d;
    struct pair p;

    bool held = withhold(&d, &p, ONE_UNIT) && d.data_recv.reports; /* else it reads */
    blobs_flat(&out, &in, SMALL, 0);
    for (int i = 0; i < HELD; i++)
        post_recv(&recv[i], p.client, p.to_server, &in, 3 + i / 2);
    uint64_t before = node_counter(p.client, "deferred");
    for (int i = 0; i < HELD; i++)
        post_send(&send[i], p.server, p.to_client, &out, 3 + i / 2);
    pump_times(300);
    if (held)
        assert_int_equal(node_counter(p.client, "deferred") - before, HELD);
    loop_hold(0);
    pump_until_all_of(send, recv, HELD);
    for (int i = 0; i < HELD; i++) {
        op_check(&recv[i], SMALL);
        assert_true(recv[i].place > (i > 0 ? recv[i - 1].place : d.data_send.place));
    }
    pump_until_reported(&d.data_recv);
    post_send(&d.send, d.to, d.back, &d.out, TAG);
    pump_until_both(&d.recv, &d.send);
    dialogue_check(&d);
    dialogue_free(&d);
}

/* The receive is cancelled while its completion is deferred: the receive succeeds, or the
 * message meets the next one. */
CASE(answer_whose_receive_is_cancelled)
{
    struct dialogue d;
    struct pair p;

    withhold(&d, &p, ONE_UNIT);
    post_send(&d.send, d.to, d.back, &d.out, TAG);
    pump_times(100);
    op_cancel(&d.recv);
    pump_times(100);
    loop_hold(0);
    pump_until_reported(&d.recv);
    op_check_error(&d.recv, -ECANCELED, 0);
    if (d.recv.error == -ECANCELED)
        post_recv(&d.recv, d.from, d.there, &d.in, TAG);
    pump_until_both(&d.recv, &d.send);
    pump_until_both(&d.data_send, &d.data_recv);
    dialogue_check(&d);
    dialogue_free(&d);
}

/* The peer answers, closes and ends the link before the data's local completion: the answer
 * proves that the data has arrived. */
CASE(answer_of_a_peer_that_goes)
{
    struct dialogue d;
    struct pair p;

    withhold(&d, &p, ONE_UNIT ",eager_max=4K");
    if (!d.data_recv.reports) {
        loop_hold(0);
        pump_until_reported(&d.data_recv);
    }
    post_send(&d.send, d.to, d.back, &d.out, TAG);
    pump_times(100);
    pump_until_reported(&d.send);
    node_close(p.server);
    pump_until_both(&d.data_send, &d.recv);
    dialogue_check(&d);
    loop_hold(0);
    dialogue_free(&d);
}

/* The link is dropped while an answer is deferred: all its operations end, with success if the
 * peer has answered, and nothing is left. */
CASE(answer_dropped_with_its_link)
{
    struct dialogue d;
    struct pair p;
    withhold(&d, &p, ONE_UNIT);
    post_send(&d.send, d.to, d.back, &d.out, TAG);
    pump_times(100);
    node_forget(p.to_server);
    pump_until_both(&d.recv, &d.data_send);
    op_check(&d.recv, SMALL);
    op_check(&d.data_send, LARGE);
    loop_hold(0);
    pump_until_both(&d.send, &d.data_recv);
    dialogue_free(&d);
}
