/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Log lines on their way to the host.  Lines are formatted and queued under any lock, and
 * handed to the host's callback by rme_log_drain, which the engine calls with no lock held. Own
 * lock, a leaf in the lock order.
 *
 * A line whose format begins with "%s: " is about the peer named there.  How many such lines
 * are logged is limited (log_limit.h), but for DEBUG; how many were left out is logged when
 * their period is over, or when the log is freed.
 */
#ifndef RME_LOG_H
#define RME_LOG_H

#include "rme.h"

struct rme_log;

#define RME_LOG_LINE 512 /* bytes of a line with its final zero; longer ones are cut */
#define RME_LOG_QUEUE                                                                          \
    128 /* lines waiting; when full the newest are dropped, counted, and the count is logged   \
         */

/* NULL: no memory.  fn may be NULL: lines are dropped at once. */
struct rme_log *rme_log_new(rme_log_fn fn, void *arg);

/* Drains and frees.  NULL is allowed. */
void rme_log_free(struct rme_log *log);

/* Queues a line (no newline at its end).  Never blocks, never calls the host.  log may be NULL.
 */
void rme_log_put(struct rme_log *log, enum rme_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Hands a line to the host at once, past the lines that wait, which are the parent's.  For a
 * child by fork: it takes no lock, as nobody may release that there.  No lock of the engine may
 * be held.  log may be NULL.
 */
void rme_log_say(const struct rme_log *log, enum rme_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* rme_log_put with the signature of rme_fabric_config.log; arg is the struct rme_log. */
void rme_log_from_fabric(void *arg, enum rme_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* True when lines wait, or a count of lines left out will; needs no lock, cheap enough for
 * every call of the engine. */
bool rme_log_pending(const struct rme_log *log);

/*
 * Hands the waiting lines to the host, in order.  No lock of the engine may be held.  When
 * another thread drains (or the host's callback calls the engine) it returns at once: that
 * thread takes the new lines along.
 */
void rme_log_drain(struct rme_log *log);

#endif
