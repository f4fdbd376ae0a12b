/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An engine belongs to the process that opened it.  After fork() the child has a copy of its
 * tables, but not its threads; locks may be held in it for ever; its devices write to the
 * parent's memory and its doorbells are the parent's.  No RDMA connection survives that, so the
 * child is told instead of being left to hang: each call fails with -ENODEV, and one line in
 * the log says what to do.  A program that becomes a daemon (pvfs2fuse) has to do so before it
 * opens an engine; one that did so later has mostly closed what the host logs to, so the
 * system's log gets that line, too.  A child may open an engine of its own where the fabric
 * can (bmi_ib/device/device.c).
 *
 * How the child knows: by a page that the kernel gives to children empty, whichever way they
 * were made.  That costs a load where getpid() would cost a system call.
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
    if (madvise(page, size, MADV_WIPEONFORK) != 0) { /* before Linux 4.14: it is never told */
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

    if (rme_engine(rme)->told)
        return;
    rme_engine(rme)->told = true;
    rme_log_say(rme->log, RME_LOG_ERROR, why, (long)getpid());
    syslog(LOG_DAEMON | LOG_ERR, why, (long)getpid());
}
