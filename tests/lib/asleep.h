/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Detects that threads of this process sleep. */
#ifndef TESTS_LIB_ASLEEP_H
#define TESTS_LIB_ASLEEP_H

#include <stdatomic.h>
#include <stdbool.h>

/* Publishes the calling thread's id. To be called before the call that sleeps. */
void asleep_announce(atomic_int *tid);
/* Returns whether the kernel reports `state` for a thread that has announced itself. `state`:
 * 'S' for an interruptible sleep, 'D' for an uninterruptible one. */
bool asleep_now(const atomic_int *tid, char state);
/* Returns as soon as the thread is in state 'S'. */
void asleep_await(const atomic_int *tid);
/* Count the threads; return as soon as all except the caller sleep. */
unsigned asleep_threads(void);
void asleep_await_others(void);

#endif
