/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * resolve.c - lookup of host names without blocking.
 *
 * Numeric addresses are converted at once.  A name is looked up by one of a few threads; poll()
 * is notified by a hint bit and the wake descriptor.  Because a lookup may hang, another thread
 * is started for each name that no thread looks up, and a name has one lookup at a time: names
 * without an answer occupy one thread each, however often they are requested.  Names of links
 * that are gone are not looked up.  A thread ends when nothing waits.
 *
 * A lookup cannot be interrupted, so the threads are detached; the last one frees the resolver
 * of a closed fabric.
 *
 * The mutex protects the whole structure.  A thread accesses the fabric (hint, wake descriptor)
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
    struct list_head next;
    enum { WAITS, RUNS, DONE } state;
    struct ib_name name;
    char *host; /* behind the structure, followed by the port */
    char *port;
};

#define THREADS 8

struct ib_resolver {
    pthread_mutex_t mutex;
    unsigned threads;
    struct rme_fabric *fabric; /* NULL: closed */
    struct list_head jobs;
};

static const struct addrinfo hints_stream = {
    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

/* Converts a result of getaddrinfo() to a negative errno; -ENONET: unknown name. */
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
        return -ENONET;
    }
}

void ib_sockaddr_text(const void *sa, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN + 20], port[8];
    const struct sockaddr *s = sa;
    if (getnameinfo(s, ib_sockaddr_size(s), host, sizeof(host), port, sizeof(port),
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

/* Removes and frees a job. */
static void job_free(struct job *j)
{
    list_del_init(&j->next);
    if (j->name.found != NULL)
        freeaddrinfo(j->name.found);
    free(j);
}

/* Unlocks the resolver; frees a closed one that no thread uses. */
static void unlock_or_free(struct ib_resolver *r)
{
    struct job *j;
    bool last = r->fabric == NULL && r->threads == 0;

    pthread_mutex_unlock(&r->mutex);
    if (!last)
        return;
    while ((j = list_first(&r->jobs, struct job, next)) != NULL)
        job_free(j);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

/* Returns the first job in a state with this host, if one is given; NULL: none. */
static struct job *find(const struct ib_resolver *r, int state, const char *host)
{
    struct job *j;

    list_for_each(j, &r->jobs, next)
        if (j->state == (unsigned)state && (host == NULL || strcmp(j->host, host) == 0))
            break;
    return j;
}

/* Returns the first waiting job whose name no thread looks up; NULL: none. */
static struct job *next_job(const struct ib_resolver *r)
{
    struct job *j;

    list_for_each(j, &r->jobs, next)
        if (j->state == WAITS && find(r, RUNS, j->host) == NULL)
            break;
    return j;
}

static void *work(void *arg)
{
    struct ib_resolver *r = arg;
    struct job *j;

    pthread_detach(pthread_self());
    pthread_mutex_lock(&r->mutex);
    while (r->fabric != NULL && (j = next_job(r)) != NULL) {
        int gai;
        j->state = RUNS;
        pthread_mutex_unlock(&r->mutex);
        gai = getaddrinfo(j->host, j->port, &hints_stream, &j->name.found);
        j->name.error = lookup_error(gai);
        j->name.why = gai == EAI_SYSTEM ? NULL : gai_strerror(gai);
        pthread_mutex_lock(&r->mutex);
        j->state = DONE;
        if (r->fabric == NULL)
            break;
        atomic_fetch_or(&r->fabric->hint, IB_HINT_NAME);
        ib_wake(r->fabric);
    }
    r->threads--;
    unlock_or_free(r);
    return NULL;
}

int ib_resolver_open(struct rme_fabric *f)
{
    struct ib_resolver *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    pthread_mutex_init(&r->mutex, NULL);
    list_init(&r->jobs);
    r->fabric = f;
    f->resolver = r;
    return 0;
}

void ib_resolver_close(struct rme_fabric *f)
{
    struct ib_resolver *r = f->resolver;
    if (r == NULL)
        return;
    f->resolver = NULL;
    pthread_mutex_lock(&r->mutex);
    r->fabric = NULL;
    unlock_or_free(r);
}

int ib_resolve_later(struct rme_fabric *f, const char *host, const char *port, uint32_t handle)
{
    struct ib_resolver *r = f->resolver;
    size_t h = strlen(host) + 1, p = strlen(port) + 1;
    struct job *j = calloc(1, sizeof(*j) + h + p);
    pthread_t thread;
    int error = 0;
    if (j == NULL)
        return -ENOMEM;
    j->name.handle = handle;
    j->host = memcpy(j + 1, host, h);
    j->port = memcpy(j->host + h, port, p);

    pthread_mutex_lock(&r->mutex);
    list_add_tail(&j->next, &r->jobs);
    if (r->threads < THREADS && next_job(r) != NULL) {
        error = rme_thread_start(&thread, work, r);
        r->threads += !error;
        if (error && r->threads)
            error = 0; /* another thread does it */
    }
    if (error)
        job_free(j);
    pthread_mutex_unlock(&r->mutex);
    return error;
}

void ib_resolve_cancel(const struct rme_fabric *f, uint32_t handle)
{
    struct ib_resolver *r = f->resolver;
    struct job *j;

    if (r == NULL)
        return;
    pthread_mutex_lock(&r->mutex);
    list_for_each(j, &r->jobs, next)
        if (j->state == WAITS && j->name.handle == handle)
            break;
    if (j != NULL)
        job_free(j);
    pthread_mutex_unlock(&r->mutex);
}

bool ib_resolve_result(struct rme_fabric *f, struct ib_name *out)
{
    struct ib_resolver *r = f->resolver;
    struct job *j;
    pthread_mutex_lock(&r->mutex);
    j = find(r, DONE, NULL);
    if (j != NULL) {
        *out = j->name;
        j->name.found = NULL;
        job_free(j);
    }
    pthread_mutex_unlock(&r->mutex);
    return j != NULL;
}
