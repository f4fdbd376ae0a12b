/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The verbs fabric over a device, between processes: addresses, long lists, load, death of a
 * peer at many moments. tests/conformance tests the contract of fabric.h; this program tests
 * what needs processes and verbs. The argument has options of the fabric
 * ("srq=on,max_inline=0").
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include "bmi_ib/ib.h"
#include "wire_host.h"

static void connect_by_each_address_form(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "[::1]", "localhost"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct wire w;
        const char *uri = wire_uri(hosts[i]);
        pid_t server = wire_server(uri, 4096);
        wire_open(&w, NULL);
        wire_connect(&w, uri);
        assert_int_equal(w.offer.size, 4096);
        assert_true(wire_send(&w, "echo this"));
        wire_until(&w, RME_EV_RECV, 1);
        assert_string_equal(wire_event(&w, RME_EV_RECV, 0)->text, "echo this");
        wire_disconnect(&w);
        wire_close(&w);
        wire_kill(server);
    }
}

/* An invalid name, and a port without a listener: LINK_DOWN reports both, and the call itself
 * returns at once. */
static void connect_without_listener_fails(void **state)
{
    struct wire w;
    (void)state;
    wire_open(&w, NULL);
    struct rme_link *link = wire_dial(&w, "ib://no-such-host.invalid:20500");
    wire_until(&w, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, 0)->error, -ENONET);
    assert_string_equal(wire_event(&w, RME_EV_LINK_DOWN, 0)->why, ""); /* logged before */
    w.ops->link_free(link);
    w.nseen = 0;
    link = wire_dial(&w, wire_uri("localhost")); /* every address of the name refuses */
    wire_until(&w, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, 0)->error, -ECONNREFUSED);
    assert_non_null(strstr(wire_event(&w, RME_EV_LINK_DOWN, 0)->why, "by RDMA"));
    w.ops->link_free(link);
    wire_close(&w);
}

/* 64 pieces of 64 bytes and more to and from scattered places, with as many SGEs as the device
 * has. */
static void list_of_any_length_arrives(void **state)
{
    enum { PIECES = 64, SEGMENT = 61, SIZE = 1 << 20 };
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, SIZE);
    uint8_t *here = malloc(SIZE), *pattern = malloc(SIZE), *back = calloc(1, SIZE);
    struct rme_mr mr, back_mr;
    (void)state;
    wire_open(&w, NULL);
    wire_connect(&w, uri);
    wire_fill(pattern, SIZE, 5);
    wire_fill(here, SIZE, 9);
    assert_int_equal(w.ops->reg(w.f, here, SIZE, RME_ACCESS_LOCAL_WRITE, &mr), 0);
    assert_int_equal(w.ops->reg(w.f, back, SIZE, RME_ACCESS_LOCAL_WRITE, &back_mr), 0);

    uint32_t nseg = w.ops->caps(w.f)->max_read_sge;
    struct rme_sge *seg = calloc(PIECES * nseg, sizeof(*seg));
    struct rme_rdma_seg piece[PIECES];
    uint64_t each = (uint64_t)nseg * SEGMENT;
    for (uint32_t i = 0; i < PIECES; i++) {
        for (uint32_t s = 0; s < nseg; s++)
            seg[i * nseg + s] =
                (struct rme_sge){here + (i * nseg + s) * (SEGMENT + 7), SEGMENT, mr.lkey};
        piece[i] =
            (struct rme_rdma_seg){w.offer.base + 1001 * i, w.offer.rkey, &seg[i * nseg], nseg};
    }
    struct rme_rdma_op read = {
        .read = true, .piece = piece, .npiece = PIECES, .bytes = PIECES * each};
    w.ops->rdma_op(w.link, &read);
    w.ops->flush(w.f);
    wire_until(&w, RME_EV_RDMA_DONE, 1);
    for (uint32_t i = 0; i < PIECES; i++)
        for (uint32_t s = 0; s < nseg; s++)
            assert_memory_equal(seg[i * nseg + s].base, pattern + 1001 * i + s * SEGMENT,
                                SEGMENT);

    /* write the data elsewhere, and read it back in one piece */
    for (uint32_t i = 0; i < PIECES; i++)
        piece[i].raddr = w.offer.base + SIZE / 2 + each * i;
    char *tx = w.ops->tx_get(w.link);
    strcpy(tx, "written");
    struct rme_rdma_op write = {.notify = RME_NOTIFY_MSG,
                                .tx = tx,
                                .tx_length = 8,
                                .piece = piece,
                                .npiece = PIECES,
                                .bytes = PIECES * each};
    struct rme_sge whole = {back, PIECES * each, back_mr.lkey};
    struct rme_rdma_seg one = {w.offer.base + SIZE / 2, w.offer.rkey, &whole, 1};
    struct rme_rdma_op again = {
        .read = true, .notify = RME_NOTIFY_NONE, .piece = &one, .npiece = 1};
    w.ops->rdma_op(w.link, &write);
    wire_until(&w, RME_EV_RECV, 1); /* the echo */
    w.ops->rdma_op(w.link, &again);
    wire_until(&w, RME_EV_RDMA_DONE, 3);
    for (uint32_t i = 0; i < PIECES * nseg; i++)
        assert_memory_equal(back + i * SEGMENT, seg[i].base, SEGMENT);
    wire_disconnect(&w);
    w.ops->dereg(w.f, &mr);
    w.ops->dereg(w.f, &back_mr);
    wire_close(&w);
    wire_kill(server);
    free(seg);
    free(here);
    free(pattern);
    free(back);
}

