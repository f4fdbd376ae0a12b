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
 *
 * A child is recognised by a page that the kernel clears in every child (MADV_WIPEONFORK): one
 * load instead of the system call getpid().
 */
#include <sys/mman.h>
#include <syslog.h>
#include <unistd.h>

#include "engine/engine.h"

void rme_forked_mark(struct rme *rme)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    rme_engine(rme)->ours = NULL;
    if (page == MAP_FAILED)
        return;
    /* before Linux 4.14: a fork is not detected */
    if (madvise(page, size, MADV_WIPEONFORK) != 0) {
        munmap(page, size);
        return;
    }
    *page = 1;
    rme_engine(rme)->ours = page;
}

void rme_forked_unmark(struct rme *rme)
{
    if (rme_engine(rme)->ours != NULL)
        munmap((void *)rme_engine(rme)->ours, (size_t)sysconf(_SC_PAGESIZE));
}

void rme_forked_explain(struct rme *rme)
{
    static const char why[] =
        "process %ld: all operations fail: a fork of the one that initialized BMI has no "
        "connections; initialize BMI after the fork (a daemon that forks late: run it in the "
        "foreground, -f)";

    if (rme_engine(rme)->logged)
        return;
    rme_engine(rme)->logged = true;
    rme_log_text(rme->log, RME_LOG_ERROR, why, (long)getpid());
    syslog(LOG_DAEMON | LOG_ERR, why, (long)getpid());
}
