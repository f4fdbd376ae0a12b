/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fabric_bench.h - two hosts of one fabric on a test bench, driven by hand below the engine.
 *
 * Both are polled from one thread; what they report is written down in order, received buffers
 * are copied and given back at once unless a test keeps them.
 */
#ifndef TESTS_FABRIC_BENCH_H
#define TESTS_FABRIC_BENCH_H

#include "lane.h"
#include "base/options.h"
#include "base/stats.h"

#define BENCH_RX_SIZE 4096
#define BENCH_EVENTS  4096
#define BENCH_RX      32 /* receive buffers promised to each link */

struct bench_event {
    enum rme_event_type type;
    struct rme_link *link;
    void *owner;
    int error;
    uint32_t imm;
    struct rme_xfer *xfer;
    void *closed;
    void *rx; /* when kept */
    size_t length;
    uint8_t data[64]; /* the beginning of a message or of hello data */
};

struct host {
    struct rme_fabric *f;
    struct rme_addr *listen;
    struct rme_options *options;
    struct rme_stats stats;
    bool keep_rx;      /* do not give buffers back */
    bool reject;       /* answer requests with no */
    const char *hello; /* in answers */
    struct bench_event *seen;
    int nseen;
    struct rme_link *link; /* the last one that came up */
};

extern struct host server, client;

/* cmocka fixtures: both hosts open, the server listens on lane_uri(0); nothing left behind at
 * the end. */
int bench_open(void **state);
int bench_close(void **state);

void bench_poll(struct host *h);
/* Polls both until `h` has seen `count` events of a type (since the last bench_forget); fails
 * the test after 10 s. */
void bench_until(struct host *h, enum rme_event_type type, int count);
/* Polls both a few hundred times: what must not happen has had its chance. */
void bench_idle(void);
int bench_count(const struct host *h, enum rme_event_type type);
/* The n-th event (0 …) of a type. */
struct bench_event *bench_event(struct host *h, enum rme_event_type type, int n);
void bench_forget(void);

/* Starts a link from the client to a URI. */
struct rme_link *bench_dial(const char *uri, const char *hello, void *owner);
/* A link that is up at both ends, over both devices where the lane says so. */
void bench_connect(void);
/* Ends the link of both, waits for both LINK_DOWNs and frees them. */
void bench_disconnect(void);

/* The key by which the other end may write (or read) this range of a registration of the
 * host's: that of a window, where there are any.  The link is up; events are forgotten. */
uint64_t bench_expose(struct host *h, const struct rme_mr *mr, void *base, size_t length,
                      unsigned access, struct rme_range *range);
/* Closes it again. */
void bench_unexpose(struct host *h, struct rme_range *range);

/* A send buffer; polls its host until there is one. */
void *bench_tx(struct host *h);
/* Sends a text from one end. */
void bench_send(struct host *h, const char *text);

#endif
