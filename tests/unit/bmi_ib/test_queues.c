/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Queues of the software HCA fail: the links fail, and new ones get queues that work, with all
 * their receives. Server and client are in this process; the argument has options.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include "bmi_ib/link/links.h"
#include "wire_host.h"

static struct wire server, client;

static void fail_queue(const char *what, void *queue)
{
    void (*end)(void *) = (void (*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, what);
    assert_non_null(end);
    end(queue);
}

/* Polls both until `w` has seen n events of a kind. */
static void both_until(struct wire *w, enum rme_event_type type, int n)
{
    time_t end = wire_now() + PATIENCE_S;
    while (wire_count(w, type) < n) {
        assert_true(wire_now() <= end);
        wire_poll(&client);
        wire_poll(&server);
    }
}

static void forget(void)
{
    client.nseen = server.nseen = 0;
}

static void connect_both(const char *uri)
{
    forget();
    (void)wire_dial(&client, uri);
    both_until(&client, RME_EV_LINK_UP, 1);
    both_until(&server, RME_EV_LINK_UP, 1);
}

/* Sends n messages, while the server does not poll. */
static void send_some(int n)
{
    for (int i = 0; i < n; i++)
        assert_true(wire_send(&client, "hello"));
    do
        wire_poll(&client);
    while (client.link->queue.head && client.link->state == IB_UP);
    for (int i = 0; i < 3; i++)
        wire_poll(&client);
    assert_int_equal(client.link->state, IB_UP);
    forget();
}

/* Sends as many messages as receives are promised. */
static void fill(void)
{
    send_some(WIRE_RX);
    both_until(&server, RME_EV_RECV, WIRE_RX);
}

/* Waits for the end of the link at both sides. The server's error is `error`. */
static void both_end(int error)
{
    both_until(&server, RME_EV_LINK_DOWN, 1);
    both_until(&client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&server, RME_EV_LINK_DOWN, 0)->error, error);
    server.ops->link_free(wire_event(&server, RME_EV_LINK_DOWN, 0)->link);
    client.ops->link_free(wire_event(&client, RME_EV_LINK_DOWN, 0)->link);
}

static const char *open_both(void)
{
    const char *uri = wire_uri("127.0.0.1");
    wire_open(&server, uri);
    wire_open(&client, NULL);
    return uri;
}

static void close_both(void)
{
    wire_close(&client);
    wire_close(&server);
}

/* A CQ fails with messages in it: the receives that these took do not count as posted. */
static void failed_cq_drops_its_messages(void **state)
{
    const char *uri = open_both();
    (void)state;
    for (int i = 0; i < 3; i++) {
        connect_both(uri);
        fill();
        send_some(WIRE_RX);
        fail_queue("emuverbs_fail_cq", server.f->rail[0]->cq.cq);
        server.ops->wait(server.f, 0); /* finds the event before the next poll */
        both_end(-EIO);
        assert_int_equal(wire_count(&server, RME_EV_RECV), 0);
    }
    connect_both(uri);
    fill();
    wire_disconnect(&client);
    close_both();
}

/* An SRQ fails: messages that had arrived are delivered. */
static void failed_srq_delivers_arrived_messages(void **state)
{
    const char *uri = open_both();
    (void)state;
    for (int i = 0; i < 3 && server.f->rail[0]->srq; i++) {
        connect_both(uri);
        fill();
        send_some(1);
        fail_queue("emuverbs_fail_srq", server.f->rail[0]->srq);
        both_end(-EIO);
        assert_int_equal(wire_count(&server, RME_EV_RECV), 1);
    }
    connect_both(uri);
    fill();
    wire_disconnect(&client);
    close_both();
}

/* A peer gives up a receive, and the engine returns a buffer, when the link has lost its QP, or
 * is freed: nothing is posted or counted for it. */
static void release_after_link_end_is_ignored(void **state)
{
    const char *uri = open_both();
    (void)state;
    for (int freed = 0; freed < 2; freed++) {
        struct rme_event event = {.type = RME_EV_LINK_UP};
        connect_both(uri);
        send_some(1);
        for (time_t end = wire_now() + PATIENCE_S; event.type != RME_EV_RECV;) {
            assert_true(wire_now() <= end);
            assert_in_range(server.ops->poll(server.f, &event, 1), 0, 1);
        }
        client.ops->link_disconnect(client.link, 0);
        both_until(&server, RME_EV_LINK_DOWN, 1);
        both_until(&client, RME_EV_LINK_DOWN, 1);
        struct rme_link *l = wire_event(&server, RME_EV_LINK_DOWN, 0)->link;
        struct ib_rx_queue *q = server.f->rail[0]->srq ? &server.f->rail[0]->rxq : &l->rxq;
        uint32_t posted = q->posted, unused = server.f->rail[0]->rx.nfree;
        assert_null(l->qp);
        server.ops->rx_release(l, 1);
        assert_int_equal(q->advertised, 0);
        assert_int_equal(l->rx_advertised, 0);
        if (freed)
            server.ops->link_free(l);
        assert_false(server.ops->rx_return(server.f, event.rx));
        if (!freed || server.f->rail[0]->srq) {
            assert_int_equal(q->posted, posted);
            assert_int_equal(q->held, 0);
            assert_int_equal(server.f->rail[0]->rx.nfree, unused + 1);
        }
        if (!freed)
            server.ops->link_free(l);
        client.ops->link_free(client.link);
    }
    connect_both(uri);
    fill();
    wire_disconnect(&client);
    close_both();
}

/* A device that refuses the default takes less: CTS with one segment is still posted inline. */
static void inline_size_is_the_largest_granted(void **state)
{
    const char *most = getenv("EMUVERBS_MAX_INLINE");
    (void)state;
    wire_open(&client, NULL);
    assert_int_equal(client.f->rail[0]->dev.max_inline, most != NULL ? atoi(most) : 256);
    wire_close(&client);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_cq_drops_its_messages),
        cmocka_unit_test(failed_srq_delivers_arrived_messages),
        cmocka_unit_test(release_after_link_end_is_ignored),
        cmocka_unit_test(inline_size_is_the_largest_granted),
    };
    wire_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
