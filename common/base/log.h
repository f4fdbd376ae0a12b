/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The queue of log lines to the host.  Lines are formatted and queued under any lock.
 * rme_log_drain, which the engine calls without a lock, passes them to the host's callback.
 * Own lock, a leaf in the lock order.
 *
 * A line whose format begins with "%s: " concerns the host named there.  Of the lines with the
 * same format and host, on any port, RME_LOG_BURST pass in RME_LOG_PERIOD_MS; DEBUG is not
 * limited.  The other lines are counted, and their number is logged before the next line that
 * follows the period, or when the log is freed.  Any number of peers causes at most 64 times
 * RME_LOG_BURST lines in a period.
 */
#ifndef RME_LOG_H
#define RME_LOG_H

#include <stdatomic.h>
#include "rme.h"

struct rme_log;

/* limit of a line in bytes with its final zero; longer lines are cut */
#define RME_LOG_LINE 512
/* limit of queued lines, half of it for DEBUG; beyond it new lines are dropped, and their
 * number is logged at the level of the most severe one */
#define RME_LOG_QUEUE     128
#define RME_LOG_BURST     10
#define RME_LOG_PERIOD_MS 10000

/* Creates a log.  NULL: no memory.  fn may be NULL: lines are dropped. */
struct rme_log *rme_log_new(rme_log_fn fn, void *arg);

/* Sets `chores` after each line from now on, and at once if lines are queued. */
void rme_log_tells(struct rme_log *log, atomic_bool *chores);

/* Drains and frees a log.  NULL is allowed. */
void rme_log_free(struct rme_log *log);

/* Queues a line (without a newline).  Never blocks, never calls the host.  `log` is a struct
 * rme_log or NULL; its type is that of rme_fabric_config.log_arg. */
void rme_log_put(void *log, enum rme_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Passes a line to the host at once, before all queued lines, which belong to the parent.  For
 * a child made by fork: takes no lock, because the thread that holds a lock does not exist in
 * the child.  No lock of the engine may be held.  log may be NULL.
 */
void rme_log_text(const struct rme_log *log, enum rme_log_level level, const char *text);

/*
 * Passes the queued lines to the host, in order.  No lock of the engine may be held.  Returns
 * at once if another thread drains (or the host's callback calls the engine): that thread
 * passes the new lines, too.
 */
void rme_log_drain(struct rme_log *log);

/* Returns the remedy for an error (negative errno) that may be a limit of this process or
 * machine; otherwise `else_do`. */
RME_API const char *rme_remedy(int error, const char *else_do);

#endif
