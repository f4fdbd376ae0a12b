/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * conn_info.h - a process's connection information (connection data): identity and address of
 * its input queue.  The first message to a queue, and its answer, contain the sender's.
 *
 * A server's is also sent over TCP: a client connects to a known port, the server sends its
 * connection data, and the connection is closed.  The server's side is a bootstrap server, the
 * client's a query.  The client sends nothing, so the server keeps no connection, and no client
 * can delay others.  Nothing blocks; one thread at a time uses a bootstrap server or a query.
 */
#ifndef BMI_ELAN4_CONN_INFO_H
#define BMI_ELAN4_CONN_INFO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "bmi_elan4/process.h"

#define BMI_ELAN4_CONN_INFO_BYTES 64
#define BMI_ELAN4_ANY_PROCESS     UINT32_MAX

/* Results of the check of connection data, with their texts. */
#define BMI_ELAN4_VERDICTS(X)                                                                  \
    X(WELCOME, "welcome")                                                                      \
    X(VERSION, "different protocol version")                                                   \
    X(RANGE, "different elan_nodes or elan_contexts; give all processes the same")             \
    X(KEY, "different elan_key; give all processes of a file system the same")                 \
    X(OTHER, "another process, or no server, has this context")                                \
    X(FULL, "connection limit reached")

enum bmi_elan4_verdict {
#define X(NAME, prose) BMI_ELAN4_##NAME,
    BMI_ELAN4_VERDICTS(X)
#undef X
        BMI_ELAN4_VERDICT_COUNT
};

/* Connection data as sent: all hosts of Elan4 are little-endian. */
struct bmi_elan4_conn_info {
    uint64_t magic;
    uint32_t version;
    uint32_t unused; /* 0 */
    uint32_t vp;     /* process number of the connection data's owner */
    uint32_t wanted; /* process number of the receiver; BMI_ELAN4_ANY_PROCESS for all */
    struct bmi_elan4_range range;
    uint64_t queue;      /* Elan address of the input queue */
    uint64_t generation; /* distinguishes this owner of the context from earlier ones; not 0 */
    uint64_t key;        /* hash of the shared key */
};
_Static_assert(sizeof(struct bmi_elan4_conn_info) == BMI_ELAN4_CONN_INFO_BYTES,
               "connection data");

/* Fills in the connection data of the process at `context` of `node`, for any receiver. */
void bmi_elan4_conn_info_fill(struct bmi_elan4_conn_info *conn_info,
                              const struct bmi_elan4_range *r, const unsigned key[4], int node,
                              int context, uint64_t queue, uint64_t generation);

/* Decodes connection data.  Returns 0, or -EPROTO for other data, to which no reply is
 * possible.  Connection data of another version is valid. */
int bmi_elan4_conn_info_decode(const uint8_t in[BMI_ELAN4_CONN_INFO_BYTES],
                               struct bmi_elan4_conn_info *conn_info);

/* Returns the verdict of the owner of `mine` on the connection data `theirs`. */
enum bmi_elan4_verdict bmi_elan4_conn_info_judge(const struct bmi_elan4_conn_info *mine,
                                                 const struct bmi_elan4_conn_info *theirs);

/* Returns the text of a verdict; never NULL. */
const char *bmi_elan4_verdict_text(uint32_t verdict);

/* Bootstrap server. */
struct bmi_elan4_bootstrap {
    struct list_head next;
    int listener; /* becomes readable with each new client */
    /* clients may be left, for lack of a descriptor or because of their number: to be served
     * again soon */
    bool behind;
    struct bmi_elan4_conn_info conn_info;
};

struct bmi_elan4_query {
    int fd;       /* to be waited for until readable; -1: none */
    unsigned got; /* bytes of: */
    uint8_t in[BMI_ELAN4_CONN_INFO_BYTES];
};

/* Opens a listener.  Returns 0 or a negative errno (-EADDRINUSE, -EADDRNOTAVAIL ...).  The
 * caller owns the structure, which stays in place until closed. */
int bmi_elan4_bootstrap_open(const struct sockaddr *addr, socklen_t length,
                             const struct bmi_elan4_conn_info *mine,
                             struct bmi_elan4_bootstrap *bootstrap);
void bmi_elan4_bootstrap_close(struct bmi_elan4_bootstrap *bootstrap);
/* Serves the waiting clients.  Returns the number of connection data sent. */
int bmi_elan4_bootstrap_serve(struct bmi_elan4_bootstrap *bootstrap);
/* Starts a query.  Returns 0 or a negative errno, without a query. */
int bmi_elan4_query_begin(const struct sockaddr *addr, socklen_t length,
                          struct bmi_elan4_query *query);
/*
 * Continues a query.  Returns 0 with the server's connection data, which the caller judges;
 * -EAGAIN: incomplete; or another negative errno: -ECONNREFUSED no listener, -ECONNRESET
 * connection closed, -EPROTO not connection data.  After any result but -EAGAIN the query must
 * be ended.
 */
int bmi_elan4_query_step(struct bmi_elan4_query *query, struct bmi_elan4_conn_info *theirs);
void bmi_elan4_query_end(struct bmi_elan4_query *query);

#endif
