/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * context_log.c - see context_log.h.
 *
 * Each node has a file with one record per context.  The holder of the lock on a record (of the
 * open file: F_OFD_SETLK) owns the context.  The kernel releases the lock when the last
 * descriptor of the open file is closed, hence at the death of its process: a record without a
 * lock is free, independently of its content, and dead owners need no cleanup.  A record
 * written in part has a wrong checksum and counts as empty.
 *
 * Several users: all may write the file, because all may attach to a free context of the
 * network.  The log coordinates cooperating processes; the driver refuses a second owner of a
 * context.  Data read from the file is only shown, or increases the generation.  Symbolic links
 * are not followed, and only missing files are created.
 *
 * A forked child closes its parent's descriptors; otherwise the child would hold the lock while
 * it lives, and neither its parent's successor nor the child could have the context.
 */
#include "bmi_elan4/context_log.h"
#include "bmi_elan4/forked.h"
#include "bmi_elan4/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD_BYTES 64
#define MAGIC        UINT64_C(0x31676f6c34656d62)

struct record {
    uint64_t magic, generation;
    int64_t pid, uid;
    uint64_t sum;
};
_Static_assert(sizeof(struct record) <= RECORD_BYTES, "a record");

struct bmi_elan4_log {
    int fd;
    char path[512];
    struct bmi_elan4_held held;
    struct bmi_elan4_range range;
    bool taken[]; /* by this process; locks of one open file do not exclude each other */
};

static uint64_t sum_of(const struct record *r)
{
    uint64_t s = r->magic ^ r->generation * UINT64_C(0x9e3779b97f4a7c15);

    return s ^ (uint64_t)r->pid << 20 ^ (uint64_t)r->uid << 40;
}

static bool is_whole(const struct record *r)
{
    return r->magic == MAGIC && r->sum == sum_of(r);
}

static off_t place(int context)
{
    return (off_t)context * RECORD_BYTES;
}

static int lock(struct bmi_elan4_log *log, int context, int command, short type,
                struct flock *out)
{
    *out = (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = place(context), .l_len = RECORD_BYTES};
    while (bmi_elan4_lock(log->fd, log->path, command, out) < 0)
        if (errno != EINTR)
            return errno == EACCES ? -EAGAIN : -errno;
    return 0;
}

/* Creates the folder for all users, with the sticky bit, like /tmp. */
static int make_folder(const char *folder)
{
    if (mkdir(folder, 01777) == 0)
        return chmod(folder, 01777) < 0 ? -errno : 0;
    return errno == EEXIST ? 0 : -errno;
}

int bmi_elan4_log_open(const char *folder, int node, const struct bmi_elan4_range *r,
                       struct bmi_elan4_log **out)
{
    char why[200];
    struct stat st;
    int rc = bmi_elan4_range_check(r, why, sizeof(why));

    if (rc < 0)
        return rc;
    if (node < r->low_node || node > r->high_node)
        return -EINVAL;
    size_t count = (size_t)(r->high_context - r->low_context + 1);
    struct bmi_elan4_log *log = calloc(1, sizeof(*log) + count * sizeof(log->taken[0]));
    if (!log)
        return -ENOMEM;
    log->range = *r;
    rc = -ENAMETOOLONG;
    if ((size_t)snprintf(log->path, sizeof(log->path), "%s/node-%d", folder, node) >=
        sizeof(log->path))
        goto err_log;
    rc = make_folder(folder);
    if (rc < 0)
        goto err_log;
    rc = log->fd = bmi_elan4_shared_file(log->path);
    if (rc < 0)
        goto err_log;
    if (fstat(log->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1) {
        rc = -EINVAL;
        goto err_file;
    }
    bmi_elan4_hold(&log->held, log->fd);
    *out = log;
    return 0;

err_file:
    close(log->fd);
err_log:
    free(log);
    return rc;
}

/* Returns the next generation: above the last owner's, and above any that the file has lost. */
static uint64_t next_generation(const struct record *old)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    uint64_t now = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
    /* a record far ahead of the clock is ignored */
    if (is_whole(old) && old->generation >= now && old->generation - now < 60000000)
        return old->generation + 1;
    return now;
}

