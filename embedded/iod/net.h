/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * net.h - BMI with completions passed to their operations.
 *
 * One thread calls net_poll(), which runs the `done` functions.  Any thread may post.  A posted
 * operation (the post returned 0) gets exactly one call of `done`, possibly before the post
 * returns in another thread; post with the lock that `done` takes.
 */
#ifndef IOD_NET_H
#define IOD_NET_H

#include <pthread.h>

#include "embedded/bmi/bmi.h"

struct net_op {
    void (*done)(struct net_op *op, int error, int64_t actual); /* error: 0 or -errno */
    bmi_op_id_t id;                                             /* 0: not posted */
};

/*
 * Log lines of BMI and its methods, instead of standard error.  `line`, if not NULL, receives
 * each line, on any thread.  The first lines are kept, because they explain a failure to start
 * or to look up an address.
 */
struct net_log {
    pthread_mutex_t lock;
    char text[800]; /* concatenated lines; empty: none */
    void (*line)(const char *line);
};

/* Starts and ends the collection of log lines; one at a time per process. */
void net_log_begin(struct net_log *log, void (*line)(const char *line));
/* Passes the lines so far to `line`, as one, and all later lines. */
void net_log_follow(struct net_log *log, void (*line)(const char *line));
void net_log_end(struct net_log *log);

/* Copies the kept lines; without any, net_error_text(). */
void net_log_explain(struct net_log *log, int error, char *text, size_t size);

/*
 * Starts BMI and opens a context.  `listen`: a server's addresses ("ib://host:port", several
 * with commas), where alone it can be reached; NULL for a client.  Returns 0 or -errno.
 */
int net_open(const char *listen, const char *options, bmi_context_id *context);
void net_close(bmi_context_id context);

/* Runs completions; without any, sleeps up to `idle_ms`.  Returns the number of completions, or
 * -errno. */
int net_poll(bmi_context_id context, int idle_ms);

/*
 * Post an operation.  Returns 0: `done` will be called; 1: complete, *actual set (receives), no
 * call; -errno: failed, no call.
 */
int net_send(bmi_context_id context, BMI_addr_t to, const void *bytes, int64_t length,
             enum bmi_buffer_type type, bmi_msg_tag_t tag, struct net_op *op);
int net_recv(bmi_context_id context, BMI_addr_t from, void *bytes, int64_t length,
             enum bmi_buffer_type type, bmi_msg_tag_t tag, struct net_op *op, int64_t *actual);
int net_send_request(bmi_context_id context, BMI_addr_t to, const void *request, int64_t length,
                     bmi_msg_tag_t tag, struct net_op *op);

/* Requests the end of an operation, whose `done` is still called.  Hold the lock that protects
 * it. */
void net_cancel(bmi_context_id context, struct net_op *op);

/* Explains a network error to users of copies. */
const char *net_error_text(int error);

#endif
