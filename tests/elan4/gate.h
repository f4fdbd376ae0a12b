/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gates in the emulated Elan4: where it would raise a signal, sleep, or read the clock it comes
 * to functions of the test program, which stand before those of libc.
 */
#ifndef TESTS_ELAN4_GATE_H
#define TESTS_ELAN4_GATE_H

#include <stdint.h>

#include "tests/elan4/bed.h"

/* At a step (EMUELAN4_STOP, EMUELAN4_DIE) a process raises a signal; a test may have the thread
 * call this instead. */
extern void (*at_step)(struct bed *b, int signal);
/* Instead of EMUELAN4_..._LATE_US=GATE_US of sleep. */
extern void (*at_delay)(struct bed *b);
extern struct bed *gate_bed; /* that they are given */
#define GATE_US    1234567
#define NUMBER(n)  NUMBER_(n) /* as text */
#define NUMBER_(n) #n

/* The emulation's clock stands still from now on. */
void gate_clock_stop(void);
void gate_clock_step(uint64_t ms);
void gate_clock_run(void);
/* Whether usleep() moves the stopped clock on, and returns at once. */
extern bool gate_sleep_is_time;
/* Counts how often the calling thread looks at the stopped clock. */
void gate_clock_count(void);
uint64_t gate_clock_looks(void);

#endif