/* Registered local memory for the following loads. */
struct pressure {
    uint8_t data[64 * 64];
    struct rme_mr mr;
    struct rme_sge seg[64];
    struct rme_rdma_seg piece[64];
    struct rme_rdma_op x[512];
};

static struct pressure *pressure_open(struct wire *w)
{
    struct pressure *p = calloc(1, sizeof(*p));
    assert_int_equal(
        w->ops->reg(w->f, p->data, sizeof(p->data), RME_ACCESS_LOCAL_WRITE, &p->mr), 0);
    return p;
}

/* Posts transfer number n: 64 pieces of 64 bytes, every third a read. */
static void press(struct wire *w, struct pressure *p, int n)
{
    for (int i = 0; i < 64; i++) {
        p->seg[i] = (struct rme_sge){p->data + 64 * i, 64, p->mr.lkey};
        p->piece[i] = (struct rme_rdma_seg){w->offer.base + 128 * (uint64_t)i, w->offer.rkey,
                                            &p->seg[i], 1};
    }
    p->x[n] = (struct rme_rdma_op){
        .read = n % 3 == 2, .piece = p->piece, .npiece = 64, .bytes = 64 * 64};
    w->ops->rdma_op(w->link, &p->x[n]);
}

static void pressure_close(struct wire *w, struct pressure *p)
{
    w->ops->dereg(w->f, &p->mr);
    free(p);
}

/* Far more requests than the queues hold, between messages whose echoes come in order. */
static void pressure_on_the_queue(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, 1 << 16);
    char text[32];
    (void)state;
    wire_open(&w, NULL);
    wire_connect(&w, uri);
    struct pressure *p = pressure_open(&w);
    int sent = 0;
    for (int n = 0; n < 512; n++) {
        press(&w, p, n);
        snprintf(text, sizeof(text), "message %d", sent);
        if (sent - wire_count(&w, RME_EV_RECV) < WIRE_RX / 2 && wire_send(&w, text))
            sent++;
        if (n % 10 == 0)
            wire_poll(&w);
    }
    wire_until(&w, RME_EV_RDMA_DONE, 512);
    wire_until(&w, RME_EV_RECV, sent);
    for (int i = 0; i < sent; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        assert_string_equal(wire_event(&w, RME_EV_RECV, i)->text, text);
    }
    assert_int_equal(wire_count(&w, RME_EV_LINK_DOWN), 0);
    wire_disconnect(&w);
    pressure_close(&w, p);
    wire_close(&w);
    wire_kill(server);
}

/* The server is killed at many moments of a load: one LINK_DOWN, all buffers return, and its
 * successor is reachable. */
static void server_killed(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    (void)state;
    wire_open(&w, NULL);
    struct pressure *p = pressure_open(&w);
    for (int moment = 0; moment < 12; moment++) {
        pid_t server = wire_server(uri, 1 << 16);
        wire_connect(&w, uri);
        for (int n = 0; n < 64; n++) {
            if (n == moment * 5)
                wire_kill(server);
            press(&w, p, n);
            wire_send(&w, "in flight");
            if (n % 4 == 3)
                wire_poll(&w);
        }
        wire_until(&w, RME_EV_LINK_DOWN, 1);
        for (int i = 0; i < 1000; i++)
            wire_poll(&w);
        assert_int_equal(wire_count(&w, RME_EV_LINK_DOWN), 1);
        assert_true(wire_event(&w, RME_EV_LINK_DOWN, 0)->error < 0);
        w.ops->link_free(w.link);
    }
    pid_t server = wire_server(uri, 1 << 16);
    wire_connect(&w, uri);
    void *tx[4096];
    int n = 0;
    while (n < 4096 && (tx[n] = w.ops->tx_get(w.link))) /* as many as one link may hold */
        n++;
    assert_int_equal(n, w.f->rail[0]->tx.per_link);
    while (n--)
        w.ops->tx_put(w.link, tx[n]);
    wire_disconnect(&w);
    pressure_close(&w, p);
    wire_close(&w);
    wire_kill(server);
}

