/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two listeners that never send each other an unexpected message: each sends to and receives from the address that it looked
 * up.  What one sends comes over its own link, and meets a receive at the address that leads back.
 */
#include <errno.h>
#include "cases.h"

enum { LARGE = 300000 };

/* Nobody has said anything yet. */
struct mutual {
    struct node *a, *b;
    struct rme_addr *to_a, *to_b; /* as b, and as a, looked it up */
};

static void mutual_open(struct mutual *m)
{
    m->a = node_open("server", lane_uri(0));
    m->b = node_open("second", lane_uri(1));
    m->to_b = node_dial(m->a, lane_uri(1));
    m->to_a = node_dial(m->b, lane_uri(0));
}

/* A message from b to a. */
struct message {
    struct blob out, in;
    struct op send, recv;
};

static void message_new(struct message *x, size_t size, uint64_t seed)
{
    blob_flat(&x->out, size);
    blob_flat(&x->in, size);
    blob_fill(&x->out, seed);
}

static void message_check(struct message *x, uint64_t seed)
{
    pump_until_reported(&x->send);
    pump_until_reported(&x->recv);
    op_check(&x->send, x->out.total);
    op_check(&x->recv, x->out.total);
    blob_check(&x->in, seed, x->out.total);
    blob_free(&x->out);
    blob_free(&x->in);
}

/* Both have each other's link. */
static void mutual_meet(struct mutual *m)
{
    struct message there, back;

    message_new(&there, 1, 1);
    message_new(&back, 1, 2);
    post_send(&there.send, m->b, m->to_a, &there.out, 1);
    post_send(&back.send, m->a, m->to_b, &back.out, 1);
    post_recv(&there.recv, m->a, m->to_b, &there.in, 1);
    post_recv(&back.recv, m->b, m->to_a, &back.in, 1);
    message_check(&there, 1);
    message_check(&back, 2);
}

/* One looks, then the other. */
static void steps(struct mutual *m, int count)
{
    for (int i = 0; i < count; i++) {
        m->a->asleep = i % 2;
        m->b->asleep = !m->a->asleep;
        pump();
    }
    m->a->asleep = m->b->asleep = false;
}

/* Every size both ways at once; the first time they do not even know each other. */
void mutual_exchange(void **state)
{
    static const size_t sizes[] = {1, 0, 64, 4000, 5000, 65536, 1000000, 5000000};
    struct message there, back;
    struct mutual m;

    (void)state;
    mutual_open(&m);
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
        size_t size = sizes[i / 2];
        bool recv_first = i % 2 == 0;
        message_new(&there, size, 2 * i);
        message_new(&back, size, 2 * i + 1);
        if (recv_first) {
            post_recv(&there.recv, m.a, m.to_b, &there.in, 7);
            post_recv(&back.recv, m.b, m.to_a, &back.in, 7);
            pump_times(20);
        }
        post_send(&there.send, m.b, m.to_a, &there.out, 7);
        post_send(&back.send, m.a, m.to_b, &back.out, 7);
        if (!recv_first) {
            pump_times(20);
            post_recv(&there.recv, m.a, m.to_b, &there.in, 7);
            post_recv(&back.recv, m.b, m.to_a, &back.in, 7);
        }
        message_check(&there, 2 * i);
        message_check(&back, 2 * i + 1);
    }
    assert_int_equal(node_counter(m.a, "invites_sent") + node_counter(m.b, "invites_sent"), 0);
    assert_int_equal(node_counter(m.a, "peers"), 2); /* one link each way */
}

/* The message is there before the receiver has ever connected: who sent it turns out when it does. */
void mutual_before_the_link_back(void **state)
{
    static const size_t sizes[] = {100, LARGE};
    struct message x[3];
    struct mutual m;

    (void)state;
    for (int s = 0; s < 2; s++) {
        mutual_open(&m);
        for (unsigned i = 0; i < 3; i++) {
            message_new(&x[i], sizes[s], i);
            post_send(&x[i].send, m.b, m.to_a, &x[i].out, 7);
        }
        pump_until_counter(m.a, "peers", 1);
        pump_times(50);
        assert_int_equal(node_counter(m.a, "connects"), 1);
        for (int i = 0; i < 3; i++)
            post_recv(&x[i].recv, m.a, m.to_b, &x[i].in, 7);
        for (unsigned i = 0; i < 3; i++)
            message_check(&x[i], i);
        assert_int_equal(node_counter(m.a, "connects"), 2);
        node_close(m.a);
        node_close(m.b);
    }
}

