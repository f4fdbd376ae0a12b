/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The monotonic clock of the program under test, which a test may stop and step. The emulated
 * network is a library of its own, and keeps the machine's time.
 *
 * Linked with --wrap=clock_gettime,--wrap=nanosleep: see elan4_clock_wraps in Makemodule.am.
 */
#ifndef TESTS_ELAN4_CLOCK_H
#define TESTS_ELAN4_CLOCK_H

#include <stdint.h>

/* Time stands still from now on. */
void clock_stop(void);
void clock_step(uint64_t ms);
void clock_step_ns(uint64_t ns);
/* Each look at the stopped clock takes so long; 0: it takes no time. */
void clock_look_takes(uint64_t ns);
/* Time passes as on the machine, from where it stood. */
void clock_run(void);
/* The machine's time in ms, for guards against what hangs. */
uint64_t guard_ms(void);
/* How often the program has called nanosleep(). */
unsigned clock_sleeps(void);

#endif
