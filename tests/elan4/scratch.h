/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A folder for a test. A separate process removes it with its contents when the test and all
 * its forked children have ended, by any cause. */
#ifndef TESTS_ELAN4_SCRATCH_H
#define TESTS_ELAN4_SCRATCH_H

#include <stdint.h>
#include <sys/types.h>

struct scratch {
    char dir[48];
    int fd;      /* open in the test and its children */
    pid_t guard; /* process that waits for them */
};

/* Makes the folder PREFIX.XXXXXX; returns 0 or -1. To be called before other threads exist. */
int scratch_open(struct scratch *s, const char *prefix);
/* Removes it now; the children have ended. */
void scratch_close(struct scratch *s);

/* Returns this process's counter of the network, as in `emuelan4 --show`; -1: unknown. */
int64_t counter(const char *name);

#endif
