/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Other processes of a test: whether they have died, whether they are stopped. And threads. */
#ifndef TESTS_EMUL_STOP_H
#define TESTS_EMUL_STOP_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether it has died, waited for or not. */
bool process_is_dead(pid_t pid);
/* Whether all of its threads are stopped; they go on until they get a processor to stop on. */
bool process_is_stopped(pid_t pid);
/* Stops it, and waits until it is. False: it is dead. */
bool process_stop(pid_t pid);
/* Whether its first thread waits for something. */
bool process_sleeps(pid_t pid);
/* Whether a thread of this process waits for something. */
bool thread_sleeps(pid_t tid);

#endif