/* Clients are killed: the server loses each link, and serves the next client. */
static void clients_killed(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    (void)state;
    wire_open(&w, uri);
    w.echo = true;
    for (int i = 0; i < 8; i++) {
        w.nseen = 0;
        pid_t client = wire_client(uri);
        wire_until(&w, RME_EV_RECV, 1);
        assert_int_equal(wire_count(&w, RME_EV_LINK_UP), 1);
        wire_kill(client);
        wire_until(&w, RME_EV_LINK_DOWN, 1);
        w.ops->link_free(w.link);
    }
    wire_close(&w);
}

/* A stopped peer does not answer: ending the link does not wait for it. */
static void silent_peer(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, 1 << 16);
    (void)state;
    wire_open(&w, NULL);
    wire_connect(&w, uri);
    kill(server, SIGSTOP);
    for (int i = 0; i < 10; i++)
        wire_send(&w, "anybody?");
    wire_poll(&w);
    wire_disconnect(&w);
    w.nseen = 0;
    struct rme_link *link = wire_dial(&w, uri);
    for (int i = 0; i < 1000; i++)
        wire_poll(&w);
    w.ops->link_disconnect(link, -ETIMEDOUT);
    wire_until(&w, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, 0)->error, -ETIMEDOUT);
    w.ops->link_free(link);
    wire_close(&w);
    wire_kill(server);
}

/* The active side gives up after any number of steps; the server continues. */
static void given_up_in_every_state(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, 4096);
    (void)state;
    wire_open(&w, NULL);
    for (int steps = 0; steps < 60; steps++) {
        w.nseen = 0;
        struct rme_link *link = wire_dial(&w, uri);
        for (int i = 0; i < steps * steps / 4; i++)
            wire_poll(&w);
        w.ops->link_disconnect(link, -ECANCELED);
        wire_until(&w, RME_EV_LINK_DOWN, 1);
        assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, 0)->error, -ECANCELED);
        w.ops->link_free(link);
    }
    wire_connect(&w, uri);
    assert_true(wire_send(&w, "still there?"));
    wire_until(&w, RME_EV_RECV, 1);
    wire_disconnect(&w);
    wire_close(&w);
    wire_kill(server);
    int status;
    assert_int_equal(waitpid(server, &status, WNOHANG), -1); /* wire_kill has reaped it */
}

/* Listening on a used address, and on a foreign one, fails with the reason and leaves nothing
 * behind. */
static void listening_fails(void **state)
{
    struct wire w;
    struct rme_fabric *second = NULL;
    const char *uri = wire_uri("127.0.0.1");
    (void)state;
    wire_open(&w, uri);
    assert_int_equal(wire_try(&w, w.listen, &second), -EADDRINUSE);
    struct rme_addr *foreign;
    assert_int_equal(rme_addr_parse("ib", "ib://192.0.2.77:20999", &foreign), 0);
    int error = wire_try(&w, foreign, &second);
    assert_true(error == -EADDRNOTAVAIL || error == -ENODEV);
    assert_null(second);
    rme_addr_put(foreign);
    wire_close(&w);
}

static bool connect_to(struct wire *w, const char *uri)
{
    wire_open(w, NULL);
    wire_connect(w, uri);
    return w->link != NULL;
}

/* A peer uses up receives promised to others: these wait until receives are posted again, and
 * no link is lost. */
static void others_wait_for_receives(void **state)
{
    struct wire greedy, modest;
    const char *uri = wire_uri("127.0.0.1"), *before = wire_options;
    char options[256];
    (void)state;
    snprintf(options, sizeof(options), "%s%srnr_retry=7", before ? before : "",
             before && *before ? "," : "");
    wire_options = options;
    pid_t server = wire_server(uri, 4096);
    assert_true(connect_to(&greedy, uri) && connect_to(&modest, uri));
    kill(server, SIGSTOP);
    int sent = 0;
    while (sent < 4 * WIRE_RX &&
           wire_send(&greedy, "not granted")) /* twice the number promised to both */
        sent++;
    wire_poll(&greedy);
    for (int i = 0; i < 20; i++)
        assert_true(wire_send(&modest, "granted"));
    for (int i = 0; i < 1000; i++) { /* both get RNR */
        wire_poll(&greedy);
        wire_poll(&modest);
    }
    kill(server, SIGCONT);
    wire_until(&modest, RME_EV_RECV, 20);
    assert_int_equal(wire_count(&modest, RME_EV_LINK_DOWN), 0);
    wire_until(&greedy, RME_EV_RECV, sent);
    wire_disconnect(&modest);
    wire_disconnect(&greedy);
    wire_close(&modest);
    wire_close(&greedy);
    wire_kill(server);
    wire_options = before;
}

