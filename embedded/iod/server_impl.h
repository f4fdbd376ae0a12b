/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * server_impl.h - internals of the server, shared by server.c (start, periodic checks,
 * reports), peer.c (clients), request.c (requests and replies) and transfer.c (open
 * objects and their data).
 *
 * One lock protects everything here and is not held during disk work.  Lock order: server,
 * flow, pool, BMI.
 *
 * Ownership:
 *
 *   peer      has a count of uses: one for the connection while `watch` is posted, one per
 *             request, one per transfer, one per peer_get().  Only peer_put() of the last one
 *             frees the peer, so requests and transfers may use it until their own end, even if
 *             the connection is lost.
 *   request   owns message and reply.  request_settle() frees a request, with the lock held,
 *             when it was answered (or forgotten) and neither its reply nor a keep-alive is in
 *             flight.  After a reply the caller must not access the request.
 *   transfer  owns the object and the flow.  One of these works on it at a time: the job that
 *             opens it, a job of a request (`busy`), or a flow.  To end a transfer, set
 *             `closing`; when idle, close_job runs on a worker and alone frees object and
 *             transfer.
 *
 * A transfer points to requests (`active`, `closer`) that end only when the transfer answers
 * them.  A request points to its transfer only while its job runs, which keeps the transfer
 * busy.
 */
#ifndef IOD_SERVER_IMPL_H
#define IOD_SERVER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "embedded/iod/flow.h"
#include "embedded/iod/log.h"
#include "embedded/iod/net.h"
#include "embedded/iod/pool.h"
#include "embedded/iod/proto.h"
#include "embedded/iod/server.h"
#include "embedded/iod/store.h"
#include "embedded/iod/workers.h"

#define SERVER_KEEPALIVE_MS                                                                    \
    2000 /* ms between the keep-alives of a request that is still in progress */
#define SERVER_PEER_TRANSFERS 64 /* open objects of one peer */
#define SERVER_PEER_REQUESTS  64 /* unanswered requests of one peer; more are dropped */
#define SERVER_REQUEST_BYTES                                                                   \
    (UINT64_C(32) << 20) /* bytes; limit on messages and replies of all requests */

/* Counters: member, text. */
#define SERVER_COUNTERS(X)                                                                     \
    X(requests, "requests")                                                                    \
    X(refused, "requests refused")                                                             \
    X(malformed, "malformed requests")                                                         \
    X(uploads, "uploads committed")                                                            \
    X(discarded, "uploads discarded")                                                          \
    X(downloads, "downloads opened")                                                           \
    X(bytes_in, "bytes in")                                                                    \
    X(bytes_out, "bytes out")

struct server_counters {
#define SERVER_COUNTER(name, text) uint64_t name;
    SERVER_COUNTERS(SERVER_COUNTER)
#undef SERVER_COUNTER
};

/*
 * Client.  Holds a reference to its BMI address, and a receive with a tag that no message has
 * (`watch`), which completes when the connection is lost.
 */
struct peer {
    struct server *server;
    struct peer *next, **at; /* list of all peers; pointer to this one */
    bool admitted;           /* by --allow; otherwise all requests are refused */
    unsigned uses;
    BMI_addr_t addr;
    char name[128];
    struct net_op watch;
    bool gone;
    struct transfer *transfers;
    uint32_t transfer_count; /* including those being opened */
    uint32_t buffers;        /* granted to its transfers */
    uint32_t request_count;
};

/* Request, from its arrival until its reply is sent. */
struct request {
    struct server *server;
    struct request *next, **at; /* list of all requests of the server; pointer to this one */
    struct peer *peer;
    struct transfer *transfer;
    void *message;  /* owned by BMI, referenced by `decoded`; NULL: refused unread */
    uint64_t bytes; /* bytes of message and reply, as counted for the server */
    struct iod_message decoded;
    bmi_msg_tag_t tag;
    int64_t since; /* clock_ms() of the arrival, the last keep-alive, or the reply */
    bool working;  /* not answered */
    bool replying; /* reply in flight */
    bool keeping;  /* keep-alive in flight */
    struct job job;
    struct net_op reply_op, keep_op;
    uint8_t *reply;
    uint8_t keep[IOD_KEEP_MAX];
};

