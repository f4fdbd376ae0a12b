/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fabric_bench.h - two hosts of one fabric, driven by hand below the engine.
 *
 * One thread polls both. Their events are recorded in order; received buffers are copied and
 * returned at once unless a test keeps them.
 */
#ifndef TESTS_FABRIC_BENCH_H
#define TESTS_FABRIC_BENCH_H

#include "lane.h"
#include "base/options.h"
#include "base/stats.h"

#define BENCH_RX_SIZE 4096
#define BENCH_EVENTS  4096
#define BENCH_RX      32 /* receive buffers advertised to each link */

struct bench_event {
    enum rme_event_type type;
    struct rme_link *link;
    void *owner;
    int error;
    uint32_t imm;
    struct rme_rdma_op *rdma_op;
    void *closed;
    void *rx; /* the receive buffer, if kept */
    size_t length;
    uint8_t data[64]; /* first bytes of a message or of hello data */
};

struct host {
    struct rme_fabric *f;
    struct rme_addr *listen;
    struct rme_options *options;
    struct rme_stats stats;
    bool keep_rx;      /* keep receive buffers */
    bool reject;       /* reject connection requests */
    const char *hello; /* hello data of answers */
    struct bench_event *seen;
    int nseen;
    struct rme_link *link; /* the link that came up last */
};

extern struct host server, client;

/* cmocka fixtures: both hosts open, the server listening on lane_uri(0); bench_close checks
 * that nothing is left. */
int bench_open(void **state);
int bench_close(void **state);

void bench_poll(struct host *h);
/* Polls both until `h` has seen `count` events of a type since the last bench_forget; fails the
 * test after 10 s. */
void bench_until(struct host *h, enum rme_event_type type, int count);
/* Polls both a few hundred times, to give forbidden events a chance. */
void bench_idle(void);
int bench_count(const struct host *h, enum rme_event_type type);
/* Returns the n-th event (0 …) of a type. */
struct bench_event *bench_event(struct host *h, enum rme_event_type type, int n);
void bench_forget(void);

/* Starts a link from the client to a URI. */
struct rme_link *bench_dial(const char *uri, const char *hello, void *owner);
/* Brings a link up at both ends, over both devices if the lane has two. */
void bench_connect(void);
/* Ends the link at both ends, waits for both LINK_DOWNs and frees the links. */
void bench_disconnect(void);

/* Opens a range of the host's registration to the other end and returns its key: of a memory
 * window if the fabric has windows. The link is up; recorded events are dropped. */
uint64_t bench_mw_bind(struct host *h, const struct rme_mr *mr, void *base, size_t length,
                       unsigned access, struct rme_range *range);
/* Closes the range. */
void bench_mw_invalidate(struct host *h, struct rme_range *range);

/* Returns a send buffer; polls the host until one is free. */
void *bench_tx(struct host *h);
/* Sends a text from one end. */
void bench_send(struct host *h, const char *text);

#endif