/* ---- Peers that receive nothing ---- */

static void cm_event(struct wire *w, struct rdma_event_channel *channel,
                     enum rdma_cm_event_type type)
{
    struct rdma_cm_event *e;
    time_t end = wire_now() + PATIENCE_S;
    while (rdma_get_cm_event(channel, &e)) {
        assert_true(wire_now() < end);
        wire_poll(w);
    }
    assert_int_equal(e->event, type);
    rdma_ack_cm_event(e);
}

/* Connects a peer that posts no receives, and sets unlimited RNR retries. The server is in this
 * process. */
static struct rdma_cm_id *mute_peer(struct wire *w, struct rdma_event_channel *channel,
                                    const char *uri)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    char host[64];
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_conn_param param = {
        .private_data = "hello", .private_data_len = 6, .retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *id;
    assert_int_equal(sscanf(uri, "ib://%63[^:]:%hu", host, &to.sin_port), 2);
    to.sin_port = htons(to.sin_port);
    assert_int_equal(inet_pton(AF_INET, host, &to.sin_addr), 1);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), 0);
    cm_event(w, channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    cm_event(w, channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
    assert_int_equal(rdma_connect(id, &param), 0);
    w->nseen = 0;
    cm_event(w, channel, RDMA_CM_EVENT_ESTABLISHED);
    wire_until(w, RME_EV_LINK_UP, 1);
    return id;
}

/* Unresponsive peers hold all send buffers: their links end one after the other, until another
 * peer that waits gets a buffer. */
static void mute_peers_do_not_keep_all(void **state)
{
    enum { MUTE = 15 }; /* seven of them with 8 buffers, the others with one */
    struct wire w;
    struct rdma_cm_id *id[MUTE];
    const char *uri = wire_uri("127.0.0.1");
    struct rdma_event_channel *channel = rdma_create_event_channel();
    void *tx;
    (void)state;
    assert_non_null(channel);
    assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    wire_open(&w, uri);
    w.f->rail[0]->tx.max = 64;
    w.f->rail[0]->tx.per_link = 8;
    w.f->rail[0]->tx.stuck_ms = 400;
    for (int i = 0; i < MUTE; i++) {
        id[i] = mute_peer(&w, channel, uri);
        for (int n = 0; n < (i < 7 ? 9 : 1) && (tx = w.ops->tx_get(w.link)); n++)
            w.ops->tx_send(w.link, memset(tx, 'x', 300), 300);
        w.ops->flush(w.f);
    }
    w.nseen = 0;
    pid_t good = wire_client(uri);
    wire_until(&w, RME_EV_RECV, 1);
    assert_int_equal(wire_count(&w, RME_EV_LINK_UP), 1);
    struct rme_link *link = w.link;
    w.nseen = 0;
    assert_null(w.ops->tx_get(link));
    wire_until(&w, RME_EV_TX_ROOM, 1);
    assert_ptr_equal(wire_event(&w, RME_EV_TX_ROOM, 0)->link, link);
    for (int i = 0; i < wire_count(&w, RME_EV_LINK_DOWN); i++)
        assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, i)->error, -ETIMEDOUT);
    tx = w.ops->tx_get(link);
    assert_non_null(tx);
    w.ops->tx_put(link, tx);
    wire_kill(good);
    wire_close(&w);
    for (int i = 0; i < MUTE; i++) {
        rdma_destroy_qp(id[i]);
        rdma_destroy_id(id[i]);
    }
    rdma_destroy_event_channel(channel);
}

/* A process that runs out of descriptors gets that error, not "no device": a host continues
 * without a network only if its device is missing. */
static void no_descriptor(void **state)
{
    struct rlimit limit, few;
    int least = dup(0), error = -EMFILE, tries = 0;
    (void)state;
    assert_true(least >= 0);
    close(least);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    for (few.rlim_cur = (rlim_t)least; error; few.rlim_cur++, tries++) {
        struct wire w;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        error = wire_start(&w, NULL);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_true(error == 0 || error == -EMFILE);
        wire_stop(&w);
    }
    assert_true(tries > 2); /* two are needed before the devices are opened */
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptor), /* first: the software device is opened once */
        cmocka_unit_test(connect_by_each_address_form),
        cmocka_unit_test(connect_without_listener_fails),
        cmocka_unit_test(list_of_any_length_arrives),
        cmocka_unit_test(pressure_on_the_queue),
        cmocka_unit_test(server_killed),
        cmocka_unit_test(clients_killed),
        cmocka_unit_test(silent_peer),
        cmocka_unit_test(given_up_in_every_state),
        cmocka_unit_test(listening_fails),
        cmocka_unit_test(others_wait_for_receives),
        cmocka_unit_test(mute_peers_do_not_keep_all),
    };
    wire_main(argc, argv);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