/* First in, first out within a tag, eager and rendezvous, however many of the receives are there already. */
void mutual_order(void **state)
{
    enum { MESSAGES = 12 };
    struct message x[MESSAGES];
    struct mutual m;

    (void)state;
    mutual_open(&m);
    for (int early = 0; early <= MESSAGES; early += 3) {
        for (int i = 0; i < MESSAGES; i++)
            message_new(&x[i], i % 3 == 1 ? 200000 : 200, (uint64_t)i);
        for (int i = 0; i < early; i++)
            post_recv(&x[i].recv, m.a, m.to_b, &x[i].in, 9);
        for (int i = 0; i < MESSAGES; i++)
            post_send(&x[i].send, m.b, m.to_a, &x[i].out, 9);
        pump_times(early % 2 ? 30 : 0);
        for (int i = early; i < MESSAGES; i++)
            post_recv(&x[i].recv, m.a, m.to_b, &x[i].in, 9);
        for (int i = 0; i < MESSAGES; i++)
            message_check(&x[i], (uint64_t)i);
    }
}

void mutual_too_small(void **state)
{
    static const size_t sizes[] = {100, LARGE};
    struct message x;
    struct mutual m;

    (void)state;
    mutual_open(&m);
    mutual_meet(&m);
    for (int i = 0; i < 4; i++) {
        message_new(&x, sizes[i / 2], 1);
        blob_free(&x.in);
        blob_flat(&x.in, 50);
        if (i % 2)
            post_recv(&x.recv, m.a, m.to_b, &x.in, 3);
        post_send(&x.send, m.b, m.to_a, &x.out, 3);
        pump_times(20);
        if (i % 2 == 0)
            post_recv(&x.recv, m.a, m.to_b, &x.in, 3);
        pump_until_reported(&x.recv);
        pump_until_reported(&x.send);
        op_check_error(&x.recv, -EMSGSIZE, -EMSGSIZE);
        op_check_error(&x.send, -EMSGSIZE, i < 2 ? 0 : -EMSGSIZE);
        blob_check(&x.in, 1, 0);
        blob_free(&x.in);
        blob_free(&x.out);
        mutual_meet(&m);
    }
}

/* A rendezvous. */
static void begin(struct mutual *m, struct message *x)
{
    message_new(x, LARGE, 5);
    post_recv(&x->recv, m->a, m->to_b, &x->in, 7);
    post_send(&x->send, m->b, m->to_a, &x->out, 7);
}

/* After each number of steps, by the receiver or by the sender. */
void mutual_cancel(void **state)
{
    struct message x;
    struct mutual m;

    (void)state;
    mutual_open(&m);
    mutual_meet(&m);
    for (int k = 0; k < 60; k++) {
        struct op *cancelled = k % 2 ? &x.send : &x.recv;
        struct op *other = k % 2 ? &x.recv : &x.send;
        begin(&m, &x);
        steps(&m, k / 2);
        op_cancel(cancelled);
        pump_until_reported(cancelled);
        op_check_error(cancelled, 0, -ECANCELED);
        pump_times(20);
        if (!other->reports)
            op_cancel(other);
        pump_until_reported(other);
        op_check_error(other, 0, -ECANCELED);
        if (!x.recv.error)
            blob_check(&x.in, 5, LARGE);
        else
            assert_int_equal(blob_foreign(&x.in, 5), -1);
        blob_free(&x.in);
        blob_free(&x.out);
        mutual_meet(&m);
    }
}

