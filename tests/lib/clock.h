/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A clock that a test sets and moves, for programs that are linked with $(clock_wraps) and
 * $(clock_libs).
 *
 * Before clock_set and after clock_release the program has the system's clock.  In between
 * CLOCK_MONOTONIC and CLOCK_MONOTONIC_COARSE stand still but for the steps below, and a timed
 * wait for a condition takes its whole time at once: nothing but time can end it, so a test
 * that sets the clock has one thread.
 */
#ifndef TESTS_LIB_CLOCK_H
#define TESTS_LIB_CLOCK_H

#include <stdint.h>

#define CLOCK_BEGIN_NS UINT64_C(1000000000000) /* what clock_set begins with */
#define CLOCK_TICK_NS  1000

void clock_set(void);
void clock_release(void);
void clock_step_ns(uint64_t ns);
void clock_step_ms(uint64_t ms);
/* Each look at the clock takes so long; 0, as after clock_set: no time. */
void clock_tick_ns(uint64_t ns);
/* Set-up of a group of cases, or of one: clock_set, and a tick of CLOCK_TICK_NS. */
int clock_setup(void **state);
int clock_teardown(void **state); /* clock_release */

#endif
