/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* server.h - the I/O server of bmi-iod; see server.c. */
#ifndef IOD_SERVER_H
#define IOD_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "embedded/bmi/bmi.h"
#include "embedded/iod/access.h"

struct server;

struct server_config {
    const char *listen;         /* "ib://host:port", several with commas */
    const struct access *allow; /* admitted hosts, owned by the caller; NULL: the local host if
                                 * the server listens on loopback only, else all */
    const char *folder;         /* store */
    const char *options;        /* for the BMI methods; NULL: none */
    uint64_t memory;            /* bytes of all data buffers */
    uint32_t buffer_size;       /* bytes of a buffer; the longest data message */
    int client_timeout_ms;      /* a client that owes data for longer loses its transfer */
    bool sync;                  /* see store.h */
    const char *metrics; /* metrics file for Prometheus (export.c), owned by the caller; NULL:
                          * none */
};

/* Starts the server, which serves while server_run() is called.  Returns 0 or -errno, after one
 * log line with the cause. */
int server_open(const struct server_config *config, struct server **out);

/* Returns the listening port. */
int server_port(const struct server *server);

/* Serves for up to `idle_ms`.  Returns 0, or -errno after a failure of BMI. */
int server_run(struct server *server, int idle_ms);

/* Refuses new work; open transfers may finish. */
void server_drain(struct server *server);

/* Aborts open transfers. */
void server_abort(struct server *server);

/* Returns true if no request or transfer is open. */
bool server_is_idle(struct server *server);

/* Logs one line per peer, and the counters. */
void server_report(struct server *server);

/* Requests an update of the metrics file, if configured; also done periodically. */
void server_export(struct server *server);

void server_close(struct server *server);

#endif
