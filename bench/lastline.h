/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The last error line of BMI, or all of them as one, kept for the one line that the program
 * prints.  BMI logs from any thread; only one struct lastline can listen at a time.
 */
#ifndef BENCH_LASTLINE_H
#define BENCH_LASTLINE_H

#include <pthread.h>
#include <stdbool.h>

#define LASTLINE_SIZE 400

struct lastline {
    pthread_mutex_t lock;
    bool all;
    char text[LASTLINE_SIZE];
};

/* From now on error lines are kept, the last one or `all`, and not printed; lastline_end prints
 * them again.  BMI must not be running. */
void lastline_begin(struct lastline *last, bool all);
void lastline_end(struct lastline *last);

/* Copies the line into `text` (of LASTLINE_SIZE bytes); "" when there was none. */
void lastline_get(struct lastline *last, char *text);

#endif
