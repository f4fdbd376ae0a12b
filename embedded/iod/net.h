/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * net.h - BMI with completions delivered to the operation that they belong to.
 *
 * One thread calls net_poll(); it runs the `done` functions.  Any thread may post.  An
 * operation that was posted (the post returned 0) gets exactly one call of its `done`; it may
 * come before the post has returned in another thread, so posts are made with the lock held
 * that `done` takes.
 */
#ifndef IOD_NET_H
#define IOD_NET_H

#include <pthread.h>
#include <sys/uio.h>

#include "embedded/bmi/bmi.h"

#define NET_PIECES_MAX 1024 /* pieces of memory of one message */

struct net_op {
    void (*done)(struct net_op *op, int error, int64_t actual); /* error: 0 or -errno */
    bmi_op_id_t id;                                             /* 0 when not posted */
};

/* Memory for messages: one block, or pieces with gaps between them. */
struct net_memory {
    enum bmi_buffer_type type;
    int pieces;
    struct iovec *piece;
};

/*
 * What BMI and its methods have to say goes here instead of to standard error.  `line`, if not
 * NULL, takes every line, on any thread.  The first ones are kept: they explain best why BMI
 * does not start or does not take an address.
 */
struct net_log {
    pthread_mutex_t lock;
    char text[800]; /* one behind the other; empty: nothing was said */
    void (*line)(const char *line);
};

void net_log_begin(struct net_log *log, void (*line)(const char *line));
/* Gives what was said until now to `line`, in one, and what is said from now on. */
void net_log_follow(struct net_log *log, void (*line)(const char *line));
void net_log_end(struct net_log *log);

/* Copies what was said, or else what net_error_text() says. */
void net_log_explain(struct net_log *log, int error, char *text, size_t size);

/*
 * Starts BMI and opens a context.  A server gives its listen addresses ("ib://host:port",
 * several with commas), and is reached at those only; NULL for a client.  0 or -errno.
 */
int net_open(const char *listen, const char *options, bmi_context_id *context);
void net_close(bmi_context_id context);

/* Runs completions; sleeps up to `idle_ms` when there are none.  The number of completions, or
 * -errno. */
int net_poll(bmi_context_id context, int idle_ms);

/*
 * Post.  0: `done` will be called.  1: complete already, *actual set (receives), no call.
 * Negative: -errno, no call. The first `length` bytes of the memory are sent, or receive the
 * message.
 */
int net_send(bmi_context_id context, BMI_addr_t to, const struct net_memory *memory,
             int64_t length, bmi_msg_tag_t tag, struct net_op *op);
int net_recv(bmi_context_id context, BMI_addr_t from, const struct net_memory *memory,
             int64_t length, bmi_msg_tag_t tag, struct net_op *op, int64_t *actual);
int net_send_request(bmi_context_id context, BMI_addr_t to, const void *request, int64_t length,
                     bmi_msg_tag_t tag, struct net_op *op);

/* Asks for an operation to end soon; it still gets its call.  Under the lock that guards it. */
void net_cancel(bmi_context_id context, struct net_op *op);

/* What a network error means to somebody who copies files. */
const char *net_error_text(int error);

#endif