/* The sender goes in the middle: the receive ends, whichever link it belonged to, and a new engine there is found. */
void mutual_partner_goes(void **state)
{
    struct message x;
    struct mutual m;

    (void)state;
    mutual_open(&m);
    for (int k = 0; k < 12; k++) {
        mutual_meet(&m);
        begin(&m, &x);
        steps(&m, k);
        node_close(m.b);
        pump_until_reported(&x.recv);
        if (x.recv.error) {
            op_check_error(&x.recv, -ECONNRESET, -ECONNREFUSED);
        } else {
            op_check(&x.recv, LARGE);
            blob_check(&x.in, 5, LARGE);
        }
        blob_free(&x.in);
        blob_free(&x.out);
        while (node_counter(m.a, "peers") != 0) /* the fixture's alarm is its end */
            pump();
        m.b = node_open("second", lane_uri(1));
        m.to_a = node_dial(m.b, lane_uri(0));
    }
}

/*
 * Two servers that ask each other something with the same tag: the answer to a's request and the data of b's come over
 * different links, and the second must not be taken for the first.  Here the data even comes before the request that it
 * belongs to is seen.
 */
void mutual_is_not_for_requests(void **state)
{
    enum { TAG = 1 };
    struct op request, answer, data, data_recv, b_request;
    struct blob word, b_data, b_answer, a_answer, a_data;
    struct rme_unexpected at_a, at_b;
    struct mutual m;

    (void)state;
    mutual_open(&m);
    blob_flat(&word, 20);
    blob_flat(&b_data, 500);
    blob_flat(&b_answer, 500);
    blob_flat(&a_answer, 500);
    blob_flat(&a_data, 500);
    blob_fill(&word, 1);
    blob_fill(&b_data, 2);
    blob_fill(&b_answer, 3);
    post_recv(&answer, m.a, m.to_b, &a_answer, TAG);
    post_unexpected(&request, m.a, m.to_b, &word, TAG);
    pump_until_unexpected(m.b, 1);
    at_b = inbox_take(m.b);
    m.a->no_unexpected = true;
    post_send(&data, m.b, m.to_a, &b_data, TAG);
    pump_until_reported(&data);
    pump_until_counter(m.a, "peers", 2);
    pump_times(30);
    assert_int_equal(answer.reports, 0);
    post_unexpected(&b_request, m.b, m.to_a, &word, TAG);
    m.a->no_unexpected = false;
    pump_until_unexpected(m.a, 1);
    at_a = inbox_take(m.a);
    pump_times(30);
    assert_int_equal(answer.reports, 0);
    post_recv(&data_recv, m.a, at_a.addr, &a_data, TAG);
    pump_until_reported(&data_recv);
    op_check(&data_recv, 500);
    blob_check(&a_data, 2, 500);
    post_send(&data, m.b, at_b.addr, &b_answer, TAG);
    pump_until_reported(&answer);
    op_check(&answer, 500);
    blob_check(&a_answer, 3, 500);
    assert_int_equal(rme_unexpected_free(m.a->rme, at_a.buffer), 0);
    assert_int_equal(rme_unexpected_free(m.b->rme, at_b.buffer), 0);
    pump_until_reported(&request);
    pump_until_reported(&b_request);
    pump_until_reported(&data);
    blob_free(&word);
    blob_free(&b_data);
    blob_free(&b_answer);
    blob_free(&a_answer);
    blob_free(&a_data);
}

/* Data of a request that was posted before it, and arrives after it: not for a receive whose host has sent nothing yet. */
static void data_overtakes(size_t size, bool recv_first)
{
    struct message data;
    struct op knock, elsewhere, request;
    struct blob word, other;
    struct mutual m;

    mutual_open(&m);
    blob_flat(&word, 20);
    blob_flat(&other, size);
    message_new(&data, size, 4);
    post_recv(&knock, m.a, m.to_b, &word, 99);
    if (recv_first)
        post_recv(&elsewhere, m.a, m.to_b, &other, 2);
    pump_until_counter(m.a, "peers", 1);
    m.a->no_unexpected = true;
    post_unexpected(&request, m.b, m.to_a, &word, 2);
    post_send(&data.send, m.b, m.to_a, &data.out, 2);
    pump_until_counter(m.a, "peers", 2);
    pump_times(30);
    if (!recv_first)
        post_recv(&elsewhere, m.a, m.to_b, &other, 2);
    m.a->no_unexpected = false;
    pump_until_unexpected(m.a, 1);
    assert_int_equal(elsewhere.reports, 0);
    struct rme_unexpected at_a = inbox_take(m.a);
    post_recv(&data.recv, m.a, at_a.addr, &data.in, 2);
    message_check(&data, 4);
    pump_until_reported(&request);
    assert_int_equal(rme_unexpected_free(m.a->rme, at_a.buffer), 0);
    op_cancel(&knock);
    op_cancel(&elsewhere);
    pump_until_reported(&knock);
    pump_until_reported(&elsewhere);
    op_check_error(&elsewhere, -ECANCELED, -ECANCELED);
    blob_free(&word);
    blob_free(&other);
    node_close(m.a);
    node_close(m.b);
}

