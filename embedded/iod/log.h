/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* log.h - log of the server on standard error, one line per decision. */
#ifndef IOD_LOG_H
#define IOD_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERRORS, LOG_DECISIONS, LOG_DETAILS };

/* Sets the highest level that is logged.  Call once, before threads start. */
void log_set_level(enum log_level level);

bool log_wanted(enum log_level level);

/* Writes the time and a line, with one write(2).  Any thread. */
void log_line(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
