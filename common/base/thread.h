/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads of our own.  They live in a process that is not ours, so they keep out of its way.
 *
 * All signals are blocked: the process may wait for them with sigwait(), or have handlers that
 * must run in its own threads.
 *
 * They call neither the host nor read, write, open or close.  A program may have replaced
 * these, as OrangeFS's liborangefs does: there every thread waits in them until the file system
 * is connected, and connecting waits for our threads.
 */
#ifndef RME_THREAD_H
#define RME_THREAD_H

#include <pthread.h>

/* Starts one.  0 or a negative errno.  Any thread. */
int rme_thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);

#endif
