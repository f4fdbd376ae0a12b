/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Peculiarities of links over Elan4: bootstrap by a queue's address, refusals, killed peers,
 * invalid packets, and leaving. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "bmi_elan4/nic.h"
#include "tests/elan4/scratch.h"
#include "tests/elan4/sides.h"
#include "tests/ports/ports.h"

/* A server without a TCP port logs its queue's address, by which clients connect. */
static void met_at_the_queue(void **state)
{
    struct side server, client;
    (void)state;
    unsetenv("BMI_ELAN4_SERVER_ADDR");
    open_pair(&server, &client, "", "");
    assert_int_equal(strncmp(ops->link_peer(server.link), "0:", 2), 0); /* the client's node */
    say(&client, "straight to the queue");
    until(&server, &client, RME_EV_RECV, 1);
    assert_string_equal(server.text, "straight to the queue");
    part(&client, &server);
    assert_int_equal(client.error, -ESHUTDOWN);
    assert_int_equal(server.error, -ECONNRESET);
    close_both(&client, &server);
}

/* Checks that connecting fails. `why`: a word of the reason, or NULL: no reason is given. */
static void refusal(struct side *server, const char *uri, const char *options, int error,
                    const char *why)
{
    struct side client;

    open_side(&client, NULL, options);
    dial(&client, uri);
    until(&client, server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, error);
    assert_int_equal(client.why != NULL, why != NULL);
    if (why != NULL)
        assert_non_null(strstr(client.why, why));
    close_side(&client);
}

static void refused_connections_name_their_cause(void **state)
{
    struct side server, other;
    char text[500];
    (void)state;
    unsetenv("BMI_ELAN4_SERVER_ADDR");
    open_side(&server, "elan4://0:2", "");
    refusal(&server, "elan4://0:2", "", -EHOSTUNREACH, "BMI_ELAN4_SERVER_ADDR");
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    refusal(&server, "elan4://0:2", "elan_key=another", -EPROTO, "different elan_key");
    refusal(&server, "elan4://99:2", "", -EHOSTUNREACH, "elan_nodes"); /* there are 64 */
    snprintf(text, sizeof(text), "0:8=no-such-host.invalid:1,0:9=0x40,%s", said);
    setenv("BMI_ELAN4_SERVER_ADDR", text, 1);
    refusal(&server, "elan4://0:9", "", -ECONNREFUSED, NULL); /* an unused context */
    refusal(&server, "elan4://0:8", "", -ENONET, "host no-such-host.invalid of elan_servers");
    /* a client does not accept connections, though it has a queue */
    open_side(&other, NULL, "");
    snprintf(text, sizeof(text), "0:3=0x%s", strchr(said, 'x') + 1);
    setenv("BMI_ELAN4_SERVER_ADDR", text, 1);
    dial(&other, "elan4://0:3");
    for (int i = 0; i < 1000; i++)
        poll_side(&other);
    close_side(&other);
    assert_int_equal(server.count[RME_EV_LINK_REQUEST], 0);
    close_side(&server);
}

/* Repeated requests to a missing process have one packet in flight. */
static void unanswered_requests_have_one_packet_in_flight(void **state)
{
    struct side client;
    (void)state;
    setenv("BMI_ELAN4_SERVER_ADDR", "1:2=0x1000000012340", 1);
    clock_stop();
    open_side(&client, NULL, "");
    for (int i = 0; i < 20; i++) {
        dial(&client, "elan4://1:2");
        ops->link_disconnect(client.link, -ETIMEDOUT); /* unless it is down already */
        until(&client, NULL, RME_EV_LINK_DOWN, i + 1);
        assert_int_equal(client.error, -ETIMEDOUT);
        assert_int_equal(client.f->norphans, 1);
        if (i == 0)
            clock_step(ELAN_ASK_MS + 100);
    }
    clock_run();
    close_side(&client);
}

/* An undelivered HELLO is accounted to that owner of the context. */
static void hello_knows_whom_it_greets(void **state)
{
    struct side server, client;
    (void)state;
    open_side(&server, "elan4://0:2", "");
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    open_side(&client, NULL, "");
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 1), 0);
    dial(&client, "elan4://0:2");
    assert_int_equal(client.f->norphans, 1);
    assert_true(list_first(&client.f->orphans, struct elan_dma, next)->to.generation ==
                server.f->nic->generation);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_LINK_UP, 1);
    until(&server, &client, RME_EV_LINK_UP, 1);
    part_and_close(&client, &server);
}

