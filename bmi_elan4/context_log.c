/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * context_log.c - see context_log.h.
 *
 * Each node has a file with one record per context.  The process with the lock on a record owns
 * the context.  The kernel releases the lock with the process: a record without a lock is free,
 * independently of its content, and dead owners need no cleanup.  A record written in part has
 * a wrong check word and counts as empty.
 *
 * Locks of processes (F_SETLK) do not exclude the process itself, and the kernel drops them
 * when the process closes any descriptor of the file.  All logs of a process with the same file
 * therefore are one, with a table of the contexts that the process holds.  A forked child has
 * no locks of its parent and starts without logs.
 *
 * Several users: all may write the file, because all may attach to a free context of the
 * network.  The log coordinates cooperating processes; the driver refuses a second owner of a
 * context.  Data read from the file only increases the generation.  Symbolic links are not
 * followed, and only missing files are created.
 */
#include "bmi_elan4/context_log.h"
#include "bmi_elan4/kernel.h"
#include "bmi_elan4/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD_BYTES 64

struct record {
    uint64_t generation, check; /* check: all bits inverted */
};

struct bmi_elan4_log {
    struct bmi_elan4_log *next;
    int fd;
    unsigned users;
    dev_t dev;
    ino_t ino;
    bool taken[BMI_ELAN4_LAST_CONTEXT + 1]; /* by this process */
};

static struct bmi_elan4_log *logs; /* of process logs_of */
static pid_t logs_of;

/* Returns the generation in the record of a context; 0: none. */
static uint64_t read_record(const struct bmi_elan4_log *log, int context)
{
    struct record r;

    return pread(log->fd, &r, sizeof(r), (off_t)context * RECORD_BYTES) == sizeof(r) &&
                   r.check == ~r.generation
               ? r.generation
               : 0;
}

static int lock(const struct bmi_elan4_log *log, int context, int command, short type,
                struct flock *out)
{
    *out = (struct flock){.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)context * RECORD_BYTES,
                          .l_len = RECORD_BYTES};
    while (fcntl(log->fd, command, out) < 0)
        if (errno != EINTR)
            return errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
    return 0;
}

/* Returns false if the program has closed the descriptor, and may use its number. */
static bool is_open(const struct bmi_elan4_log *log)
{
    struct stat st;

    return fstat(log->fd, &st) == 0 && st.st_dev == log->dev && st.st_ino == log->ino;
}

/* Opens the log, or finds it among those of this process. */
static int open_path(const char *path, struct bmi_elan4_log **out)
{
    struct bmi_elan4_log *log = NULL;
    struct stat st;
    int fd;

    if (logs_of != getpid())
        logs = NULL; /* the parent's */
    logs_of = getpid();
    if (stat(path, &st) == 0)
        for (log = logs; log != NULL && (log->dev != st.st_dev || log->ino != st.st_ino);)
            log = log->next;
    if (log == NULL || !is_open(log)) {
        bool own;
        fd = bmi_elan4_shared_file(path);
        if (fd < 0)
            return fd;
        own = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1;
        if (own && log == NULL && (log = calloc(1, sizeof(*log))) != NULL) {
            log->next = logs;
            logs = log;
        }
        if (!own || log == NULL) {
            close(fd);
            return own ? -ENOMEM : -EINVAL;
        }
        log->fd = fd;
        log->dev = st.st_dev;
        log->ino = st.st_ino;
    }
    log->users++;
    *out = log;
    return 0;
}

int bmi_elan4_log_open(const char *folder, int node, struct bmi_elan4_log **out)
{
    char path[512];
    int rc = bmi_elan4_guard_forks();

    if (rc < 0)
        return rc;
    if ((size_t)snprintf(path, sizeof(path), "%s/node-%d", folder, node) >= sizeof(path))
        return -ENAMETOOLONG;
    /* for all users, with the sticky bit, like /tmp */
    if (mkdir(folder, 01777) == 0 ? chmod(folder, 01777) < 0 : errno != EEXIST)
        return -errno;
    bmi_elan4_lock();
    rc = open_path(path, out);
    bmi_elan4_unlock();
    return rc;
}

/* Returns the next generation: above the last owner's, and above any that the file has lost. */
static uint64_t next_generation(uint64_t last)
{
    struct timespec ts;
    uint64_t now;

    clock_gettime(CLOCK_REALTIME, &ts);
    now = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
    /* a record far ahead of the clock is ignored */
    return last >= now && last - now < 60000000 ? last + 1 : now;
}

int bmi_elan4_log_take(struct bmi_elan4_log *log, int context, uint64_t *generation)
{
    struct record r;
    struct flock l;
    int rc;

    bmi_elan4_lock();
    rc = log->taken[context] ? -EBUSY : lock(log, context, F_SETLK, F_WRLCK, &l);
    if (rc == 0) {
        ssize_t n;
        *generation = r.generation = next_generation(read_record(log, context));
        r.check = ~r.generation;
        n = pwrite(log->fd, &r, sizeof(r), (off_t)context * RECORD_BYTES);
        log->taken[context] = n == (ssize_t)sizeof(r);
        if (!log->taken[context]) {
            rc = n < 0 ? -errno : -ENOSPC;
            lock(log, context, F_SETLK, F_UNLCK, &l);
        }
    }
    bmi_elan4_unlock();
    return rc;
}

void bmi_elan4_log_give(struct bmi_elan4_log *log, int context)
{
    struct flock l;

    bmi_elan4_lock();
    log->taken[context] = false;
    /* the record remains: the next generation is above this one */
    lock(log, context, F_SETLK, F_UNLCK, &l);
    bmi_elan4_unlock();
}

/* Gets the lock of another process on a record.  Returns 1, also if this process has it, which
 * leaves *l as it was, 0 if there is none, or a negative errno. */
static int locked(struct bmi_elan4_log *log, int context, struct flock *l)
{
    bool here;
    int rc;
    bmi_elan4_lock();
    here = log->taken[context];
    bmi_elan4_unlock();
    rc = here ? 0 : lock(log, context, F_GETLK, F_WRLCK, l);
    return rc < 0 ? rc : here || l->l_type != F_UNLCK;
}

int bmi_elan4_log_owner(struct bmi_elan4_log *log, int context, uint64_t *generation)
{
    struct flock l;
    int rc = locked(log, context, &l);

    if (rc > 0)
        *generation = read_record(log, context);
    return rc;
}

/* Finds a process that has locked more of the file than a record, which keeps all others of the
 * node from starting; the error names that process. */
pid_t bmi_elan4_log_foreign_holder(struct bmi_elan4_log *log, int context)
{
    struct flock l = {.l_pid = 0};

    return locked(log, context, &l) > 0 &&
                   (l.l_type != F_WRLCK || l.l_start != (off_t)context * RECORD_BYTES ||
                    l.l_len != RECORD_BYTES)
               ? l.l_pid
               : 0;
}

void bmi_elan4_log_close(struct bmi_elan4_log *log)
{
    struct bmi_elan4_log **at = &logs;

    bmi_elan4_lock();
    if (--log->users == 0) {
        while (*at != NULL && *at != log)
            at = &(*at)->next;
        if (*at != NULL)
            *at = log->next;
        if (is_open(log))
            close(log->fd); /* the kernel drops the locks */
        free(log);
    }
    bmi_elan4_unlock();
}
