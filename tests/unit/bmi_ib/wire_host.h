/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* wire_host.h - one host of the verbs fabric in its own process, for tests over a device:
 * events are recorded; a server answers by a small script. */
#ifndef WIRE_HOST_H
#define WIRE_HOST_H

#include <sys/types.h>
#include <time.h>
#include <rdma/rdma_cma.h>
#include "../common/unit.h"
#include "base/addr_int.h"
#include "bmi_ib.h"
#include "fabric.h"
#include "base/options.h"
#include "base/stats.h"

#define WIRE_RX   32
#define WIRE_SEEN 65536

/* Memory that the server offers, sent as the hello of its answer. */
struct wire_offer {
    uint64_t base;
    uint64_t rkey;
    uint64_t size;
};

struct wire_seen {
    enum rme_event_type type;
    struct rme_link *link;
    void *owner;
    int error;
    const char *why; /* LINK_DOWN */
    uint32_t imm;
    struct rme_rdma_op *rdma_op;
    void *closed;
    void *rx; /* the receive buffer, if kept */
    size_t length;
    char text[64]; /* first bytes of a message or of hello data */
};

struct wire {
    const struct rme_fabric_ops *ops;
    struct rme_fabric *f;
    struct rme_options *options;
    struct rme_addr *listen;
    struct rme_stats stats;
    struct rme_link *link;   /* the link that came up last */
    struct wire_offer offer; /* the peer's, after connecting */
    struct wire_offer own;   /* a server's own */
    bool echo;               /* a server sends every message back */
    bool keep_rx;            /* keeps receive buffers */
    bool reject;             /* rejects connection requests */
    const char *hello;       /* hello data of answers, instead of the offer */
    struct wire_seen *seen;
    int nseen;
};

/* The options of this run. */
extern const char *wire_options;
/* Bytes that a host may lock; 0: no limit. */
extern uint64_t wire_budget;

/* The log since the last start of a host, if kept. */
extern bool wire_keeps_lines;
extern char wire_lines[8192];

/* To be called first in main: takes the options from argv[1]. Never returns in a process
 * started by wire_server or wire_client. */
void wire_main(int argc, char **argv);

/* Open and close a host; opening may fail, closing is needed in both cases. The fabric of
 * wire_start() is bmi_ib. */
int wire_start(struct wire *w, const char *listen);
int wire_start_over(struct wire *w, const struct rme_fabric_ops *ops, const char *options,
                    const char *listen);
void wire_stop(struct wire *w);
/* The same; a failure or an RNR fails the test. */
void wire_open(struct wire *w, const char *listen);
/* Opens one more fabric with the options of w. */
int wire_try(struct wire *w, const struct rme_addr *listen, struct rme_fabric **out);
void wire_close(struct wire *w);
void wire_poll(struct wire *w);
int wire_count(const struct wire *w, enum rme_event_type type);
struct wire_seen *wire_event(struct wire *w, enum rme_event_type type, int n);
#define PATIENCE_S 600 /* timeout of expected events */
/* Returns seconds that changes of the wall clock do not affect. */
time_t wire_now(void);
/* Polls until `count` events of the type were seen; fails the test after PATIENCE_S. */
void wire_until(struct wire *w, enum rme_event_type type, int count);
struct rme_link *wire_dial(struct wire *w, const char *uri);
void wire_connect(struct wire *w, const char *uri);
void wire_disconnect(struct wire *w);
/* Text that a server echoes 2 ms later. */
#define WIRE_LATER "echo this later"
/* Sends a text; returns false when no buffer is free. */
bool wire_send(struct wire *w, const char *text);
/* Fills memory with a pattern that depends on `seed`, and registers and checks it. */
void wire_fill(uint8_t *memory, size_t size, unsigned seed);

/* Starts a process that listens on `uri` and serves until killed: offers `size` bytes filled
 * with seed 5, echoes messages, frees links that go down. Returns when it listens. */
pid_t wire_server(const char *uri, size_t size);
/* Starts a process that connects to `uri`, sends one message and polls until killed. */
pid_t wire_client(const char *uri);
void wire_kill(pid_t pid);
/* Connects a peer without receives, with unlimited RNR retries, to a server of this process.
 * The channel does not block. */
struct rdma_cm_id *wire_mute(struct wire *w, struct rdma_event_channel *channel,
                             const char *uri);

/* Returns a counter of the software HCA, of this process; -1 on other devices. */
int64_t wire_counter(const char *name);
/* Changes a device of the software HCA in this process. */
void wire_device(const char *name, const char *state);
/* Returns a function of the software HCA. */
void *wire_symbol(const char *name);

/* Returns "ib://HOST:PORT" with ports of this program alone, in turn. TEST_HOST replaces
 * 127.0.0.1 where a device does not serve that. */
const char *wire_uri(const char *host);

#endif
