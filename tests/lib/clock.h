/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A virtual clock for programs that are linked with $(clock_wraps) and $(clock_libs).
 *
 * The program uses the system's clock before clock_set and after clock_release. In between
 * CLOCK_MONOTONIC and CLOCK_MONOTONIC_COARSE advance only by the steps below, and a timed wait
 * for a condition expires at once. Nothing but time can end such a wait, so a test that sets
 * the clock has one thread.
 */
#ifndef TESTS_LIB_CLOCK_H
#define TESTS_LIB_CLOCK_H

#include <stdint.h>

#define CLOCK_BEGIN_NS UINT64_C(1000000000000) /* time after clock_set */
#define CLOCK_TICK_NS  1000

void clock_set(void);
void clock_release(void);
void clock_step_ns(uint64_t ns);
void clock_step_ms(uint64_t ms);
/* Sets the time, also back: for several hosts in one program, each with its own clock. */
void clock_put_ns(uint64_t ns);
/* Advances the clock by `ns` at each reading; 0 (default after clock_set): not at all. */
void clock_tick_ns(uint64_t ns);
/* Set-up of a group of cases or of one case: clock_set, and a tick of CLOCK_TICK_NS. */
int clock_setup(void **state);
int clock_teardown(void **state); /* clock_release */

#endif
