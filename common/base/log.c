/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A ring of lines between threads that log under a lock and the host's callback.  One thread at
 * a time drains, so the host gets the lines in order; the lock of the ring is not held during
 * the callback.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/log_limit.h"
#include "base/timer.h"

struct line {
    enum rme_log_level level;
    char text[RME_LOG_LINE];
};

struct rme_log {
    rme_log_fn fn;
    void *arg;
    atomic_bool *chores;  /* set after each line; NULL: none */
    pthread_mutex_t lock; /* guards the fields below; `count` is also read without the lock */
    bool draining;
    unsigned first;
    atomic_uint count;
    uint64_t lost; /* lines dropped since the last queued one */
    struct rme_log_limit limit;
    /* the limit has left out lines whose number is not logged yet; also read without the
     * lock */
    atomic_bool owing;
    bool closing; /* log the number of lines left out at once */
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

void rme_log_tells(struct rme_log *log, atomic_bool *chores)
{
    pthread_mutex_lock(&log->lock);
    log->chores = chores;
    atomic_store(chores, rme_log_pending(log));
    pthread_mutex_unlock(&log->lock);
}

void rme_log_free(struct rme_log *log)
{
    if (log == NULL)
        return;
    log->closing = true;
    rme_log_drain(log);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

static struct line *next_slot(struct rme_log *log)
{
    return &log->ring[(log->first + atomic_load(&log->count)) % RME_LOG_QUEUE];
}

/* Returns true unless the limit leaves the line out.  Lines of level DEBUG are not limited. */
static bool wanted(struct rme_log *log, enum rme_log_level level, const char *format,
                   const char *text)
{
    if (level == RME_LOG_DEBUG ||
        rme_log_limit_pass(&log->limit, (int)level, format, text, rme_now()))
        return true;
    atomic_store(&log->owing, true);
    return false;
}

static void put(struct rme_log *log, enum rme_log_level level, const char *format, va_list args)
{
    struct line *line;

    if (log == NULL || log->fn == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    if (atomic_load(&log->count) == RME_LOG_QUEUE) {
        log->lost++;
    } else {
        line = next_slot(log);
        line->level = level;
        vsnprintf(line->text, sizeof(line->text), format, args);
        if (wanted(log, level, format, line->text))
            atomic_fetch_add(&log->count, 1);
        if (log->chores != NULL)
            atomic_store(log->chores, true);
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

void rme_log_text(const struct rme_log *log, enum rme_log_level level, const char *format, ...)
{
    char text[RME_LOG_LINE];
    va_list args;

    if (log == NULL || log->fn == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    log->fn(log->arg, level, text);
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
    return atomic_load_explicit(&log->count, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&log->owing, memory_order_relaxed);
}

/* Takes a report of lines that were left out, once their period is over. */
static bool take_owed(struct rme_log *log, struct line *out)
{
    const char *sample;
    uint64_t left_out;
    int level;

    if (!atomic_load(&log->owing))
        return false;
    left_out = rme_log_limit_owed(&log->limit, rme_now(), log->closing, &level, &sample);
    atomic_store(&log->owing, log->limit.owing != 0);
    if (left_out == 0)
        return false;
    out->level = (enum rme_log_level)level;
    snprintf(out->text, sizeof(out->text), "%llu similar lines suppressed; the last one: %s",
             (unsigned long long)left_out, sample);
    return true;
}

/* Takes the oldest line of the ring, or a report: of dropped lines once there is room again, or
 * of lines left out. */
static bool take(struct rme_log *log, struct line *out)
{
    if (atomic_load(&log->count) == 0) {
        if (log->lost == 0)
            return take_owed(log, out);
        out->level = RME_LOG_WARN;
        snprintf(out->text, sizeof(out->text),
                 "%llu log lines lost: produced faster than written",
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
    int cancels;

    if (log == NULL || !rme_log_pending(log))
        return;
    /* cancellation in the host's callback would block the log for all threads */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
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
    pthread_setcancelstate(cancels, NULL);
}