/* Opens a server with a bootstrap server but an unreachable queue, and a client that has begun
 * the handshake. */
static void open_apart(struct side *server, struct side *client)
{
    static int port;
    char where[60], options[80];

    if (!port)
        port = ports_take();
    assert_true(port > 0);
    snprintf(where, sizeof(where), "0:2=127.0.0.1:%d", port);
    snprintf(options, sizeof(options), "elan_servers=%s", where);
    open_side(server, "elan4://0:2", options);
    assert_int_equal(elan4_block_inputter(server->f->nic->ctx, 1), 0);
    open_side(client, NULL, options);
    dial(client, "elan4://0:2");
}

/* Returns whether a link asks a bootstrap server. */
static bool asks(const struct side *s)
{
    const struct rme_link *l;

    list_for_each(l, &s->f->links, all)
        if (l->call.fd >= 0)
            return true;
    return false;
}

/* Returns the number of links in a handshake with a server that was met by TCP. */
static int handshakes(const struct side *s)
{
    const struct rme_link *l;
    int n = 0;

    list_for_each(l, &s->f->links, all)
        n += l->state == ELAN_HANDSHAKE_STATE && l->pause;
    return n;
}

static void until_greeting(struct side *server, struct side *client)
{
    while (handshakes(client) == 0) {
        poll_side(client);
        poll_side(server);
    }
}

/* Lets time pass until the client's link is down; returns the time. The clock is stopped during
 * bootstrap queries, which take real time. */
static uint64_t until_down(struct side *client, struct side *server, int count)
{
    uint64_t passed = 0;

    while (client->count[RME_EV_LINK_DOWN] < count) {
        if (!asks(client)) {
            pass(client, 10);
            passed += 10;
        }
        for (int i = 0; i < 64; i++) {
            poll_side(client);
            poll_side(server);
        }
    }
    return passed;
}

/* The bootstrap server answers but the queue is unreachable: this is reported soon, after
 * retries with one packet in flight; once reachable the queue is used. */
static void no_way_to_the_queue(void **state)
{
    struct side server, client;
    (void)state;
    clock_stop();
    open_apart(&server, &client);
    for (int i = 1; i <= 3; i++) {
        uint64_t passed = until_down(&client, &server, i);
        assert_in_range(passed, i == 1 ? 3 * ELAN_ASK_MS - 1 : 2 * ELAN_ASK_MS - 1,
                        i == 1 ? 3 * ELAN_ASK_MS + 100 : 2 * ELAN_ASK_MS + 100);
        assert_int_equal(client.error, -EHOSTUNREACH);
        assert_non_null(strstr(client.why, "EMUELAN4_DIR"));
        assert_int_equal(client.f->norphans, 1);
        assert_int_equal(handshakes(&client), 0);
        dial(&client, "elan4://0:2");
    }
    until_greeting(&server, &client);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_LINK_UP, 1);
    assert_int_equal(handshakes(&client), 0);
    clock_run();
    part_and_close(&client, &server);
}

/* The bootstrap server of a stopped process does not answer, either: the client waits. */
static void stopped_server_keeps_client_waiting(void **state)
{
    struct side server, client;
    (void)state;
    clock_stop();
    open_apart(&server, &client);
    until_greeting(&server, &client);
    pass(&client, 3000);
    assert_int_equal(client.count[RME_EV_LINK_DOWN], 0);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    until(&client, &server, RME_EV_LINK_UP, 1);
    clock_run();
    part_and_close(&client, &server);
}

