/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * client.h - a client's session with its servers: one request at a time for each, with
 * concurrent data flows.
 *
 * All calls come from one thread.  The first failure ends the session: nothing new starts, and
 * one line with cause, value and remedy is kept.
 */
#ifndef IOD_CLIENT_H
#define IOD_CLIENT_H

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "embedded/iod/fileio.h"
#include "embedded/iod/flow.h"
#include "embedded/iod/net.h"
#include "embedded/iod/pool.h"
#include "embedded/iod/proto.h"
#include "embedded/iod/workers.h"

#define CLIENT_WHY (PATH_MAX + 1024) /* bytes of a line that begins with a path */

enum remote_state { REMOTE_IDLE, REMOTE_ASKED, REMOTE_ANSWERED };

struct client;

/* Server of a session. */
struct remote {
    struct client *client;
    char *uri;
    BMI_addr_t addr;

    bool used;    /* part of this copy */
    bool lenient; /* a refusal is an answer and does not fail the session */

    /* the request in progress */
    enum remote_state state;
    struct iod_message asked;
    struct net_op request_op, reply_op;
    bool requesting, receiving; /* the operations above are posted */
    bmi_msg_tag_t tag;
    int64_t received_at;
    uint8_t request[IOD_REQUEST_MAX];
    int64_t request_length;
    uint8_t *reply_bytes;
    struct iod_message reply; /* valid in REMOTE_ANSWERED, points into reply_bytes */

    uint64_t unread; /* list: number of unreadable objects */
    size_t last;     /* list: 1 + index of the last part; 0: none */

    /* the open object */
    bool open;
    uint64_t handle;
    struct iod_id id;
    uint32_t buffer_size, buffers;
    struct iod_layout layout;
    uint32_t mode;
    struct file_part file; /* position of its bytes in the local file */
    struct flow *flow;
    atomic_bool flow_ended;
    int64_t flow_broke_at; /* clock_ms() when the flow ended with a network error */
    uint64_t moved;        /* bytes of the completed flow */
    bool lost;             /* network failed: no further requests */
};

struct client_options {
    const char *options;                      /* for the BMI methods; NULL: none */
    int timeout_ms;                           /* maximum silence of a server */
    int threads;                              /* for the disk */
    void (*line)(const char *line);           /* receives log lines of BMI; NULL: dropped */
    void (*ignored)(const char *key);         /* receives an unknown key of `options`, at each
                                               * client_open(); may be NULL */
    const volatile sig_atomic_t *interrupted; /* set by a signal; may be NULL */
};

struct client {
    struct client_options o;
    bmi_context_id context;
    struct net_log log;
    struct workers *workers;
    struct pool *pool; /* NULL until data is moved */
    struct remote **remote;
    int count;
    bmi_msg_tag_t tag;
    bool failed;
    char why[CLIENT_WHY];
    const char *subject; /* name of the object for messages; NULL: none */
    void (*tick)(struct client *client, void *arg); /* called while waiting; may be NULL */
    void *tick_arg;
};

/* Starts BMI and the workers.  On failure returns false with client->why; client_close() is
 * required in any case. */
bool client_open(struct client *client, const struct client_options *options);

/* Returns the server with this address, added if necessary; sends nothing.  NULL: failed. */
struct remote *client_remote(struct client *client, const char *uri);

/* Ends all operations, with a short wait, closes open objects and stops BMI. */
void client_close(struct client *client);

/* Records a failure; the first one counts.  Returns false. */
bool client_fail(struct client *client, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* As client_fail(); the line begins with the server's address. */
bool remote_fail(struct remote *remote, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* As remote_fail() for a network error. */
bool remote_lost(struct remote *remote, int error);

/* Sends a request; its strings may be freed afterwards.  No request may be in
 * progress at this server. */
bool remote_ask(struct remote *remote, const struct iod_message *request);

/* Handles the end of a server's flow (`done`); the argument is the struct remote.  On a
 * worker. */
void client_flow_ended(void *remote);

/* Waits until `finished` returns true.  Returns false if the session failed first. */
bool client_wait(struct client *client, bool (*finished)(struct client *client));

/* Waits for the answers of all servers; an error answer fails the session. */
bool client_wait_answers(struct client *client);

/* Sends the same request, with each server's handle and layout, to all used servers from this
 * one on, and waits for the answers. */
bool client_ask_all(struct client *client, const struct iod_message *request, int from);

#endif
