/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A folder for a test. A process of its own removes it, with all that is in it, when the test
 * and all children that it has forked have ended, whatever ended them.
 */
#ifndef TESTS_ELAN4_SCRATCH_H
#define TESTS_ELAN4_SCRATCH_H

#include <stdint.h>
#include <sys/types.h>

struct scratch {
    char dir[48];
    int fd;      /* open in the test and its children */
    pid_t guard; /* who waits for them */
};

/* Makes the folder PREFIX.XXXXXX. 0, or -1. To be called before there are other threads. */
int scratch_open(struct scratch *s, const char *prefix);
/* Removes it now; the children have ended. */
void scratch_close(struct scratch *s);

/* A counter of the network in this process, as `emuelan4 --show` has it; -1: there is none. */
int64_t counter(const char *name);

#endif
