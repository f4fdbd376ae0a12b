/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <signal.h>

#include "base/thread.h"

int rme_thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}
