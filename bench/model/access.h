/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * access.h - clients that read or write files on servers, without a disk, in virtual time.
 *
 * A client begins an access at all its servers in parallel: a request of 64 bytes to each, the
 * data in messages of `unit` bytes, a reply of 64 bytes.  A server is one thread, which stores
 * a message when it has arrived, and fetches one before it is sent.
 */
#ifndef BENCH_MODEL_ACCESS_H
#define BENCH_MODEL_ACCESS_H

#include "bench/model/tcp.h"

/* What a server's file system takes: ns. */
struct store {
    double request, byte;
};

struct access {
    const struct tcp *tcp; /* instead of the engine; NULL: the engine */
    const struct device *device;
    int clients, servers;
    uint64_t bytes; /* at each server; 0: request and reply alone */
    uint64_t unit;
    int pieces;      /* of a message, in the client's memory */
    uint64_t stride; /* from piece to piece; 0: twice a piece */
    int in_flight;   /* messages of a client with a server */
    bool read;       /* the server sends the data */
    struct store store;
    const char *options, *client_options; /* of all; of clients, NULL: none */
};

/* Of an access of a client. */
struct access_cost {
    double ns;
    double busy; /* share of `ns` in which the client's processor works */
    double register_ns, registrations;
};

/* Returns 0, or -1 after a message on standard error. */
int access_run(const struct access *a, struct access_cost *out);

#endif
