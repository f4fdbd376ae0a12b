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
#include "tests/unit/bmi_ib/wire_host.h"

#define BENCH_RX_SIZE 4096
#define BENCH_RX      WIRE_RX /* receive buffers advertised to each link */

extern struct wire server, client;

/* cmocka fixtures: both hosts open, the server listening on lane_uri(0); bench_close checks
 * that nothing is left. */
int bench_open(void **state);
int bench_close(void **state);

/* Polls both until `w` has seen `count` events of a type since the last bench_forget; fails the
 * test after PATIENCE_S. */
void bench_until(struct wire *w, enum rme_event_type type, int count);
/* Polls both a few hundred times, to give forbidden events a chance. */
void bench_idle(void);
void bench_forget(void);

/* Starts a link from the client to a URI. */
struct rme_link *bench_dial(const char *uri, const char *hello, void *owner);
/* Brings a link up at both ends, over both devices if the lane has two. */
void bench_connect(void);
/* Ends the link at both ends, waits for both LINK_DOWNs and frees the links. */
void bench_disconnect(void);
/* Opens a range of the host's registration to the other end and returns its key: of a memory
 * window if the fabric has windows. The link is up; recorded events are dropped. */
uint64_t bench_mw_bind(struct wire *w, const struct rme_mr *mr, void *base, size_t length,
                       unsigned access, struct rme_range *range);
/* Closes the range. */
void bench_mw_invalidate(struct wire *w, struct rme_range *range);
/* Returns a send buffer; polls the host until one is free. */
void *bench_tx(struct wire *w);
/* Sends a text from one end. */
void bench_send(struct wire *w, const char *text);

#endif
