/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * node.h - engines on modelled hosts and devices, each with its own clock.
 *
 * A node takes turns: calls of its engine, whose costs advance its clock.  The node with the
 * least clock runs first, and after all events of adapters up to then.  A node whose turns did
 * nothing sleeps until an event for it.  One thread runs everything; clock_gettime() returns
 * the clock of the node whose turn it is (tests/lib/clock.h).
 */
#ifndef BENCH_MODEL_NODE_H
#define BENCH_MODEL_NODE_H

#include "bench/model/adapter.h"
#include "base/stats.h"
#include "rme.h"

struct node {
    /* of the caller */
    const struct device *device;
    const char *name, *uri;       /* uri NULL: a client */
    bool (*turn)(struct node *n); /* returns whether anything was done */
    void *arg;
    /* private */
    const struct host *host;
    struct adapter adapter;
    struct rme *rme;
    struct rme_addr *listen;
    const struct rme_stats *stats;
    double clock, slept;
    uint64_t copied;
    unsigned idle;
    bool asleep;
};

/* Opens an engine; times stand still.  `options`: of the engine and the loop, beyond those that
 * the device's table decides.  Returns 0 or a negative errno. */
int node_open(struct node *n, const char *options);
void node_close(struct node *n);

/* Begins and ends virtual time for nodes that are open and idle. */
void nodes_start(struct node *const *nodes, int count);
void nodes_stop(void);
/* Runs turns and events until `done`.  Returns false if nothing can happen. */
bool nodes_run(bool (*done)(void *arg), void *arg);

/* The node's turn: takes the time of one call of the engine. */
void node_call(struct node *n);
/* Lets a node take turns again, at the present time. */
void node_wake(struct node *n);

#endif
