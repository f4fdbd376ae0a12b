/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How much something takes, by a measure that is the same on every machine and every time. */
#ifndef STEPS_H
#define STEPS_H

#include <stdbool.h>

/* Valgrind sees every instruction and every access, those that a test means as well. */
bool under_valgrind(void);

/*
 * Runs `act` in a child of its own, so that nothing of it is seen here.  The number of
 * instructions; 0: nobody can be watched, or others' instructions would be counted (valgrind).
 * What is looked up at a function's first call counts, so whoever compares calls it once
 * before.
 */
long steps_of(void (*act)(void *arg), void *arg);

#endif
