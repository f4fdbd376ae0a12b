/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * context_log.h - context log of a node: the contexts in use and their owners.  Clients of a
 * node allocate their contexts from the log.
 */
#ifndef BMI_ELAN4_CONTEXT_LOG_H
#define BMI_ELAN4_CONTEXT_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bmi_elan4/process.h"

#define BMI_ELAN4_LOG_ENV    "BMI_ELAN4_LOG" /* used if no option names the folder */
#define BMI_ELAN4_LOG_FOLDER "/var/tmp/bmi_elan4"

struct bmi_elan4_log;

struct bmi_elan4_owner {
    int64_t pid, uid;    /* as recorded by the owner */
    uint64_t generation; /* increases with each owner of a context; microseconds of the clock */
};

/*
 * Opens the log of `node` in `folder` for the contexts of `r`; creates both if missing, for all
 * users of the machine.  Returns 0, or a negative errno: -EACCES if another user's file is not
 * writable, -ELOOP or -EINVAL if it is not a regular file.  Close with bmi_elan4_log_close().
 * One thread at a time uses a log.
 */
int bmi_elan4_log_open(const char *folder, int node, const struct bmi_elan4_range *r,
                       struct bmi_elan4_log **out);

/*
 * Takes a context: `context`, or with -1 the first free one except the server's.  Returns its
 * number; -EBUSY if it is, or all are, taken; or another negative errno.  The context is held
 * until given back, until the log is closed, or until the process ends or dies.  *generation
 * distinguishes this owner from earlier ones.
 */
int bmi_elan4_log_take(struct bmi_elan4_log *log, int context, uint64_t *generation);
void bmi_elan4_log_give(struct bmi_elan4_log *log, int context);

/* Gets the owner of a context.  Returns 1 with *owner filled in, 0 if free, or a negative
 * errno. */
int bmi_elan4_log_owner(struct bmi_elan4_log *log, int context, struct bmi_elan4_owner *owner);

/* Returns true if the record of a context is locked by a process that has not taken it, for
 * example by a lock of the whole file.  *pid: that process; -1 if the kernel does not report
 * it. */
bool bmi_elan4_log_stranger(struct bmi_elan4_log *log, int context, pid_t *pid);

/* Gives back all contexts and closes the log. */
void bmi_elan4_log_close(struct bmi_elan4_log *log);

#endif
