/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Refuses the use of a parent's engine in a forked child.
 *
 * The child has copies of the tables, but no threads; locks may be held that no thread will
 * release; devices write to the parent's memory, and the doorbells are the parent's.  So each
 * call fails with -ENODEV, and one log line has the remedy: a daemon (pvfs2fuse) must fork
 * before opening an engine.  A daemon that forked later has mostly closed the host's log, so
 * the system log gets the line, too.  A child may open an engine of its own if the fabric
 * permits.
 */
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "engine/engine.h"
#include "memory/monitor.h"

unsigned rme_forks;
static int fork_error;

static void in_child(void)
{
    rme_forks++;
    rme_monitor_after_fork_in_child();
}

/* Registers the only fork handlers of the engine (doc/architecture.md, "Fork"). */
static void guard_forks(void)
{
    fork_error = -pthread_atfork(rme_monitor_before_fork, rme_monitor_after_fork, in_child);
}

int rme_forked_mark(struct rme *rme)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, guard_forks);
    rme_engine(rme)->forks = rme_forks;
    if (fork_error != 0)
        rme_log_put(rme->log, RME_LOG_ERROR,
                    "engine: forks of the process cannot be detected: pthread_atfork: %s; "
                    "restart the process when memory is available",
                    strerror(-fork_error));
    return fork_error;
}

void rme_forked_explain(struct rme *rme)
{
    char why[RME_LOG_LINE];

    if (rme_engine(rme)->logged)
        return;
    rme_engine(rme)->logged = true;
    snprintf(why, sizeof(why),
             "process %ld: all operations fail: a fork of the one that initialized BMI has no "
             "connections; initialize BMI after the fork (a daemon that forks late: run it in "
             "the foreground, -f)",
             (long)getpid());
    rme_log_text(rme->log, RME_LOG_ERROR, why);
    syslog(LOG_DAEMON | LOG_ERR, "%s", why);
}
