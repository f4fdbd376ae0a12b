/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* States of processes and threads in a test: dead, stopped, sleeping. */
#ifndef TESTS_EMUL_STOP_H
#define TESTS_EMUL_STOP_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns whether it has died, reaped or not. */
bool process_is_dead(pid_t pid);
/* Returns whether all its threads are stopped: each continues until it gets a processor. */
bool process_is_stopped(pid_t pid);
/* Stops it, and waits until all threads have stopped. Returns false if it is dead. */
bool process_stop(pid_t pid);
/* Returns whether a thread of this process sleeps. */
bool thread_sleeps(pid_t tid);

#endif
