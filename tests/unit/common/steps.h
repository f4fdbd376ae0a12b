/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Measures work by a figure that is the same on every machine and in every run. */
#ifndef STEPS_H
#define STEPS_H

#include <stdbool.h>

/* Returns whether valgrind runs: it executes more instructions, and reports deliberate bad
 * accesses. */
bool under_valgrind(void);

/*
 * Counts the instructions of `act`, run in a child process without effects on the caller.
 * Returns 0 if the child cannot be traced, or under valgrind, whose own instructions would
 * count. Symbol lookups at a function's first call count, so call `act` once before comparing.
 */
long steps_of(void (*act)(void *arg), void *arg);

#endif
