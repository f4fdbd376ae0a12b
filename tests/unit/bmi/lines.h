/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* lines.h - counts the log lines of a test instead of printing them. */
#ifndef LINES_H
#define LINES_H

struct lines {
    int errors, debug;
    char last_error[1200];
};

extern struct lines lines;

/* Resets the counts and starts counting. */
void lines_count(void);

#endif
