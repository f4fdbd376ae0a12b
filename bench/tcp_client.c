/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client process over plain TCP: one connection, and in each phase one thread, per server. */
#include "bench/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/exchange.h"
#include "bench/sockets.h"
#include "bench/tcp_exchange.h"

struct link {
    const char *server;
    int fd;
    struct tcp_exchange *exchange;
    struct report said;
    uint64_t phase;
    int error;
    pthread_t thread;
};

struct tcp_client {
    struct job job;
    struct part part;
    unsigned servers;
    struct link link[MAX_SERVERS];
};

static int fail_at(char *why, const struct link *link, const char *what, int error)
{
    snprintf(why, WHY_SIZE, "%s: %s: %s", link->server, what, strerror(-error));
    return -1;
}

static struct link *part_link(struct tcp_client *client, unsigned i)
{
    return &client->link[(client->part.first + i) % client->servers];
}

static void link_drop(struct link *link)
{
    if (link->exchange)
        tcp_exchange_free(link->exchange);
    link->exchange = NULL;
}

static void tcp_close(void *state)
{
    struct tcp_client *client = state;
    unsigned i;

    for (i = 0; i < client->servers; i++) {
        link_drop(&client->link[i]);
        if (client->link[i].fd >= 0)
            close(client->link[i].fd);
    }
    free(client);
}

static int tcp_open(char *const *servers, unsigned count, const char *options, void **state,
                    char *why)
{
    struct tcp_client *client = calloc(1, sizeof *client);
    unsigned i;

    (void)options;
    *state = client;
    if (!client) {
        snprintf(why, WHY_SIZE, "out of memory");
        return -1;
    }
    for (i = 0; i < count; i++) {
        struct link *link = &client->link[client->servers++];
        int rc;
        link->server = servers[i];
        link->fd = -1;
        rc = sockets_connect(servers[i], &link->fd);
        if (rc)
            return fail_at(why, link, "cannot connect", rc);
    }
    return 0;
}

static int receive_report(struct link *link)
{
    unsigned char wire[REPORT_WIRE_SIZE];
    int rc = sockets_receive(link->fd, wire, sizeof wire);

    if (!rc)
        rc = report_decode(&link->said, wire, sizeof wire);
    return rc ? rc : -(int)link->said.error;
}

static int tcp_prepare_link(struct tcp_client *client, struct link *link)
{
    unsigned char wire[JOB_WIRE_SIZE];
    int rc;

    link_drop(link);
    rc = tcp_exchange_new(link->fd, &client->job, false, &link->exchange);
    if (rc)
        return rc;
    job_encode(&client->job, wire);
    rc = sockets_send(link->fd, wire, sizeof wire);
    return rc ? rc : receive_report(link);
}

/* Runs one link's part of a phase, in its own thread if there are several links. */
static void *phase_thread(void *arg)
{
    struct link *link = arg;

    link->error = tcp_exchange_phase(link->exchange, link->phase);
    if (!link->error)
        link->error = receive_report(link);
    return NULL;
}

static int phase(void *state, uint64_t number, char *why)
{
    struct tcp_client *client = state;
    unsigned i, started;

    for (i = 0; i < client->part.count; i++) {
        struct link *link = part_link(client, i);
        int rc = exchange_needs_go(&client->job) ? sockets_send(link->fd, "g", 1) : 0;
        link->phase = number;
        if (rc)
            return fail_at(why, link, "cannot send", rc);
    }
    if (client->part.count == 1) {
        phase_thread(part_link(client, 0));
    } else {
        for (started = 0; started < client->part.count; started++)
            if (pthread_create(&part_link(client, started)->thread, NULL, phase_thread,
                               part_link(client, started)))
                break;
        for (i = 0; i < started; i++)
            pthread_join(part_link(client, i)->thread, NULL);
        if (started < client->part.count) {
            snprintf(why, WHY_SIZE, "cannot start a thread");
            return -1;
        }
    }
    for (i = 0; i < client->part.count; i++)
        if (part_link(client, i)->error)
            return fail_at(why, part_link(client, i), "the exchange failed",
                           part_link(client, i)->error);
    return 0;
}

static int tcp_prepare(void *state, const struct job *job, struct part part, char *why)
{
    struct tcp_client *client = state;
    unsigned i;

    client->job = *job;
    client->part = part;
    for (i = 0; i < part.count; i++) {
        struct link *link = part_link(client, i);
        int rc = tcp_prepare_link(client, link);
        if (rc)
            return fail_at(why, link, "the server refused the job", rc);
    }
    return job->warm ? phase(client, 0, why) : 0;
}

static int tcp_run(void *state, struct outcome *outcome, char *why)
{
    struct tcp_client *client = state;

    if (outcome_time(outcome, phase, client, why))
        return -1;
    for (unsigned i = 0; i < client->part.count; i++) {
        struct link *link = part_link(client, i);
        outcome_add(outcome, &client->job, (unsigned)(link - client->link), &link->said,
                    tcp_exchange_bad(link->exchange));
    }
    return 0;
}

static int tcp_counters(void *state, int server, char *text, size_t size, char *why)
{
    (void)state;
    (void)server;
    (void)text;
    (void)size;
    snprintf(why, WHY_SIZE, "plain TCP has no engine counters");
    return -1;
}

const struct transport tcp_transport = {
    .name = "tcp",
    .open = tcp_open,
    .prepare = tcp_prepare,
    .run = tcp_run,
    .counters = tcp_counters,
    .close = tcp_close,
};
