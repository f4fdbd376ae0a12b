/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tested program's monotonic clock, which a test may stop and step. The emulated network is
 * a separate library and uses the machine's clock.
 *
 * Linked with --wrap=clock_gettime,--wrap=nanosleep: see elan4_clock_wraps in Makemodule.am.
 */
#ifndef TESTS_ELAN4_CLOCK_H
#define TESTS_ELAN4_CLOCK_H

#include <stdint.h>

/* Stops the clock. */
void clock_stop(void);
void clock_step(uint64_t ms);
/* Lets the clock run again, from where it stopped. */
void clock_run(void);
/* Returns the machine's time in ms, to detect hangs. */
uint64_t guard_ms(void);
/* Returns the number of the program's nanosleep() calls. */
unsigned clock_sleeps(void);

#endif
