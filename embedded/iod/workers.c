/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct turn *first, *last; /* turns with jobs */
    struct turn common;
    int running; /* jobs running */
    int longs;   /* long jobs running */
    bool stop;
    int count;
    pthread_t thread[];
};

static void add_turn(struct workers *w, struct turn *turn)
{
    turn->next = NULL;
    if (w->first)
        w->last->next = turn;
    else
        w->first = turn;
    w->last = turn;
}

/* Returns true if the job may run: long jobs get half of the threads, at least one. */
static bool may_run(const struct workers *w, const struct job *job)
{
    return !job->is_long || w->longs < (w->count + 1) / 2;
}

/* Takes the first job, in order of turns, that may run; its turn moves behind the others if it
 * has more.  NULL: none. */
static struct job *take(struct workers *w)
{
    struct turn *before = NULL, *turn = w->first;
    struct job *job;

    while (turn && !may_run(w, turn->first)) {
        before = turn;
        turn = turn->next;
    }
    if (!turn)
        return NULL;
    *(before ? &before->next : &w->first) = turn->next;
    if (w->last == turn)
        w->last = before;
    job = turn->first;
    turn->first = job->next;
    if (turn->first)
        add_turn(w, turn);
    return job;
}

static void *worker(void *arg)
{
    struct workers *w = arg;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct job *job = take(w);

        if (job) {
            bool is_long = job->is_long;

            w->running++;
            w->longs += is_long;
            pthread_mutex_unlock(&w->lock);
            job->run(job);
            pthread_mutex_lock(&w->lock);
            w->longs -= is_long;
            if (--w->running == 0 && w->stop)
                pthread_cond_broadcast(&w->work);
        } else if (w->stop && w->running == 0) {
            break;
        } else {
            pthread_cond_wait(&w->work, &w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int workers_start(int count, struct workers **out)
{
    struct workers *w = calloc(1, sizeof *w + (size_t)count * sizeof w->thread[0]);

    if (!w)
        return -ENOMEM;
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
    struct turn *turn = job->turn ? job->turn : &w->common;

    job->next = NULL;
    pthread_mutex_lock(&w->lock);
    if (turn->first)
        turn->last->next = job;
    else
        turn->first = job;
    turn->last = job;
    if (turn->first == job)
        add_turn(w, turn);
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
