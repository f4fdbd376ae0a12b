/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/log.h"
#include "embedded/iod/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static enum log_level highest = LOG_DECISIONS;

void log_set_level(enum log_level level)
{
    highest = level;
}

bool log_wanted(enum log_level level)
{
    return level <= highest;
}

void log_line(enum log_level level, const char *format, ...)
{
    char line[PATH_MAX + 1024];
    struct timespec now;
    struct tm tm;
    size_t at;
    int n;
    va_list args;

    if (!log_wanted(level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    at = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    at += (size_t)snprintf(line + at, sizeof line - at, ".%03ldZ ", now.tv_nsec / 1000000);
    va_start(args, format);
    n = vsnprintf(line + at, sizeof line - at - 1, format, args);
    va_end(args);
    if (n < 0)
        return;
    at = text_no_controls(line); /* names come from clients: keep one line */
    line[at++] = '\n';
    if (write(STDERR_FILENO, line, at) < 0)
        return; /* a failure cannot be reported */
}
