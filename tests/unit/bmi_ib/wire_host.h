/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wire_host.h - one host of the verbs fabric in a process of its own, for tests over a device:
 * what it sees is written down, a server answers by a small script of its own.
 */
#ifndef WIRE_HOST_H
#define WIRE_HOST_H

#include <sys/types.h>
#include <time.h>
#include "../common/unit.h"
#include "base/addr_int.h"
#include "bmi_ib.h"
#include "fabric.h"
#include "base/options.h"
#include "base/stats.h"

#define WIRE_RX   32
#define WIRE_SEEN 65536

/* Memory that the server offers; its whereabouts are the hello of its answer. */
struct wire_offer {
    uint64_t base;
    uint64_t rkey;
    uint64_t size;
};

struct wire_seen {
    enum rme_event_type type;
    struct rme_link *link;
    int error;
    const char *why; /* LINK_DOWN */
    uint32_t imm;
    struct rme_xfer *xfer;
    char text[64];
};

struct wire {
    const struct rme_fabric_ops *ops;
    struct rme_fabric *f;
    struct rme_options *options;
    struct rme_addr *listen;
    struct rme_stats stats;
    struct rme_link *link;   /* the last one that came up */
    struct wire_offer offer; /* of the peer, after a connect */
    struct wire_offer own;   /* a server's */
    bool echo;               /* a server sends every message back */
    struct wire_seen *seen;
    int nseen;
};

/* The options of this run. */
extern const char *wire_options;

/* First thing in main: takes the options from argv[1]; in a process started by wire_server or
 * wire_client, never returns. */
void wire_main(int argc, char **argv);

/* Opens and closes; the first may fail, the second undoes it in either case. */
int wire_start(struct wire *w, const char *listen);
void wire_stop(struct wire *w);
/* The same, where failing fails the test, and so does a receiver that was not ready. */
void wire_open(struct wire *w, const char *listen);
/* Opens one more fabric with the options of w. */
int wire_try(struct wire *w, const struct rme_addr *listen, struct rme_fabric **out);
void wire_close(struct wire *w);
void wire_poll(struct wire *w);
int wire_count(const struct wire *w, enum rme_event_type type);
struct wire_seen *wire_event(struct wire *w, enum rme_event_type type, int n);
#define PATIENCE_S 60 /* for what has to come */
/* Seconds that pass whatever is done to the clock of the wall. */
time_t wire_now(void);
/* Polls until `count` events of the type were seen; fails the test after PATIENCE_S. */
void wire_until(struct wire *w, enum rme_event_type type, int count);
struct rme_link *wire_dial(struct wire *w, const char *uri);
void wire_connect(struct wire *w, const char *uri);
void wire_disconnect(struct wire *w);
/* A server that is sent this answers with its offer as it is then, instead of an echo. */
#define WIRE_ASK "what do you offer?"
/* A server that is sent this echoes it, but 2 ms later. */
#define WIRE_LATER "echo this later"
/* Sends a text; false when no buffer is free. */
bool wire_send(struct wire *w, const char *text);
/* A memory with a pattern that depends on `seed`, registered; and the check of it. */
void wire_fill(uint8_t *memory, size_t size, unsigned seed);

/*
 * A process that listens on `uri` and serves until it is killed: memory of `size` bytes filled
 * with seed 5 is offered, messages are echoed, every link that goes down is freed.  Returns
 * when it listens.
 */
pid_t wire_server(const char *uri, size_t size);
/* A process that connects to `uri`, sends one message and then polls until it is killed. */
pid_t wire_client(const char *uri);
void wire_kill(pid_t pid);

/*
 * "ib://HOST:PORT" with ports of this program alone, in turn. TEST_HOST stands in for
 * 127.0.0.1, where a device does not serve that.
 */
const char *wire_uri(const char *host);

#endif
