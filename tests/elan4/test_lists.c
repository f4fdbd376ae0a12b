/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A list posted as one operation, as by OrangeFS with up to 64 pieces and 256 KiB, is one
 * transfer, on either side and for either initiator.  One event counts all DMAs and sends one
 * notification; another event sends the initiator's packet to itself.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bmi_elan4/elan.h"
#include "rme.h"
#include "tests/elan4/scratch.h"
#include "tests/elan4/sides.h"
#include "tests/ports/ports.h"

enum { BYTES = 256 << 10, MOST = 64, TAG = 7, WARM = 20, COUNTED = 3 };

struct end {
    struct rme *rme;
    struct rme_addr *listen, *peer;
};

static uint8_t here[2 * BYTES], there[2 * BYTES];

static void open_end(struct end *e, const char *listen, const char *options)
{
    e->listen = NULL;
    if (listen != NULL)
        assert_int_equal(rme_addr_parse("elan4", listen, &e->listen), 0);
    struct rme_config config = {
        .fabric = bmi_elan4_fabric(), .listen = e->listen, .options = options};
    assert_int_equal(rme_open(&config, &e->rme), 0);
    assert_int_equal(rme_context_open(e->rme, 0), 0);
}

static void *close_end(void *arg)
{
    struct end *e = arg;

    rme_addr_free(e->peer);
    rme_close(e->rme);
    if (e->listen != NULL)
        rme_addr_free(e->listen);
    return NULL;
}

/* Polls both ends until `count` operations of `bytes` are complete and the message, if any, has
 * arrived. */
static void progress(struct end *a, struct end *b, int count, int64_t bytes,
                     struct rme_unexpected *message)
{
    struct end *ends[] = {a, b};

    for (int i = 0; count > 0 || message != NULL; i++) {
        struct rme_done done;
        if (rme_test_context(ends[i % 2]->rme, 0, &done, 1, 0) == 1) {
            assert_int_equal(done.error, 0);
            assert_int_equal(done.actual, bytes);
            count--;
        }
        if (message != NULL && rme_test_unexpected(b->rme, message, 1, 0) == 1)
            message = NULL;
    }
}

static void meet(struct end *client, struct end *server)
{
    struct rme_list none = {0};
    struct rme_unexpected first;
    rme_id id;

    assert_int_equal(rme_addr_parse("elan4", "elan4://0:2", &client->peer), 0);
    int sent = rme_post_unexpected(client->rme, client->peer, &none, TAG, 0, NULL, &id);
    assert_in_range(sent, 0, 1);
    progress(client, server, 1 - sent, 0, &first);
    server->peer = first.addr;
    assert_int_equal(rme_unexpected_free(server->rme, first.buffer), 0);
}

/* Returns `n` pieces, with gaps of the length of a piece. */
static struct rme_list list_of(uint8_t *memory, int n, void **base, int64_t *length)
{
    for (int i = 0; i < n; i++) {
        base[i] = memory + (size_t)i * 2 * (size_t)(BYTES / n);
        length[i] = BYTES / n;
    }
    return (struct rme_list){base, length, n};
}

/* Sends one message from `sent` pieces into `received` pieces and compares the data. */
static void one_message(struct end *from, struct end *to, int sent, int received)
{
    void *out[MOST], *in[MOST];
    int64_t out_length[MOST], in_length[MOST];
    struct rme_list send = list_of(here, sent, out, out_length),
                    receive = list_of(there, received, in, in_length);
    rme_id id;

    memset(there, 0, sizeof(there));
    assert_int_equal(rme_post_recv(to->rme, to->peer, &receive, TAG, 0, NULL, NULL, &id), 0);
    assert_int_equal(rme_post_send(from->rme, from->peer, &send, TAG, 0, NULL, &id), 0);
    progress(from, to, 2, BYTES, NULL);
    int n = sent > received ? sent : received;
    for (int i = 0; i < n; i++) {
        int at = i * (BYTES / n), each_sent = BYTES / sent, each_received = BYTES / received;
        assert_memory_equal((uint8_t *)in[at / each_received] + at % each_received,
                            (uint8_t *)out[at / each_sent] + at % each_sent, BYTES / n);
    }
}

/* `packets`: packets per message, including the initiator's packet to itself. */
static void counted(struct end *from, struct end *to, int sent, int received, int packets)
{
    for (int i = 0; i < WARM; i++)
        one_message(from, to, sent, received);
    int64_t dmas = counter("dma_write"), queued = counter("dma_queue"),
            chained = counter("port_commands"), interrupts = counter("interrupts");
    for (int i = 0; i < COUNTED; i++)
        one_message(from, to, sent, received);
    assert_int_equal(counter("dma_write") - dmas,
                     COUNTED * (sent > received ? sent : received));
    assert_int_equal(counter("dma_queue") - queued, COUNTED * packets);
    /* two events, each of which runs one DMA command and one that fills up its block */
    assert_int_equal(counter("port_commands") - chained, COUNTED * 4);
    assert_int_equal(counter("interrupts") - interrupts, 0); /* no thread sleeps */
}

static void operations(const char *rndv, int packets)
{
    static const int pieces[] = {2, 16, MOST};
    char options[300], log[400];
    struct end client, server;
    pthread_t closes;

    snprintf(options, sizeof(options),
             "elan_servers=0:2=127.0.0.1:%d,list_mode=group,early_cts=0,rndv=%s,"
             "keepalive_ms=0",
             ports_take(), rndv);
    snprintf(log, sizeof(log), "%s/log", folder);
    assert_int_equal(setenv("BMI_ELAN4_LOG", log, 1), 0);
    open_end(&server, "elan4://0:2", options);
    open_end(&client, NULL, options);
    meet(&client, &server);
    for (size_t i = 0; i < sizeof(here); i++)
        here[i] = (uint8_t)(i * 2654435761u >> 24);
    for (int i = 0; i < 3; i++) {
        counted(&client, &server, pieces[i], 1, packets);
        counted(&server, &client, 1, pieces[i], packets);
    }
    assert_int_equal(pthread_create(&closes, NULL, close_end, &server), 0);
    close_end(&client); /* needs the other end to answer */
    assert_int_equal(pthread_join(closes, NULL), 0);
}

/* RTS, CTS, the notification, and the initiator's packet to itself. */
static void written_list_takes_one_notification(void **state)
{
    (void)state;
    operations("write", 4);
}

/* RTS, the notification behind the reads, and the initiator's packet to itself. */
static void read_list_takes_one_notification(void **state)
{
    (void)state;
    operations("read", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_list_takes_one_notification),
        cmocka_unit_test(read_list_takes_one_notification),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
