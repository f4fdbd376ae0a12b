/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * flow.h - moves a list of extents between a file and a peer, as messages of one size with one
 * tag.  Server and client use the same code: the ends of a transfer differ only in direction
 * and in what a file is.
 *
 * Both ends know the extents and the message size, so both derive the same messages from them:
 * the extents' bytes, one behind the other, cut into messages of `message` bytes (the last one
 * may be shorter).  Nothing but data travels.
 */
#ifndef IOD_FLOW_H
#define IOD_FLOW_H

#include "embedded/iod/extents.h"
#include "embedded/iod/net.h"
#include "embedded/iod/pool.h"
#include "embedded/iod/workers.h"

struct flow;

enum flow_side { FLOW_FILE, FLOW_NETWORK, FLOW_MEMORY };

struct flow_config {
    bmi_context_id context;
    struct workers *workers;
    struct pool *pool;
    struct share *share; /* whose buffers it uses; outlives the flow */
    struct turn *turn;   /* its jobs'; NULL, or outlives the flow */
    BMI_addr_t addr;
    bmi_msg_tag_t tag;
    bool send;  /* from the file to the peer; else from the peer to the file */
    bool drain; /* after a file error go on receiving, and throw away, until cancelled */

    /* Moves the `length` bytes that `from` steps over between file and memory: reads when the
     * flow sends, else writes.  Several workers at once.  0 or -errno. */
    int (*move)(void *file, struct extent_cursor from, const struct net_memory *memory,
                uint64_t length);
    void *file;
    struct iod_extents extents; /* copied */
    uint32_t message;           /* bytes of a message; at most the pool's buffer size */
    uint32_t depth;             /* messages in flight, at most */

    /*
     * Called on a worker thread, without locks.  `failed` at once at the first error, if it is
     * one of a flow that drains; `done` as the last thing, always, exactly once, after which
     * flow_free() is allowed.
     */
    void (*failed)(void *arg);
    void (*done)(void *arg);
    void *arg;
};

/* Starts a flow.  *out is set before `done` can be called.  0 or -errno (then no call comes).
 */
int flow_start(const struct flow_config *config, struct flow **out);

/* Ends all as soon as possible.  The error is `error` (-errno) unless there was one before. */
void flow_cancel(struct flow *flow, int error);

struct flow_status {
    int error;           /* the first one, 0 or -errno, */
    enum flow_side side; /* and where it happened */
    uint64_t bytes;      /* that reached their end here */
    int64_t moved_at;    /* clock_ms() of the last progress */
    bool waits_for_peer; /* a message is posted and not complete */
    bool only_disk;      /* no message is posted, and none will be */
    bool stopped;        /* nothing more is started */
};

struct flow_status flow_status(struct flow *flow);
void flow_free(struct flow *flow);

/* Frees a flow that has not ended, after BMI and the workers have. */
void flow_abandon(struct flow *flow);

#endif
