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
#include <syslog.h>
#include <unistd.h>

#include "engine/engine.h"

unsigned rme_forks;

static void count_fork(void)
{
    rme_forks++;
}

static void count_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

void rme_forked_mark(struct rme *rme)
{
    static pthread_once_t counted = PTHREAD_ONCE_INIT;

    pthread_once(&counted, count_forks);
    rme_engine(rme)->forks = rme_forks;
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
