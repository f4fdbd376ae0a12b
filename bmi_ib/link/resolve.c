/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * resolve.c - host names without blocking anybody.
 *
 * Numeric addresses are translated at once.  A name goes to a worker thread, made when the
 * first name comes; its result waits in a list, the hint bit and the wake descriptor tell
 * poll() of it.  A lookup cannot be interrupted: when the fabric closes during one, the thread
 * is left behind with the resolver's memory and frees it when the lookup returns.
 *
 * The mutex guards everything in the structure.  The worker touches the fabric (hint, wake
 * descriptor) only while it holds the mutex and `fabric` is set; closing clears it under the
 * mutex.
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
    struct rme_fabric *rail; /* whose link's name it is */
    uint32_t handle;
    int error;
    const char *why; /* it was not found, in the resolver's words; NULL: as `error` says */
    struct addrinfo *found;
    char *host; /* behind the structure, the port behind it */
    char *port;
};
STAILQ_HEAD(job_list, job);

struct ib_resolver {
    pthread_mutex_t mutex;
    pthread_cond_t work;
    pthread_t thread;
    bool started;
    bool busy;                 /* a lookup is running */
    struct rme_fabric *fabric; /* NULL: closed */
    struct job_list todo, results;
};

static const struct addrinfo hints_stream = {
    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

/* What getaddrinfo says, as errno. */
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

static void *worker(void *arg)
{
    struct ib_resolver *r = arg;
    pthread_mutex_lock(&r->mutex);
    while (r->fabric) {
        struct job *j = STAILQ_FIRST(&r->todo);
        if (!j) {
            pthread_cond_wait(&r->work, &r->mutex);
            continue;
        }
        STAILQ_REMOVE_HEAD(&r->todo, next);
        r->busy = true;
        pthread_mutex_unlock(&r->mutex);
        int gai = getaddrinfo(j->host, j->port, &hints_stream, &j->found);
        j->error = lookup_error(gai);
        j->why = gai == EAI_SYSTEM ? NULL : gai_strerror(gai);
        pthread_mutex_lock(&r->mutex);
        r->busy = false;
        STAILQ_INSERT_TAIL(&r->results, j, next);
        if (!r->fabric) { /* closed during the lookup: this thread was detached and is the last
                             user */
            pthread_mutex_unlock(&r->mutex);
            resolver_free(r);
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
    bool leave = r->busy;
    if (leave)
        pthread_detach(r->thread);
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->mutex);
    if (leave)
        return;
    if (r->started)
        pthread_join(r->thread, NULL);
    resolver_free(r);
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

    int error = 0;
    pthread_mutex_lock(&r->mutex);
    if (!r->started) {
        error = rme_thread_start(&r->thread, worker, r);
        r->started = !error;
    }
    if (!error) {
        STAILQ_INSERT_TAIL(&r->todo, j, next);
        pthread_cond_signal(&r->work);
    }
    pthread_mutex_unlock(&r->mutex);
    if (error)
        job_free(j);
    return error;
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
