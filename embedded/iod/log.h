/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* log.h - the server's log: one line per decision, on standard error. */
#ifndef IOD_LOG_H
#define IOD_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERRORS, LOG_DECISIONS, LOG_DETAILS };

/* Lines above this level are dropped.  Set once, before threads start. */
void log_set_level(enum log_level level);

bool log_wanted(enum log_level level);

/* Writes "<time> <line>\n" in one piece.  Any thread. */
void log_line(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
