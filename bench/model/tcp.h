/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tcp.h - TCP as a paper measured it, between modelled hosts. */
#ifndef BENCH_MODEL_TCP_H
#define BENCH_MODEL_TCP_H

#include "bench/model/node.h"

/* The processors' time alone: the wire is faster.  Both sides take the time of a byte, and each
 * takes half of the latency. */
struct tcp {
    const char *name, *source;
    double latency; /* ns one way */
    double byte;    /* ns */
    bool stored;    /* `byte` includes the server's file system */
};

/* Data on its way to a node, in chunks.  Freed by tcp_clear. */
struct tcp_pipe {
    struct node *to;
    struct tcp_chunk *first, **last;
};

/* The node's turn: sends a message of a kind. */
void tcp_send(const struct tcp *t, struct tcp_pipe *p, uint64_t bytes, int kind);
/* The node's turn: takes the next chunk that has arrived.  Returns whether there was one;
 * *kind: of the message that it ends, -1: it ends none. */
bool tcp_take(const struct tcp *t, struct tcp_pipe *p, int *kind);
void tcp_clear(struct tcp_pipe *p);

#endif
