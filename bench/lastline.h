/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The last error line of BMI, kept for the one line that the program prints when it fails.  BMI
 * logs from any thread; only one struct lastline can listen at a time.
 */
#ifndef BENCH_LASTLINE_H
#define BENCH_LASTLINE_H

#include <pthread.h>

#define LASTLINE_SIZE 400

struct lastline {
    pthread_mutex_t lock;
    char text[LASTLINE_SIZE];
};

/* From now on error lines are kept and not printed; lastline_end prints them again.  BMI must
 * not be running. */
void lastline_begin(struct lastline *last);
void lastline_end(struct lastline *last);

/* Copies the line into `text` (of LASTLINE_SIZE bytes); "" when there was none. */
void lastline_get(struct lastline *last, char *text);

#endif