static int take_one(struct bmi_elan4_log *log, int context, uint64_t *generation)
{
    struct record old = {0}, r;
    struct flock l;
    int i = context - log->range.low_context;

    if (log->taken[i])
        return -EBUSY;
    int rc = lock(log, context, F_OFD_SETLK, F_WRLCK, &l);
    if (rc < 0)
        return rc == -EAGAIN ? -EBUSY : rc;
    if (pread(log->fd, &old, sizeof(old), place(context)) < 0)
        memset(&old, 0, sizeof(old));
    r = (struct record){
        .magic = MAGIC, .generation = next_generation(&old), .pid = getpid(), .uid = geteuid()};
    r.sum = sum_of(&r);
    ssize_t n = pwrite(log->fd, &r, sizeof(r), place(context));
    if (n != (ssize_t)sizeof(r)) {
        rc = n < 0 ? -errno : -ENOSPC;
        lock(log, context, F_OFD_SETLK, F_UNLCK, &l);
        return rc;
    }
    log->taken[i] = true;
    *generation = r.generation;
    return context;
}

int bmi_elan4_log_take(struct bmi_elan4_log *log, int context, uint64_t *generation)
{
    const struct bmi_elan4_range *r = &log->range;

    if (context >= 0) {
        if (context < r->low_context || context > r->high_context)
            return -EINVAL;
        return take_one(log, context, generation);
    }
    for (int c = r->low_context + 1; c <= r->high_context; c++) {
        int rc = take_one(log, c, generation);
        if (rc != -EBUSY)
            return rc;
    }
    return -EBUSY;
}

void bmi_elan4_log_give(struct bmi_elan4_log *log, int context)
{
    const struct bmi_elan4_range *r = &log->range;
    struct flock l;

    if (context < r->low_context || context > r->high_context ||
        !log->taken[context - r->low_context])
        return;
    log->taken[context - r->low_context] = false;
    /* the record remains: the next generation is above this one */
    lock(log, context, F_OFD_SETLK, F_UNLCK, &l);
}

int bmi_elan4_log_owner(struct bmi_elan4_log *log, int context, struct bmi_elan4_owner *owner)
{
    const struct bmi_elan4_range *r = &log->range;
    struct record rec = {0};
    struct flock l;

    if (context < r->low_context || context > r->high_context)
        return -EINVAL;
    if (!log->taken[context - r->low_context]) {
        int rc = lock(log, context, F_OFD_GETLK, F_WRLCK, &l);
        if (rc < 0)
            return rc;
        if (l.l_type == F_UNLCK)
            return 0;
    }
    if (pread(log->fd, &rec, sizeof(rec), place(context)) < 0)
        return -errno;
    *owner = (struct bmi_elan4_owner){0};
    if (is_whole(&rec))
        *owner = (struct bmi_elan4_owner){rec.pid, rec.uid, rec.generation};
    return 1;
}

/* Finds a process that has locked more of the file than a record, which keeps all others of the
 * node from starting; the error names that process. */
bool bmi_elan4_log_stranger(struct bmi_elan4_log *log, int context, pid_t *pid)
{
    struct flock l;

    if (log->taken[context - log->range.low_context] ||
        lock(log, context, F_OFD_GETLK, F_WRLCK, &l) < 0 || l.l_type == F_UNLCK)
        return false;
    *pid = l.l_pid;
    return l.l_pid > 0 || l.l_type != F_WRLCK || l.l_start != place(context) ||
           l.l_len != RECORD_BYTES;
}

void bmi_elan4_log_close(struct bmi_elan4_log *log)
{
    bmi_elan4_let_go(&log->held);
    for (int c = log->range.low_context; c <= log->range.high_context; c++)
        bmi_elan4_log_give(log, c);
    close(log->fd);
    free(log);
}
