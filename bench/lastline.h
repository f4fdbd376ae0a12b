/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The last error line of BMI, or all lines joined, stored for the one line that the program
 * prints. BMI logs from any thread; one struct lastline can be active at a time. */
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

/* Starts storing error lines, the last one or `all`, instead of printing them; lastline_end()
 * restores printing. BMI must not be running. */
void lastline_begin(struct lastline *last, bool all);
void lastline_end(struct lastline *last);

/* Copies the line into `text` (of LASTLINE_SIZE bytes); "" if there is none. */
void lastline_get(struct lastline *last, char *text);

#endif
