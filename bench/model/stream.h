/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* stream.h - messages of one shape from a client to a server, on two modelled hosts. */
#ifndef BENCH_MODEL_STREAM_H
#define BENCH_MODEL_STREAM_H

#include "bench/model/node.h"

/* Each receive is posted before its send; the memory of both is used again and again. */
struct shape {
    uint64_t bytes;
    uint32_t send_pieces, recv_pieces;
    uint32_t in_flight; /* messages posted and not received, at most 32 */
};

struct outcome {
    /* of a message: from post to receipt with one in flight; else a share of the time from the
     * first post to the last receipt */
    double ns;
    char chosen[32]; /* protocols of the sender's messages */
};

/* Options beyond the device's: of both ends, of the sender and of the receiver. */
struct stream_options {
    const char *both, *sender, *receiver;
};

/* Returns 0, or -1 after a message on standard error. */
int stream_run(const struct device *d, const struct shape *shape,
               const struct stream_options *options, struct outcome *out);

#endif
