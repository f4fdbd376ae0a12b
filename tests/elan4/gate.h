/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hooks in the emulated Elan4: functions of the test program replace libc's for raising
 * signals, sleeping and reading the clock. */
#ifndef TESTS_ELAN4_GATE_H
#define TESTS_ELAN4_GATE_H

#include <stdint.h>

#include "tests/elan4/bed.h"

/* Called at a step (EMUELAN4_STOP, EMUELAN4_DIE) instead of raising the signal. */
extern void (*at_step)(struct bed *b, int signal);
/* Called instead of sleeping for EMUELAN4_..._LATE_US=GATE_US. */
extern void (*at_delay)(struct bed *b);
extern struct bed *gate_bed; /* argument of both */
#define GATE_US    1234567
#define NUMBER(n)  NUMBER_(n) /* as text */
#define NUMBER_(n) #n

/* Stop the emulation's clock, step it, let it run. */
void gate_clock_stop(void);
void gate_clock_step(uint64_t ms);
void gate_clock_run(void);
/* Makes usleep() step the stopped clock and return at once. */
extern bool gate_sleep_is_time;
/* Count the calling thread's readings of the stopped clock. */
void gate_clock_count(void);
uint64_t gate_clock_looks(void);

#endif