void mutual_is_not_for_data(void **state)
{
    (void)state;
    data_overtakes(100, false);
    data_overtakes(100, true);
    data_overtakes(LARGE, false);
    data_overtakes(LARGE, true);
}

/* Once an unexpected message has gone over a link, what follows is for receives on that link only. */
void mutual_ends_with_a_request(void **state)
{
    struct message x;
    struct op request, elsewhere;
    struct blob word, other;
    struct mutual m;

    (void)state;
    mutual_open(&m);
    mutual_meet(&m);
    blob_flat(&word, 20);
    post_unexpected(&request, m.b, m.to_a, &word, 1);
    pump_until_unexpected(m.a, 1);
    struct rme_unexpected at_a = inbox_take(m.a);
    for (int message_first = 0; message_first < 2; message_first++) {
        blob_flat(&other, 100);
        message_new(&x, 100, 4);
        if (!message_first)
            post_recv(&elsewhere, m.a, m.to_b, &other, 2);
        post_send(&x.send, m.b, m.to_a, &x.out, 2);
        pump_times(30);
        if (message_first)
            post_recv(&elsewhere, m.a, m.to_b, &other, 2);
        pump_times(10);
        assert_int_equal(elsewhere.reports, 0);
        post_recv(&x.recv, m.a, at_a.addr, &x.in, 2);
        message_check(&x, 4);
        op_cancel(&elsewhere);
        pump_until_reported(&elsewhere);
        op_check_error(&elsewhere, -ECANCELED, -ECANCELED);
        blob_free(&other);
    }
    assert_int_equal(rme_unexpected_free(m.a->rme, at_a.buffer), 0);
    pump_until_reported(&request);
    blob_free(&word);
}

/* A third one that sends the same tag is somebody else. */
void mutual_is_not_for_others(void **state)
{
    struct message x;
    struct mutual m;
    struct op stray;
    struct blob blob;

    (void)state;
    mutual_open(&m);
    mutual_meet(&m);
    struct node *c = node_open("third", NULL);
    struct rme_addr *to_a = node_dial(c, lane_uri(0));
    message_new(&x, 100, 4);
    blob_flat(&blob, 100);
    post_recv(&x.recv, m.a, m.to_b, &x.in, 2);
    post_send(&stray, c, to_a, &blob, 2);
    pump_until_reported(&stray);
    pump_until_counter(m.a, "peers", 3);
    pump_times(30);
    assert_int_equal(x.recv.reports, 0);
    post_send(&x.send, m.b, m.to_a, &x.out, 2);
    message_check(&x, 4);
    blob_free(&blob);
}

/* A process that looked up its own address. */
void mutual_with_oneself(void **state)
{
    static const size_t sizes[] = {0, 100, LARGE};
    struct message x;

    (void)state;
    struct node *a = node_open("server", lane_uri(0));
    struct rme_addr *to_a = node_dial(a, lane_uri(0));
    for (unsigned i = 0; i < 6; i++) {
        message_new(&x, sizes[i / 2], i);
        if (i % 2)
            post_recv(&x.recv, a, to_a, &x.in, 2);
        post_send(&x.send, a, to_a, &x.out, 2);
        pump_times(10);
        if (i % 2 == 0)
            post_recv(&x.recv, a, to_a, &x.in, 2);
        message_check(&x, i);
    }
}
