/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * events.h - the future of a model: functions that run at times, in ns.
 *
 * Events of one time run in the order in which they were added, so that a run repeats exactly.
 */
#ifndef BENCH_MODEL_EVENTS_H
#define BENCH_MODEL_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#define NEVER UINT64_MAX

typedef void (*event_fn)(void *arg, uint64_t now);

void events_add(uint64_t at, event_fn run, void *arg);
/* Returns the time of the next event, or NEVER. */
uint64_t events_next(void);
/* Runs the next event, if there is one. */
void events_run(void);
/* Drops all events and frees their memory. */
void events_clear(void);

#endif
