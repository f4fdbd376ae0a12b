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

#define BMI_ELAN4_LOG_ENV    "BMI_ELAN4_LOG" /* the folder */
#define BMI_ELAN4_LOG_FOLDER "/var/tmp/bmi_elan4"

struct bmi_elan4_log;

/*
 * Opens the log of `node` in `folder`; creates both if missing, for all users of the machine.
 * Returns 0, or a negative errno: -EACCES if another user's file is not writable, -ELOOP or
 * -EINVAL if it is not a regular file.  Any thread may open and use a log.
 */
int bmi_elan4_log_open(const char *folder, int node, struct bmi_elan4_log **out);

/*
 * Takes a context, from 0 to BMI_ELAN4_LAST_CONTEXT.  Returns 0, -EBUSY if it is taken, or
 * another negative errno.  The context is held until given back, or until the process ends or
 * dies.  *generation distinguishes this owner from earlier ones; it
 * increases with each owner.
 */
int bmi_elan4_log_take(struct bmi_elan4_log *log, int context, uint64_t *generation);
void bmi_elan4_log_give(struct bmi_elan4_log *log, int context);

/* Gets the owner's generation, 0 if not known.  Returns 1, 0 if the context is free, or a
 * negative errno. */
int bmi_elan4_log_owner(struct bmi_elan4_log *log, int context, uint64_t *generation);

/* Returns the process that has locked the record of a context without taking the context, for
 * example by a lock of the whole file; -1 if the kernel does not name the process, 0 if there
 * is none. */
pid_t bmi_elan4_log_foreign_holder(struct bmi_elan4_log *log, int context);

/* Closes the log.  All contexts taken from the log were given back before. */
void bmi_elan4_log_close(struct bmi_elan4_log *log);

#endif
