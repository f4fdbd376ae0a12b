/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cells.h - figures of the papers' machines: our engine, bare requests, and TCP. */
#ifndef BENCH_MODEL_CELLS_H
#define BENCH_MODEL_CELLS_H

#include "bench/model/access.h"
#include "bench/model/raw.h"

enum figure {
    NOTHING,
    RAW_LATENCY, /* us */
    RAW_RATE,    /* MB/s */
    FENCE,       /* us a read of a block and a message behind it */
    MESSAGE,     /* us from post to receipt */
    RATE,        /* MB/s of messages */
    ACCESS,      /* us */
    ACCESS_RATE, /* MB/s of all clients */
    BUSY,        /* % of the client's processor */
    REGISTERING, /* us of an access */
    REGISTERED,  /* registrations of an access */
    REGISTER,    /* us of one registration */
    TCP_LATENCY,
    TCP_RATE,
    TCP_ACCESS, /* of the shape of the cell that is compared: us, or MB/s of ACCESS_RATE */
    GIVEN       /* the paper's own number */
};

/* How a message that the block's read precedes is kept behind it. */
enum order { ORDER_NONE, ORDER_FENCE, ORDER_WAIT };

struct cell {
    enum figure of;
    const struct device *d;
    const struct tcp *tcp;
    enum request_kind kind;
    enum order order;
    uint64_t bytes, unit, stride;
    int clients, servers, pieces, recv_pieces, in_flight; /* 0: 1; in_flight of accesses: 2 */
    bool read;
    struct store store; /* request: us */
    const char *options, *client;
    double hits; /* share of accesses whose memory is cached; 0: all of them */
    int groups;  /* of clients and servers, which work in parallel; 0: 1 */
    double given;
};

/* Sets *value; `shape` is the cell of which TCP has the shape.  Returns 0, or -1 after a
 * message. */
int cell_value(const struct cell *cell, const struct cell *shape, double *value);
/* Returns the unit of the figures, "" for ratios. */
const char *cell_unit(const struct cell *cell);

#endif
