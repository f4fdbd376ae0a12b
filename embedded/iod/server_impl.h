/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * server_impl.h - the server's insides, shared by server.c (start, clock, reports), peer.c (who
 * is connected), request.c (requests and replies) and transfer.c (open objects and their data).
 *
 * One lock guards everything here.  It is not held while the disk works.  Lock order: server,
 * flow, pool, BMI.
 *
 * Who owns what, and who frees it:
 *
 *   peer      has a count of its uses: one for the connection, as long as `watch` is posted,
 *             one for each request, one for each transfer, one for whoever called peer_get().
 *             peer_put() of the last one frees it, and nothing else does.  So a request and a
 *             transfer may use their peer until their own end, whether the client is there or
 *             not.
 *   request   owns the message and the reply.  It ends when it is answered (or forgotten) and
 *             neither its reply nor a sign of life is on its way: request_settle() frees it,
 *             with the lock held.  Whoever answers a request does not touch it afterwards.
 *   transfer  owns the object and the flow.  Only one thing at a time works on it: the job that
 *             opens it, a job of a request (`busy`), or a flow.  Whoever wants it gone sets
 *             `closing`; when nothing works on it any more, close_job runs, on a worker, and it
 *             alone frees object and transfer.
 *
 * A transfer points at requests (`active`, `closer`) that end only when the transfer answers
 * them.  A request points at its transfer only while its job runs, which keeps the transfer
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
    2000                        /* a request that takes longer gets a sign of life this often */
#define SERVER_PEER_REQUESTS 64 /* unanswered requests of one peer; more are dropped */
#define SERVER_REQUEST_BYTES                                                                   \
    (UINT64_C(32) << 20)    /* messages of all requests, and their answers, at most */
#define SERVER_BUCKETS 1024 /* of the tables of peers and hosts */

/* Counters: member, what one says about it. */
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

/* Where peers are, and what they hold together; see peer.c. */
struct host {
    struct host *next; /* of the bucket */
    char name[128];
    unsigned peers;
    int64_t left_at; /* clock_ms() when the last peer went */
    bool admitted;   /* --allow has it; else it gets nothing but refusals */
    uint32_t transfers;
    uint64_t request_bytes;
    struct share share; /* buffers */
    struct turn turn;   /* jobs */
    int64_t line_second;
    unsigned lines, lines_left_out; /* of the log, in that second */
};

/*
 * Somebody who sent us something.  It keeps one reference to its BMI address, and one receive
 * with a tag that nobody uses (`watch`): that receive ends when the connection does, which is
 * how we hear of it.
 */
struct peer {
    struct server *server;
    struct peer *next, **at; /* all peers; what points here */
    struct peer *of_bucket;
    struct host *host;
    unsigned uses;
    BMI_addr_t addr;
    char name[128];
    struct net_op watch;
    bool gone;
    struct transfer *transfers;
    uint32_t transfer_count; /* those being opened included */
    uint32_t request_count;
    struct server_counters counters;
};

/* A request from its arrival until its reply is out. */
struct request {
    struct server *server;
    struct request *next, **at; /* all requests of the server; what points here */
    struct peer *peer;
    struct transfer *transfer;
    void *message;  /* BMI's, behind `decoded`; NULL: refused unread */
    uint64_t bytes; /* of message and reply, as counted for the host */
    struct iod_request decoded;
    bmi_msg_tag_t tag;
    int64_t since; /* clock_ms() of the arrival, or of the last sign of life */
    bool working;  /* not answered yet */
    bool replying; /* the reply is on its way */
    bool keeping;  /* a sign of life is on its way */
    struct job job;
    struct net_op reply_op, keep_op;
    uint8_t *reply;
    uint8_t keep[32];
};

