/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * resolve.c - lookup of host names without blocking.
 *
 * Numeric addresses are converted at once.  A name goes to one of a few worker threads; its
 * result is put into a list, and poll() is notified by a hint bit and the wake descriptor.
 * Because a lookup may hang, a worker is started whenever all may be busy, and only one worker
 * looks up a name: another request for the name waits for the next lookup.  Names without an
 * answer thus occupy one worker each, however often they are requested.  Names of links that
 * are gone are not looked up.
 *
 * A lookup cannot be interrupted: when the fabric is closed, threads in a lookup are detached
 * with the resolver's memory, and the last one frees it.
 *
 * The mutex protects the whole structure.  A worker accesses the fabric (hint, wake descriptor)
 * only with the mutex held and `fabric` set; closing clears `fabric` with the mutex held.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/link/links.h"
#include "base/thread.h"

struct job {
    STAILQ_ENTRY(job) next;
    struct rme_fabric *rail; /* rail of the link */
    uint32_t handle;
    int error;
    const char *why; /* resolver's message; NULL: `error` applies */
    struct addrinfo *found;
    char *host; /* behind the structure, followed by the port */
    char *port;
};
STAILQ_HEAD(job_list, job);

#define WORKERS 8

struct worker {
    struct ib_resolver *resolver;
    pthread_t thread;
    const struct job *at; /* running lookup; NULL: idle */
};

struct ib_resolver {
    pthread_mutex_t mutex;
    pthread_cond_t work;
    struct worker worker[WORKERS];
    unsigned workers, idle;
    unsigned waiting;          /* jobs in `todo` */
    unsigned users;            /* once closed: the closing thread and the detached ones */
    struct rme_fabric *fabric; /* NULL: closed */
    struct job_list todo, results;
};

