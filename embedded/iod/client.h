/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * client.h - a client's session with its servers: one request at a time to each of them, data
 * flows beside it.
 *
 * All calls come from one thread.  The first failure ends the session: it is kept as one line
 * that names cause, value and remedy, and nothing new is started after it.
 */
#ifndef IOD_CLIENT_H
#define IOD_CLIENT_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "embedded/iod/extents.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/flow.h"
#include "embedded/iod/net.h"
#include "embedded/iod/pool.h"
#include "embedded/iod/proto.h"
#include "embedded/iod/workers.h"

#define CLIENT_WHY 1024

enum remote_state { REMOTE_IDLE, REMOTE_ASKED, REMOTE_ANSWERED };

struct client;

/* One server. */
struct remote {
    struct client *client;
    char *uri;
    BMI_addr_t addr;

    bool used;    /* part of this copy */
    bool lenient; /* a refusal is an answer, and does not fail the session */
    bool hasty;   /* that it is at a bound is an answer, too; else it is asked again */

    /* the request under way */
    enum remote_state state;
    struct iod_request asked;
    struct net_op request_op, reply_op;
    bool requesting, receiving; /* the operations above are posted */
    bool sent;                  /* the request is on its way, its memory is not used any more */
    int64_t early;              /* bytes of an answer that came before that; -1: none */
    bmi_msg_tag_t tag;
    int64_t heard_at;
    int attempts;
    int64_t again_at;   /* when to ask once more; 0: not */
    int64_t busy_since; /* when the server first said that it is at a bound; 0: it did not */
    uint8_t request[IOD_REQUEST_MAX];
    int64_t request_length;
    uint8_t *reply_bytes;
    struct iod_reply reply; /* valid in REMOTE_ANSWERED, points into reply_bytes */

    uint64_t unread; /* objects that it cannot read, of a list */

    /* the open object */
    bool open;
    uint64_t handle;
    uint64_t upload;
    uint32_t buffer_size, buffers;
    struct iod_layout layout;
    uint64_t version;
    uint32_t mode;
    char servers[IOD_SERVERS_MAX + 1]; /* as recorded with it */
    uint64_t pending;                  /* a prepared upload that may be decided; 0: none */
    char pending_servers[IOD_SERVERS_MAX + 1];
    struct file_part file; /* where its bytes are in the local file */
    struct extent_list extents;
    size_t at; /* extents that were asked for */
    struct flow *flow;
    atomic_bool flow_ended;
    int64_t flow_broke_at; /* clock_ms() when the flow ended with a network error */
    uint64_t moved;        /* bytes of flows that are done */
    bool lost;             /* the network failed: it is not talked to any more */
};

struct client_options {
    const char *options;                      /* for the BMI methods; NULL for none */
    int timeout_ms;                           /* of silence */
    int threads;                              /* for the disk */
    void (*line)(const char *line);           /* takes what BMI says; NULL: nobody does */
    void (*ignored)(const char *key);         /* takes a key of `options` that there is not, as
                                                 often as a server is looked up; may be NULL */
    const volatile sig_atomic_t *interrupted; /* set by a signal; may be NULL */
};

struct client {
    struct client_options o;
    bmi_context_id context;
    struct net_log log;
    struct workers *workers;
    pthread_mutex_t ends_lock;
    pthread_cond_t ends_more;
    unsigned flow_ends; /* how many flows have ended so far */
    struct pool *pool;  /* NULL until there is data to move */
    struct share share;
    struct remote **remote;
    int count;
    bmi_msg_tag_t tag;
    bool failed;
    char why[CLIENT_WHY];
    const char *subject; /* the object's name, for messages; NULL for none */
    int64_t pause_until;
    int64_t looked_at; /* clock_ms() of the last look at how things stand */
    int64_t ran_from;  /* of the first after we had been stopped */
    void (*tick)(struct client *client,
                 void *arg); /* now and then while waiting; may be NULL */
    void *tick_arg;
};

/* Starts BMI and the workers.  False: client->why says why; client_close() is still due. */
bool client_open(struct client *client, const struct client_options *options);

/* The server with this address, which is added if it is not there; nothing is sent yet.  NULL:
 * failed. */
struct remote *client_remote(struct client *client, const char *uri);

/* Ends all operations, waiting a moment for them, closes open objects, stops BMI. */
void client_close(struct client *client);

/* Notes a failure; the first one counts.  Returns false. */
bool client_fail(struct client *client, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a server: the line begins with its address. */
bool remote_fail(struct remote *remote, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same when its network failed. */
bool remote_lost(struct remote *remote, int error);

/* Sends a request (its strings and extents may go afterwards).  The server must not be asked
 * something already. */
bool remote_ask(struct remote *remote, const struct iod_request *request);

/* Gives up what the server was asked, if anything, and waits a moment for the end of that. */
void remote_give_up(struct remote *remote);

/* The `done` of a server's flow; its argument is the struct remote.  On a worker. */
void client_flow_ended(void *remote);

/* Waits until `finished` says so.  False when the session failed first. */
bool client_wait(struct client *client, bool (*finished)(struct client *client));

/* Waits for the answers of all servers that were asked; an answer that is an error fails the
 * session. */
bool client_wait_answers(struct client *client);

/* Did the server answer, in haste, that it is at a bound? */
bool remote_at_bound(const struct remote *remote);

/* Sends the same request, with each server's own handle and layout, to all that are used, and
 * waits for the answers. */
bool client_ask_all(struct client *client, const struct iod_request *request);

/*
 * The same for a request that opens something, at the first server before the others: the order
 * of copies and removals needs that (store.h).  While one of them is at a bound nothing is kept
 * open at the others: two copies would wait for each other.
 */
bool client_open_all(struct client *client, const struct iod_request *request);

/* Closes what is open anywhere; nobody is asked anything at the moment. */
bool client_give_back(struct client *client);

/* Lets some time pass, a little less or more from process to process. */
bool client_pause(struct client *client);

#endif