/* Without a descriptor for the query, or for reaching the server, the client does not wait. */
static void no_descriptor_to_ask_with(void **state)
{
    struct side server, client;
    struct rlimit before, few;
    int lowest;
    (void)state;
    clock_stop();
    open_apart(&server, &client);
    until_greeting(&server, &client);
    lowest = dup(0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){(rlim_t)lowest, before.rlim_max};
    close(lowest);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    until_down(&client, &server, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(client.error, -EMFILE);
    clock_run();
    close_both(&client, &server);
}

/* The server ends after its queue has accepted HELLO, or before; another process takes its
 * place. The client gets an error soon, not after the host's timeout. */
static void another_server_is_met(bool taken)
{
    struct side server, client;
    char options[80];

    open_apart(&server, &client);
    until_greeting(&server, &client);
    if (taken)
        assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    while (taken && client.f->norphans)
        poll_side(&client);
    assert_int_equal(handshakes(&client), 1);
    snprintf(options, sizeof(options), "elan_servers=%s",
             rme_option_string(server.options, "elan_servers"));
    close_side(&server);
    open_side(&server, "elan4://0:2", options);
    until(&client, &server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -ECONNREFUSED);
    dial(&client, "elan4://0:2");
    until(&client, &server, RME_EV_LINK_UP, 1);
    part_and_close(&client, &server);
}

static void another_server_is_there(void **state)
{
    (void)state;
    another_server_is_met(false);
}

static void another_server_after_a_request(void **state)
{
    (void)state;
    another_server_is_met(true);
}

/* Opens a client of that node, which connects. `up`: waits for its link, else until the
 * server's queue has its request. `says`: generation that it claims, or 0 for its own. */
static void open_at(const char *node, struct side *client, bool up, uint64_t says)
{
    setenv("EMUELAN4_NODE", node, 1);
    open_side(client, NULL, "");
    unsetenv("EMUELAN4_NODE");
    if (says)
        client->f->conn_info.generation = client->f->nic->generation = says;
    dial(client, "elan4://0:2");
    if (up)
        until(client, NULL, RME_EV_LINK_UP, 1);
    while (client->f->norphans)
        poll_side(client);
}

/* Does the same in a process that is then killed. */
static void die_at(const char *node, struct side *server, bool up, uint64_t says)
{
    struct side client;
    pid_t pid = fork_quietly();
    int st;

    assert_true(pid >= 0);
    if (pid == 0) {
        open_at(node, &client, up, says);
        kill(getpid(), SIGKILL);
    }
    if (up)
        until(server, NULL, RME_EV_LINK_UP, 1);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
}

/* A client of another node is killed when nothing is in flight to it, or before the server has
 * polled its request. The next owner of its context proves its death by connecting. */
static void a_client_has_a_successor(bool up, uint64_t says)
{
    struct side server, client;

    open_side(&server, "elan4://0:2", "elan_dead_ms=3600000");
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    die_at("1", &server, up, says);
    while (!list_empty(&server.f->sending))
        poll_side(&server);
    open_at("1", &client, false, 0); /* in the same context */
    until(&client, &server, RME_EV_LINK_UP, 1);
    clock_stop(); /* without a timeout */
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    clock_run();
    assert_int_equal(server.error, -ECONNRESET);
    until(&server, &client, RME_EV_LINK_UP, up ? 2 : 1);
    assert_string_equal(ops->link_peer(server.link), "1:3");
    say(&server, "of this one");
    until(&client, &server, RME_EV_RECV, 1);
    assert_string_equal(client.text, "of this one");
    /* not this generation itself */
    elan_see(server.f, &server.link->peer);
    assert_false(server.f->died);
    assert_int_equal(server.count[RME_EV_LINK_DOWN], 1);
    assert_true(server.f->account[server.link->peer.vp].generation ==
                client.f->nic->generation);
    part_and_close(&client, &server);
}

/* A client of another node is killed when everything is delivered and the host cannot send to
 * it: a probe detects this. A live client is not affected by probes. */
static void probe_detects_death_of_idle_client(void **state)
{
    struct side server, client;
    struct rme_link *dead;

    (void)state;
    open_side(&server, "elan4://0:2", "");
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    die_at("1", &server, true, 0);
    dead = server.link;
    open_client(&client, &server, "");
    clock_stop();
    ops->link_probe(server.link);
    say(&server, "in order");
    until(&client, &server, RME_EV_RECV, 1);
    while (!list_empty(&server.f->sending))
        poll_side(&server);
    while (!server.count[RME_EV_LINK_DOWN]) {
        ops->link_probe(dead); /* its death may be noticed a moment later */
        poll_side(&server);
        clock_step(10);
    }
    clock_run();
    assert_int_equal(server.error, -ETIMEDOUT);
    part_and_close(&client, &server);
}

static void idle_client_has_successor(void **state)
{
    (void)state;
    a_client_has_a_successor(true, 0);
}

static void requesting_client_has_successor(void **state)
{
    (void)state;
    a_client_has_a_successor(false, 0);
}

/* A process's false generation does not harm the next owner of its context. */
static void successor_of_a_liar_has_its_place(void **state)
{
    (void)state;
    a_client_has_a_successor(true, UINT64_MAX);
}

/* Any process may write to the queue: invalid packets are dropped or end a link, and other
 * links stay. */
static void invalid_packets_end_one_link(void **state)
{
    struct side server, client;
    uint64_t random = 88172645463325252u;
    uint8_t out[128];
    (void)state;
    open_pair(&server, &client, "", "");
    for (int i = 0; i < 3000; i++) {
        for (int k = 0; k < 128; k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            out[k] = (uint8_t)random;
        }
        struct elan_packet p;
        out[0] = 0xb1;
        out[1] = (uint8_t)(out[1] % ELAN_KIND_COUNT);
        out[3] = 0;
        if (elan_packet_decode(out, &p) == 0 && i % 2) { /* some that look like the client's */
            p.link = 4096u | (uint32_t)(random & 3);
            p.from = 1 + (uint32_t)(random >> 5 & 1);
            p.seq &= 63;
            elan_packet_encode(&p, out);
        }
        forge(&server, out, sizeof(out));
    }
    say(&client, "still here");
    until(&server, &client, RME_EV_RECV, 1);
    assert_string_equal(server.text, "still here");
    part_and_close(&client, &server);
}

/* A peer that names more bytes than a receive buffer has loses its link at once. */
static void message_larger_than_its_buffer_ends_link(void **state)
{
    static const uint32_t beyond[] = {0, 1, UINT32_MAX / 2};
    struct side server, client;
    (void)state;
    for (int i = 0; i < 3; i++) {
        open_pair(&server, &client, "", "");
        uint32_t most = server.f->config.rx_size;
        struct elan_tx *tx = elan_tx_of(client.link, ops->tx_get(client.link), i ? 1 : most);
        tx->arg = most + beyond[i];
        elan_tx_queue(client.link, tx);
        ops->flush(client.f);
        until(&server, &client, i ? RME_EV_LINK_DOWN : RME_EV_RECV, 1);
        assert_int_equal(server.error, i ? -EPROTO : 0);
        close_side(&client);
        close_side(&server);
    }
}

/* A range of one context has none for clients; 1024 is beyond the log's table. */
static void no_context_for_clients(void **state)
{
    struct bmi_elan4_nic_config config = {.range = {0, 63, 1023, 1023},
                                          .folder = folder,
                                          .context = BMI_ELAN4_CLIENT,
                                          .main_bytes = 1 << 20,
                                          .sdram_bytes = 1 << 16};
    struct bmi_elan4_nic *nic;
    char why[300] = "";
    (void)state;
    assert_int_equal(bmi_elan4_nic_open(&config, &nic, why, sizeof(why)), -EINVAL);
    assert_non_null(strstr(why, "elan_contexts=1023-1023"));
}

/* A wait for a buffer of an up link is polled each millisecond. On a link that ends, or is down
 * before this is reported, no wait is possible. */
static void ending_link_gives_no_buffer(void **state)
{
    struct side server, client;
    (void)state;
    open_pair(&server, &client, "", "elan_tx_buffers=64");
    while (ops->tx_get(client.link) != NULL)
        ;
    assert_false(list_empty(&client.f->wanting));
    ops->link_disconnect(client.link, -ESHUTDOWN);
    assert_true(list_empty(&client.f->wanting));
    assert_null(ops->tx_get(client.link));
    assert_true(list_empty(&client.f->wanting));
    elan_link_dead(server.link); /* like a probe, outside of a poll */
    assert_null(ops->tx_get(server.link));
    assert_true(list_empty(&server.f->wanting));
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_true(list_empty(&server.f->wanting));
    close_both(&client, &server);
}

/* ---- Sleeping ---- */

/* Another thread posts during a sleep without a timeout, and its packet is not sent at once for
 * lack of packets in flight or of the link's buffers. Only polling detects their delivery. */
static void delayed_packet_ends_sleep(void **state)
{
    const char *options[] = {"", "elan_tx_buffers=64"};
    struct side server, client;
    char *tx;
    (void)state;
    for (int few = 0; few < 2; few++) {
        open_pair(&server, &client, "", options[few]);
        for (int quiet = 0; quiet < 10; quiet = ops->deadline(client.f) < 0 ? quiet + 1 : 0) {
            poll_side(&server);
            poll_side(&client);
        }
        assert_int_equal(ops->arm(client.f), 0);
        poll_side(&client);
        int i;
        for (i = 0; i < 25 && (tx = ops->tx_get(client.link)) != NULL; i++) {
            strcpy(tx, "many");
            ops->tx_send(client.link, tx, 4096);
            ops->flush(client.f);
        }
        assert_int_equal(list_empty(&client.f->dirty), few);
        assert_int_equal(list_empty(&client.f->wanting), !few);
        alarm(PATIENCE_MS / 1000); /* nothing else ends the sleep */
        ops->wait(client.f, -1);
        alarm(0);
        until(&server, &client, RME_EV_RECV, i);
        until(&client, &server, RME_EV_TX_ROOM, few);
        part(&client, &server);
        close_side(&client);
        close_side(&server);
    }
}

/* ---- Leaving ---- */

static unsigned slept; /* before leaving began */

/* Accepts packets again after the leaving side has polled for their delivery a few times. */
static void *listen_again(void *arg)
{
    struct side *server = arg;

    while (clock_sleeps() - slept < 3)
        usleep(1000);
    return elan4_block_inputter(server->f->nic->ctx, 0) == 0 ? NULL : arg;
}

/* A leaving process stays until the peer's interface has its LEFT, because undelivered packets
 * end with the context. */
static void who_leaves_is_heard(bool in_order)
{
    struct side server, client;
    pthread_t thread;
    void *failed;

    open_pair(&server, &client, "", "elan_quarantine_ms=0");
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 1), 0);
    if (in_order) {
        ops->link_disconnect(client.link, -ESHUTDOWN);
        until(&client, NULL, RME_EV_LINK_DOWN, 1);
    }
    clock_stop(); /* stays for as long as that takes */
    slept = clock_sleeps();
    assert_int_equal(pthread_create(&thread, NULL, listen_again, &server), 0);
    close_side(&client);
    clock_run();
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    until(&server, NULL, RME_EV_LINK_DOWN, 1);
    assert_int_equal(server.error, -ECONNRESET);
    close_side(&server);
}

