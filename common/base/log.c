/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A ring of lines between threads that log under a lock and the host's callback.  One thread at
 * a time drains, so the host gets the lines in order; the lock of the ring is not held during
 * the callback.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/timer.h"

/* Prefix of formats of lines about a host: the text before the first ": " names the host. */
#define ABOUT_A_HOST "%s: "
/* rows of the table of sorts of lines: two sorts in one row share its allowance */
#define ROWS 64

struct line {
    enum rme_log_level level;
    char text[RME_LOG_LINE];
};

/* Lines about one host with one format. */
struct sort {
    uint64_t begin; /* start of the period in ms */
    uint32_t passed;
    uint64_t left_out;
    struct line last; /* the last line left out */
};

struct rme_log {
    rme_log_fn fn;
    void *arg;
    atomic_bool *chores;  /* set after each line; NULL: none */
    pthread_mutex_t lock; /* guards the fields below; `count` is also read without the lock */
    bool draining;
    unsigned first;
    atomic_uint count;
    uint64_t lost;                 /* lines dropped since the last report */
    enum rme_log_level lost_level; /* of the most severe one */
    struct line ring[RME_LOG_QUEUE];
    struct sort sort[ROWS];
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
    atomic_store(chores, atomic_load(&log->count) != 0);
    pthread_mutex_unlock(&log->lock);
}

/* Returns the place of the next line; NULL: no room.  DEBUG has half of the ring. */
static struct line *next_slot(struct rme_log *log, enum rme_log_level level)
{
    unsigned count = atomic_load(&log->count);
    unsigned limit = level == RME_LOG_DEBUG ? RME_LOG_QUEUE / 2 : RME_LOG_QUEUE;

    return count < limit ? &log->ring[(log->first + count) % RME_LOG_QUEUE] : NULL;
}

/* Reports the lines left out in each period that is over at `now_ms`. */
static void report_left_out(struct rme_log *log, uint64_t now_ms)
{
    for (int i = 0; i < ROWS; i++) {
        struct sort *sort = &log->sort[i];
        struct line *line = next_slot(log, sort->last.level);

        if (line == NULL || sort->left_out == 0 || now_ms - sort->begin < RME_LOG_PERIOD_MS)
            continue;
        line->level = sort->last.level;
        snprintf(line->text, sizeof(line->text),
                 "%llu similar lines suppressed; the last one: %.400s",
                 (unsigned long long)sort->left_out, sort->last.text);
        atomic_fetch_add(&log->count, 1);
        sort->left_out = 0;
    }
}

void rme_log_free(struct rme_log *log)
{
    if (log == NULL)
        return;
    rme_log_drain(log);
    report_left_out(log, UINT64_MAX);
    rme_log_drain(log);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

/* Returns the length of the name without the last colon and the text behind it (the port),
 * which a peer can vary. */
static size_t host_length(const char *line)
{
    const char *end = strstr(line, ": ");
    size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
    size_t at = length;

    while (at > 0 && line[at - 1] != ':')
        at--;
    return at > 1 ? at - 1 : length;
}

/* Finds a row by a hash of format and host. */
static struct sort *sort_of(struct rme_log *log, const char *format, const char *line)
{
    uint32_t hash = rme_hash(RME_HASH_NONE, format, strlen(format));

    hash = rme_hash(hash, line, host_length(line));
    return &log->sort[(hash ^ hash >> 16) % ROWS];
}

/* Returns true unless the limit leaves the line out. */
static bool passes(struct rme_log *log, const struct line *line, const char *format,
                   uint64_t now_ms)
{
    struct sort *sort;

    if (line->level == RME_LOG_DEBUG ||
        strncmp(format, ABOUT_A_HOST, strlen(ABOUT_A_HOST)) != 0)
        return true;
    sort = sort_of(log, format, line->text);
    if (sort->passed == 0 || now_ms - sort->begin >= RME_LOG_PERIOD_MS) {
        sort->begin = now_ms;
        sort->passed = 0;
    }
    if (sort->passed < RME_LOG_BURST) {
        sort->passed++;
        return true;
    }
    sort->left_out++;
    sort->last = *line;
    return false;
}

void rme_log_put(void *arg, enum rme_log_level level, const char *format, ...)
{
    struct rme_log *log = arg;
    struct line *line;
    uint64_t now_ms;
    va_list args;

    if (log == NULL || log->fn == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    now_ms = rme_now(); /* not before `begin` of any period, which needs the lock */
    report_left_out(log, now_ms);
    line = next_slot(log, level);
    if (line == NULL) {
        if (log->lost == 0 || level < log->lost_level)
            log->lost_level = level;
        log->lost++;
    } else {
        line->level = level;
        va_start(args, format);
        vsnprintf(line->text, sizeof(line->text), format, args);
        va_end(args);
        if (passes(log, line, format, now_ms))
            atomic_fetch_add(&log->count, 1);
        if (log->chores != NULL)
            atomic_store(log->chores, true);
    }
    pthread_mutex_unlock(&log->lock);
}

void rme_log_text(const struct rme_log *log, enum rme_log_level level, const char *text)
{
    if (log != NULL && log->fn != NULL)
        log->fn(log->arg, level, text);
}

/* Takes the oldest line of the ring, or a report of dropped lines once there is room again. */
static bool take(struct rme_log *log, struct line *out)
{
    if (atomic_load(&log->count) == 0) {
        if (log->lost == 0)
            return false;
        out->level = log->lost_level;
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

    if (log == NULL || atomic_load_explicit(&log->count, memory_order_relaxed) == 0)
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

const char *rme_remedy(int error, const char *else_do)
{
    switch (error) {
    case -EMFILE:
        return "raise the limit of open files (ulimit -n)";
    case -ENFILE:
        return "raise the machine's limit of open files (sysctl fs.file-max)";
    case -EFBIG:
        return "raise the file size limit (ulimit -f)";
    case -ENOMEM:
        return "free memory, or raise its limits (ulimit -v, -l)";
    default:
        return else_do;
    }
}
