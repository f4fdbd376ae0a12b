/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads of this process of which a test has to know that they sleep. */
#ifndef TESTS_LIB_ASLEEP_H
#define TESTS_LIB_ASLEEP_H

#include <stdatomic.h>
#include <stdbool.h>

/* Called by the thread, before it does what it will sleep in. */
void asleep_announce(atomic_int *tid);
/* Whether the kernel says so of a thread that has announced itself.  `state`: 'S', where a
 * signal would end the sleep, 'D', where none does. */
bool asleep_now(const atomic_int *tid, char state);
/* Returns as soon as the thread sleeps as in 'S'. */
void asleep_await(const atomic_int *tid);
/* How many threads there are, and returns as soon as all but the caller sleep. */
unsigned asleep_threads(void);
void asleep_await_others(void);

#endif
