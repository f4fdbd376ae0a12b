/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * forked.c - closes descriptors in a forked child.  The lock of a context and the port of a
 * desk are held until the last descriptor is closed: an idle child would keep them from its
 * parent's successor, and from itself.
 */
#include "bmi_elan4/forked.h"

#include <pthread.h>
#include <unistd.h>

static struct bmi_elan4_held *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (; all; all = all->next)
        close(all->fd);
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

void bmi_elan4_hold(struct bmi_elan4_held *h, int fd)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;

    pthread_once(&watched, watch_forks);
    h->fd = fd;
    pthread_mutex_lock(&lock);
    h->next = all;
    all = h;
    pthread_mutex_unlock(&lock);
}

void bmi_elan4_let_go(struct bmi_elan4_held *h)
{
    struct bmi_elan4_held **at = &all;

    pthread_mutex_lock(&lock);
    while (*at && *at != h)
        at = &(*at)->next;
    if (*at)
        *at = h->next;
    pthread_mutex_unlock(&lock);
}
