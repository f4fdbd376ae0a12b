/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * flow.h - moves an object between a file and a peer, as messages of one size and one tag.
 * Server and client use the same code, with opposite directions and different files.
 *
 * Both sides know the object's size and the message size and derive the same messages, of
 * `message` bytes (the last one may be shorter).  Only data is transferred.
 */
#ifndef IOD_FLOW_H
#define IOD_FLOW_H

#include "embedded/iod/net.h"
#include "embedded/iod/pool.h"
#include "embedded/iod/workers.h"

struct flow;

enum flow_side { FLOW_FILE, FLOW_NETWORK, FLOW_MEMORY };

struct flow_config {
    bmi_context_id context;
    struct workers *workers;
    struct pool *pool;
    BMI_addr_t addr;
    bmi_msg_tag_t tag;
    bool send;  /* true: file to peer; false: peer to file */
    bool drain; /* after a file error continue to receive and discard, until cancelled */

    /* Moves `length` bytes from `offset` on from memory to the file (`write`), or from the
     * file to memory.  Called by several workers concurrently.  Returns 0 or -errno. */
    int (*move)(void *file, uint64_t offset, char *bytes, uint64_t length, bool write);
    void *file;
    uint64_t size;    /* bytes of the object */
    uint32_t message; /* bytes of a message; at most the pool's buffer size */
    uint32_t depth;   /* maximum messages in flight */

    /*
     * Called on a worker, without locks.  `failed`: at the first file error of a draining flow;
     * may be NULL.  `done`: last call, exactly once, after which flow_free() is allowed.
     */
    void (*failed)(void *arg);
    void (*done)(void *arg);
    void *arg;
};

/* Starts a flow.  *out is set before `done` can be called.  Returns 0 or -errno (no calls
 * follow). */
int flow_start(const struct flow_config *config, struct flow **out);

/* Ends the flow as soon as possible, with `error` (-errno) unless there was an earlier
 * error. */
void flow_cancel(struct flow *flow, int error);

struct flow_status {
    int error;           /* first error, 0 or -errno, */
    enum flow_side side; /* and its origin */
    uint64_t bytes;      /* bytes of complete messages */
    int64_t moved_at;    /* clock_ms() of the last progress */
    bool waits_for_peer; /* a message is posted and not complete */
    bool stopped;        /* nothing more is started */
};

/* Returns a snapshot of the state.  Any thread. */
struct flow_status flow_status(struct flow *flow);
/* Frees a flow after its `done`. */
void flow_free(struct flow *flow);

#endif
