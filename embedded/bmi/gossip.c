/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* gossip.c - formats log lines and passes them to the program's sink or to stderr. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "gossip.h"

#define LINE_MAX_BYTES 1024

static struct {
    BMI_log_sink *sink;
    void *arg;
    atomic_uint_fast64_t mask;
    atomic_bool debug_on;
} logger;

void gossip_set_sink(BMI_log_sink *sink, void *arg)
{
    logger.sink = sink;
    logger.arg = arg;
}

void BMI_set_log_sink(BMI_log_sink *sink, void *arg)
{
    gossip_set_sink(sink, arg);
}

int gossip_set_debug_mask(int debug_on, uint64_t mask)
{
    atomic_store(&logger.mask, mask);
    atomic_store(&logger.debug_on, debug_on != 0);
    return 0;
}

int gossip_get_debug_mask(int *debug_on, uint64_t *mask)
{
    *debug_on = atomic_load(&logger.debug_on);
    *mask = atomic_load(&logger.mask);
    return 0;
}

/* Writes one line; a longer line is truncated. */
static void write_line(char kind, const char *format, va_list ap)
{
    char line[LINE_MAX_BYTES];
    if (vsnprintf(line, sizeof(line), format, ap) < 0)
        return;
    size_t length = strlen(line);
    while (length > 0 && line[length - 1] == '\n')
        line[--length] = '\0';
    if (logger.sink != NULL)
        logger.sink(logger.arg, kind, line);
    else
        fprintf(stderr, "%s\n", line);
}

int gossip_err(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    write_line('E', format, ap);
    va_end(ap);
    return 0;
}

void gossip_debug(uint64_t mask, const char *format, ...)
{
    if (!atomic_load_explicit(&logger.debug_on, memory_order_relaxed) ||
        !(atomic_load_explicit(&logger.mask, memory_order_relaxed) & mask))
        return;
    va_list ap;
    va_start(ap, format);
    write_line('D', format, ap);
    va_end(ap);
}