static const struct addrinfo hints_stream = {
    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

/* Converts a result of getaddrinfo() to a negative errno. */
static int lookup_error(int gai)
{
    switch (gai) {
    case 0:
        return 0;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SYSTEM:
        return ib_errno();
    default:
        return -EHOSTUNREACH;
    }
}

void ib_sockaddr_text(const void *sa, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN + 20], port[8];
    const struct sockaddr *s = sa;
    socklen_t length =
        s->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (getnameinfo(s, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, size, "unknown address");
    else
        snprintf(text, size, s->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

int ib_resolve_numeric(const char *host, const char *port, struct addrinfo **out)
{
    struct addrinfo hints = hints_stream;
    hints.ai_flags |= AI_NUMERICHOST;
    return lookup_error(getaddrinfo(host, port, &hints, out));
}

static void job_free(struct job *j)
{
    if (j->found)
        freeaddrinfo(j->found);
    free(j);
}

static void jobs_free(struct job_list *list)
{
    struct job *j;
    while ((j = STAILQ_FIRST(list))) {
        STAILQ_REMOVE_HEAD(list, next);
        job_free(j);
    }
}

static void resolver_free(struct ib_resolver *r)
{
    jobs_free(&r->todo);
    jobs_free(&r->results);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

/* Drops a reference to a closed resolver, which the last one frees; unlocks the mutex. */
static void leave(struct ib_resolver *r)
{
    bool last = --r->users == 0;

    pthread_mutex_unlock(&r->mutex);
    if (last)
        resolver_free(r);
}

static bool is_looked_up(const struct ib_resolver *r, const char *host)
{
    for (unsigned i = 0; i < r->workers; i++)
        if (r->worker[i].at && strcmp(r->worker[i].at->host, host) == 0)
            return true;
    return false;
}

/* Takes the first job whose name no worker looks up. */
static struct job *next_job(struct ib_resolver *r)
{
    struct job *j;

    STAILQ_FOREACH(j, &r->todo, next)
        if (!is_looked_up(r, j->host)) {
            STAILQ_REMOVE(&r->todo, j, job, next);
            r->waiting--;
            return j;
        }
    return NULL;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct ib_resolver *r = w->resolver;

    pthread_mutex_lock(&r->mutex);
    while (r->fabric) {
        struct job *j = next_job(r);
        if (!j) {
            pthread_cond_wait(&r->work, &r->mutex);
            continue;
        }
        w->at = j;
        r->idle--;
        pthread_mutex_unlock(&r->mutex);
        int gai = getaddrinfo(j->host, j->port, &hints_stream, &j->found);
        j->error = lookup_error(gai);
        j->why = gai == EAI_SYSTEM ? NULL : gai_strerror(gai);
        pthread_mutex_lock(&r->mutex);
        w->at = NULL;
        r->idle++;
        STAILQ_INSERT_TAIL(&r->results, j, next);
        if (!r->fabric) { /* closed during the lookup: this thread is detached */
            leave(r);
            return NULL;
        }
        atomic_fetch_or(&r->fabric->hint, IB_HINT_NAME);
        ib_wake(r->fabric);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

int ib_resolver_open(struct rme_fabric *f)
{
    struct ib_resolver *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->work, NULL);
    STAILQ_INIT(&r->todo);
    STAILQ_INIT(&r->results);
    r->fabric = f;
    f->resolver = r;
    return 0;
}

void ib_resolver_close(struct rme_fabric *f)
{
    struct ib_resolver *r = f->resolver;
    if (!r)
        return;
    f->resolver = NULL;
    pthread_mutex_lock(&r->mutex);
    r->fabric = NULL;
    r->users = 1;
    bool left[WORKERS] = {false};
    for (unsigned i = 0; i < r->workers; i++) {
        left[i] = r->worker[i].at != NULL;
        if (left[i]) {
            pthread_detach(r->worker[i].thread);
            r->users++;
        }
    }
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->mutex);
    for (unsigned i = 0; i < r->workers; i++)
        if (!left[i])
            pthread_join(r->worker[i].thread, NULL);
    pthread_mutex_lock(&r->mutex);
    leave(r);
}

/* Starts another worker if all may be busy.  Returns an error only if there is no worker. */
static int hire(struct ib_resolver *r)
{
    struct worker *w = &r->worker[r->workers];

    if (r->waiting < r->idle || r->workers == WORKERS)
        return 0;
    *w = (struct worker){.resolver = r};
    int error = rme_thread_start(&w->thread, work, w);
    if (error)
        return r->workers ? 0 : error;
    r->workers++;
    r->idle++;
    return 0;
}

int ib_resolve_later(struct rme_fabric *f, const char *host, const char *port, uint32_t handle)
{
    struct ib_resolver *r = f->head->resolver;
    size_t h = strlen(host) + 1, p = strlen(port) + 1;
    struct job *j = calloc(1, sizeof(*j) + h + p);
    if (!j)
        return -ENOMEM;
    j->rail = f;
    j->handle = handle;
    j->host = memcpy(j + 1, host, h);
    j->port = memcpy(j->host + h, port, p);

    pthread_mutex_lock(&r->mutex);
    int error = hire(r);
    if (!error) {
        STAILQ_INSERT_TAIL(&r->todo, j, next);
        r->waiting++;
        pthread_cond_signal(&r->work);
    }
    pthread_mutex_unlock(&r->mutex);
    if (error)
        job_free(j);
    return error;
}

void ib_resolve_forget(const struct rme_fabric *f, uint32_t handle)
{
    struct ib_resolver *r = f->head->resolver;
    struct job *j;

    if (!r)
        return;
    pthread_mutex_lock(&r->mutex);
    STAILQ_FOREACH(j, &r->todo, next)
        if (j->rail == f && j->handle == handle)
            break;
    if (j) {
        STAILQ_REMOVE(&r->todo, j, job, next);
        r->waiting--;
    }
    pthread_mutex_unlock(&r->mutex);
    if (j)
        job_free(j);
}

int ib_resolve_result(struct rme_fabric *f, struct rme_fabric **rail, uint32_t *handle,
                      struct addrinfo **out, int *error, const char **why)
{
    struct ib_resolver *r = f->resolver;
    pthread_mutex_lock(&r->mutex);
    struct job *j = STAILQ_FIRST(&r->results);
    if (j)
        STAILQ_REMOVE_HEAD(&r->results, next);
    pthread_mutex_unlock(&r->mutex);
    if (!j)
        return 0;
    *rail = j->rail;
    *handle = j->handle;
    *error = j->error;
    *why = j->why;
    *out = j->found;
    j->found = NULL;
    job_free(j);
    return 1;
}
