/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The library's own threads, in a process that belongs to the host.
 *
 * All signals are blocked: the process may wait for them with sigwait(), or have handlers that
 * must run in its own threads.
 *
 * The threads call neither the host nor read, write, open or close.  A program may have
 * replaced these, as OrangeFS's liborangefs does: there every thread waits in them until the
 * file system is connected, and connecting waits for these threads.
 */
#ifndef RME_THREAD_H
#define RME_THREAD_H

#include <pthread.h>

#include "rme.h"

/* Starts a thread.  0 or a negative errno.  Any thread may call. */
RME_API int rme_thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);

#endif