static void disconnected_link_sends_bye(void **state)
{
    (void)state;
    who_leaves_is_heard(true);
}

/* Also with links that were not ended. */
static void closed_engine_sends_bye(void **state)
{
    (void)state;
    who_leaves_is_heard(false);
}

/* With as many links as packets without a link may wait for a process. */
static void many_links_send_bye(void **state)
{
    enum { LINKS = 16 };
    struct side server, client;
    (void)state;
    open_side(&server, "elan4://0:2", "elan_tx_buffers=64");
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    open_side(&client, NULL, "elan_quarantine_ms=10");
    for (int i = 1; i <= LINKS; i++) {
        dial(&client, "elan4://0:2");
        until(&client, &server, RME_EV_LINK_UP, i);
        until(&server, &client, RME_EV_LINK_UP, i);
    }
    while (server.f->norphans || server.f->polls % 64 != 5)
        poll_side(&server);
    clock_stop(); /* leaves when all have been notified, not by a timeout */
    close_side(&server);
    clock_run();
    until(&client, NULL, RME_EV_LINK_DOWN, LINKS);
    close_side(&client);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(met_at_the_queue),
        cmocka_unit_test(refused_connections_name_their_cause),
        cmocka_unit_test(unanswered_requests_have_one_packet_in_flight),
        cmocka_unit_test(hello_knows_whom_it_greets),
        cmocka_unit_test(no_way_to_the_queue),
        cmocka_unit_test(no_descriptor_to_ask_with),
        cmocka_unit_test(stopped_server_keeps_client_waiting),
        cmocka_unit_test(another_server_is_there),
        cmocka_unit_test(another_server_after_a_request),
        cmocka_unit_test(probe_detects_death_of_idle_client),
        cmocka_unit_test(idle_client_has_successor),
        cmocka_unit_test(requesting_client_has_successor),
        cmocka_unit_test(successor_of_a_liar_has_its_place),
        cmocka_unit_test(invalid_packets_end_one_link),
        cmocka_unit_test(message_larger_than_its_buffer_ends_link),
        cmocka_unit_test(no_context_for_clients),
        cmocka_unit_test(ending_link_gives_no_buffer),
        cmocka_unit_test(delayed_packet_ends_sleep),
        cmocka_unit_test(disconnected_link_sends_bye),
        cmocka_unit_test(closed_engine_sends_bye),
        cmocka_unit_test(many_links_send_bye),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
