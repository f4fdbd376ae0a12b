/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A ring of lines between whoever logs under a lock and the host's callback.  At most one
 * thread drains at a time, so lines reach the host in the order in which they were put; the
 * ring's lock is not held while the host runs.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

struct line {
    enum rme_log_level level;
    char text[RME_LOG_LINE];
};

struct rme_log {
    rme_log_fn fn;
    void *arg;
    pthread_mutex_t lock; /* guards what follows; `count` is also read without it */
    bool draining;
    unsigned first;
    atomic_uint count;
    uint64_t lost; /* lines dropped since the last one that fitted */
    struct line ring[RME_LOG_QUEUE];
};

struct rme_log *rme_log_new(rme_log_fn fn, void *arg)
{
    struct rme_log *log = calloc(1, sizeof(*log));

    if (log == NULL)
        return NULL;
    log->fn = fn;
    log->arg = arg;
    pthread_mutex_init(&log->lock, NULL);
    return log;
}

void rme_log_free(struct rme_log *log)
{
    if (log == NULL)
        return;
    rme_log_drain(log);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

static struct line *next_slot(struct rme_log *log)
{
    return &log->ring[(log->first + atomic_load(&log->count)) % RME_LOG_QUEUE];
}

static void put(struct rme_log *log, enum rme_log_level level, const char *format, va_list args)
{
    if (log == NULL || log->fn == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    if (atomic_load(&log->count) == RME_LOG_QUEUE) {
        log->lost++;
    } else {
        struct line *line = next_slot(log);

        line->level = level;
        vsnprintf(line->text, sizeof(line->text), format, args);
        atomic_fetch_add(&log->count, 1);
    }
    pthread_mutex_unlock(&log->lock);
}

void rme_log_put(struct rme_log *log, enum rme_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put(log, level, format, args);
    va_end(args);
}

void rme_log_from_fabric(void *arg, enum rme_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put(arg, level, format, args);
    va_end(args);
}

bool rme_log_pending(const struct rme_log *log)
{
    return log != NULL && atomic_load_explicit(&log->count, memory_order_relaxed) != 0;
}

/* Takes the oldest line out of the ring, or the report of lost ones once there is room again.
 */
static bool take(struct rme_log *log, struct line *out)
{
    if (atomic_load(&log->count) == 0) {
        if (log->lost == 0)
            return false;
        out->level = RME_LOG_WARN;
        snprintf(out->text, sizeof(out->text),
                 "%llu log lines were lost: they came faster than they could be written",
                 (unsigned long long)log->lost);
        log->lost = 0;
        return true;
    }
    *out = log->ring[log->first];
    log->first = (log->first + 1) % RME_LOG_QUEUE;
    atomic_fetch_sub(&log->count, 1);
    return true;
}

void rme_log_drain(struct rme_log *log)
{
    struct line line;

    if (log == NULL || !rme_log_pending(log))
        return;
    pthread_mutex_lock(&log->lock);
    if (!log->draining) {
        log->draining = true;
        while (take(log, &line)) {
            pthread_mutex_unlock(&log->lock);
            log->fn(log->arg, line.level, line.text);
            pthread_mutex_lock(&log->lock);
        }
        log->draining = false;
    }
    pthread_mutex_unlock(&log->lock);
}
