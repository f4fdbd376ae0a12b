/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * server.h - the I/O server behind bmi-iod.  See server.c for how it works.
 */
#ifndef IOD_SERVER_H
#define IOD_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "embedded/bmi/bmi.h"
#include "embedded/iod/access.h"

struct server;

struct server_config {
    const char *listen;         /* "ib://host:port", several with commas */
    const struct access *allow; /* whom it serves; NULL: this machine if it listens on loopback
                                   alone, else everybody.  The caller's. */
    const char *folder;         /* the store */
    const char *options;        /* for the BMI methods; NULL for none */
    int threads;                /* that read and write the disk */
    uint64_t memory;            /* bytes of all data buffers */
    uint32_t buffer_size;       /* bytes of one; the longest data message */
    uint32_t peer_transfers;    /* open transfers of one client, at most */
    int client_timeout_ms; /* a client that owes us something for so long has lost its transfer
                            */
    bool sync;             /* see store.h */
    const char *metrics;   /* a file for Prometheus, see export.c; NULL: none.  The caller's. */
};

/* Starts the server; it serves as long as server_run() is called.  0 or -errno, after one log
 * line that says why. */
int server_open(const struct server_config *config, struct server **out);

/* The port that it listens on. */
int server_port(const struct server *server);

/* Serves for up to `idle_ms`.  0 or -errno: BMI itself is broken. */
int server_run(struct server *server, int idle_ms);

/* New work is refused from now on, what is open may go on. */
void server_drain(struct server *server);

/* Gives up what is open. */
void server_abort(struct server *server);

/* True when nothing is open. */
bool server_is_idle(struct server *server);

/* One line per peer, and the counters, to the log. */
void server_report(struct server *server);

/* Has the file of metrics written, if one was asked for; so does the clock. */
void server_export(struct server *server);

void server_close(struct server *server);

#endif
