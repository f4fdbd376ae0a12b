/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The log of a node: which of its contexts are taken, by whom. Clients of one node take theirs
 * from it, so that no two try the same.
 */
#ifndef BMI_ELAN4_CONTEXT_LOG_H
#define BMI_ELAN4_CONTEXT_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bmi_elan4/process.h"

#define BMI_ELAN4_LOG_ENV    "BMI_ELAN4_LOG" /* where no option names the folder */
#define BMI_ELAN4_LOG_FOLDER "/var/tmp/bmi_elan4"

struct bmi_elan4_log;

struct bmi_elan4_owner {
    int64_t pid, uid;    /* as the owner sees itself */
    uint64_t generation; /* grows with each owner of a context, in microseconds of the clock */
};

/*
 * Opens the log of `node` in `folder`, for the contexts of `r`; both are made if need be, for
 * all users of the machine. 0, or a negative errno: -EACCES where the file belongs to somebody
 * who lets us not write, -ELOOP or -EINVAL where it is not a plain file. Closed by
 * bmi_elan4_log_close(). One thread at a time uses a log.
 */
int bmi_elan4_log_open(const char *folder, int node, const struct bmi_elan4_range *r,
                       struct bmi_elan4_log **out);

/*
 * Takes a context: `context`, or with -1 the first free one but the server's. The number of it;
 * -EBUSY where it, or all of them, are taken; another negative errno. It is ours until it is
 * given back, the log is closed, or the process ends, however it does. `*generation` tells this
 * owner from earlier ones.
 */
int bmi_elan4_log_take(struct bmi_elan4_log *log, int context, uint64_t *generation);
void bmi_elan4_log_give(struct bmi_elan4_log *log, int context);

/* Who has a context: 1 and `*owner` is filled, 0 when nobody; a negative errno. */
int bmi_elan4_log_owner(struct bmi_elan4_log *log, int context, struct bmi_elan4_owner *owner);

/* Is a context's record locked by somebody who has not taken it, as all of the file may be?
 * Then *pid is the process, or -1 where the kernel does not say. */
bool bmi_elan4_log_stranger(struct bmi_elan4_log *log, int context, pid_t *pid);

/* Gives back all that was taken by it. */
void bmi_elan4_log_close(struct bmi_elan4_log *log);

#endif