/* An object that a client has open. */
struct transfer {
    struct server *server;
    struct peer *peer;
    struct transfer *next; /* of the peer */
    uint64_t handle;
    bool upload;
    bool sealed;
    bool prepared; /* it stays without its client; see store.h */
    bool failed;   /* data is missing: it cannot be sealed */
    bool committed;
    bool closing;  /* goes as soon as nothing works on it */
    bool busy;     /* a job works on it, the one that opens it included */
    bool released; /* the closing job is on its way */
    char name[IOD_NAME_MAX + 1];
    struct object *object;
    uint32_t buffer_size, buffers;
    uint64_t written; /* data before this offset of the object was announced */
    struct flow *flow;
    struct request *active; /* whom the flow is for; NULL when answered */
    struct request *closer; /* who wants to hear that it is closed */
    struct job close_job;
    int64_t used_at;
};

/* The file of metrics; see export.c. */
struct exporter {
    struct job job;
    struct server *server;
    atomic_bool busy; /* a worker has it */
    int error;        /* of the last time; the worker's */
    int64_t at;       /* clock_ms() when it was asked for */
};

struct server {
    struct server_config config;
    struct access *loopback;    /* NULL: not needed */
    const struct access *allow; /* NULL: everybody */
    bmi_context_id context;
    struct net_log log;
    BMI_addr_t self; /* our own address: what buffers are allocated by */
    struct workers *workers;
    struct pool *pool;
    struct store *store;
    pthread_mutex_t lock;
    struct peer *peers;
    struct peer *peer_of[SERVER_BUCKETS];
    struct host *hosts[SERVER_BUCKETS];
    unsigned host_count;
    struct request *requests;
    uint64_t request_bytes;
    uint32_t transfers, transfers_most; /* open ones, those being opened included */
    uint64_t last_handle;
    bool draining;
    int64_t ticked_at, trimmed_at;
    struct server_counters counters;
    struct exporter export;
};

/* Adds to a counter of the server and of a peer. */
#define SERVER_COUNT(peer, name, n)                                                            \
    ((peer)->counters.name += (n), (peer)->server->counters.name += (n))

/* export.c */
/* May the file of metrics be kept there, with the store in this folder?  0, or -errno after a
 * line that says why not. */
int server_export_check(const char *place, const char *store);

/* request.c; all with the lock held, but for request_arrived */
void request_arrived(struct server *server, struct BMI_unexpected_info *info);
void request_reply(struct request *request, const struct iod_reply *reply);
void request_refuse(struct request *request, int error, const char *what);
void request_forget(struct request *request); /* ends it without a reply */
void request_keep_alive(struct request *request);

/* transfer.c; `work_` ones run on a worker, without the lock, the others with it */
void work_put_open(struct request *request);
void work_get_open(struct request *request);
void work_extents(struct request *request);
void work_seal(struct request *request);
void work_commit(struct request *request);
void work_forget(struct request *request);
void work_remove(struct request *request);
bool transfer_reserve(struct peer *peer); /* before an object is opened; false: no more */
void transfer_unreserve(struct peer *peer);
struct transfer *transfer_find(struct peer *peer, uint64_t handle);
bool transfer_is_busy(const struct transfer *transfer);
void transfer_start_flow(struct transfer *transfer, struct request *request);
void transfer_close(struct transfer *transfer, struct request *closer, int error);
void transfer_job_ended(struct transfer *transfer);

/* server.c: bytes are counted when a flow ends; adds those of flows under way.  With the lock
 * held. */
void peer_count_under_way(const struct peer *peer, struct server_counters *counters);

/* peer.c; with the lock held */
/* counts a use; NULL: no memory */
struct peer *peer_get(struct server *server, BMI_addr_t addr);
void peer_use(struct peer *peer);
void peer_put(struct peer *peer);
void peer_log(struct peer *peer, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hosts_forget(struct server *server, int64_t now); /* those that left some time ago */

/* May who holds `held` have `more`, when all hold `all` of `most`? */
bool host_may(uint64_t held, uint64_t more, uint64_t all, uint64_t most);

#endif
