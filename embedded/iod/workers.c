/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct job *first, **last;
    int running; /* jobs running */
    bool stop;
    int count;
    pthread_t thread[];
};

static void *worker(void *arg)
{
    struct workers *w = arg;

    pthread_mutex_lock(&w->lock);
    while (w->first != NULL || !w->stop || w->running) {
        struct job *job = w->first;

        if (job == NULL) {
            pthread_cond_wait(&w->work, &w->lock);
            continue;
        }
        w->first = job->next;
        if (w->first == NULL)
            w->last = &w->first;
        w->running++;
        pthread_mutex_unlock(&w->lock);
        job->run(job);
        pthread_mutex_lock(&w->lock);
        if (--w->running == 0 && w->stop)
            pthread_cond_broadcast(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int workers_start(int count, struct workers **out)
{
    struct workers *w = calloc(1, sizeof *w + (size_t)count * sizeof w->thread[0]);

    if (w == NULL)
        return -ENOMEM;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    for (; w->count < count; w->count++) {
        int error = pthread_create(&w->thread[w->count], NULL, worker, w);
        if (error) {
            workers_stop(w);
            return -error;
        }
    }
    *out = w;
    return 0;
}

void workers_add(struct workers *w, struct job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->last = job;
    w->last = &job->next;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

void workers_stop(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->count; i++)
        pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