/* Object that a client has open. */
struct transfer {
    struct server *server;
    struct peer *peer;
    struct transfer *next; /* next of the peer */
    uint64_t handle;
    bool upload;
    bool sealed;
    bool whole; /* all data of an upload is written */
    bool committed;
    bool closing;  /* ends as soon as nothing works on it */
    bool busy;     /* a job works on it, including the one that opens it */
    bool released; /* the closing job is queued or running */
    char name[IOD_NAME_MAX + 1];
    struct object *object;
    uint32_t buffer_size, buffers;
    struct flow *flow;
    struct request *active; /* request of the flow; NULL when answered */
    struct request *closer; /* request to be answered when closed; NULL: none */
    struct job close_job;
    int64_t used_at;
};

/* Metrics file; see export.c. */
struct exporter {
    struct job job;
    struct server *server;
    atomic_bool busy; /* a worker writes the file */
    int error;        /* of the last attempt; used by the worker only */
    int64_t at;       /* clock_ms() of the last request */
};

struct server {
    struct server_config config;
    struct access *loopback;    /* NULL: not needed */
    const struct access *allow; /* NULL: all hosts */
    bmi_context_id context;
    struct net_log log;
    BMI_addr_t self; /* own address, by which buffers are allocated */
    struct workers *workers;
    struct pool *pool;
    struct store *store;
    pthread_mutex_t lock;
    struct peer *peers;
    struct request *requests;
    uint64_t request_bytes;
    uint32_t transfers, transfers_max; /* open, or being opened; and the limit */
    uint64_t last_handle;
    bool draining;
    int64_t ticked_at, trimmed_at;
    struct server_counters counters;
    struct exporter export;
};

/* Adds to a counter of a peer's server. */
#define SERVER_COUNT(peer, name, n) ((peer)->server->counters.name += (n))

/* export.c */
/* Checks that the metrics file can be written, and is not inside a store, including the one
 * just opened.  Returns 0, or -errno after a log line with the cause. */
int server_export_check(const char *place);

/* request.c; with the lock held, except for request_arrived() */
/* handles a new request, whose buffer and address reference it takes over */
void request_arrived(struct server *server, struct BMI_unexpected_info *info);
/* answer a request, which may free it */
void request_reply(struct request *request, const struct iod_message *reply);
void request_refuse(struct request *request, int error, const char *what);
void request_forget(struct request *request); /* ends it without a reply */
void request_keep_alive(struct request *request);

/* transfer.c; work_*() run on a worker without the lock, the others with the lock held */
void work_put_open(struct request *request);
void work_get_open(struct request *request);
void work_seal(struct request *request);
void work_commit(struct request *request);
void work_remove(struct request *request);
bool transfer_reserve(struct peer *peer); /* before an object is opened; false: limit reached */
void transfer_unreserve(struct peer *peer);
/* returns the peer's open transfer with this handle; NULL: none */
struct transfer *transfer_find(struct peer *peer, uint64_t handle);
bool transfer_is_busy(const struct transfer *transfer);
/* starts READ or WRITE of a request, which is answered at the end or refused */
void transfer_start_flow(struct transfer *transfer, struct request *request);
/* closes a transfer when idle; `closer`: request to be answered then, or NULL; `error` cancels
 * its flow */
void transfer_close(struct transfer *transfer, struct request *closer, int error);
void transfer_job_ended(struct transfer *transfer);

/* server.c; returns the counters, with the bytes of flows in progress; with the lock held */
struct server_counters server_counters(const struct server *server);

/* peer.c; with the lock held */
/* counts a use; NULL: no memory */
struct peer *peer_get(struct server *server, BMI_addr_t addr);
void peer_use(struct peer *peer);
void peer_put(struct peer *peer);
void peer_log(struct peer *peer, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
