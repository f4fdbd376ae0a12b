/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How many lines a log takes about somebody.  Lines are of one sort when they have the same
 * kind (their format) and are about the same host, whatever its port.  Of each sort
 * RME_LOG_BURST lines pass in RME_LOG_PERIOD_MS; the others are counted, and the count is to be
 * told when the period is over.  Sorts share a fixed number of rows: two that meet in one row
 * share its allowance.  So no number of peers makes more than RME_LOG_ROWS times RME_LOG_BURST
 * lines in a period.
 *
 * Plain arithmetic: no lock, no clock, no allocation.
 */
#ifndef RME_LOG_LIMIT_H
#define RME_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define RME_LOG_BURST     10
#define RME_LOG_PERIOD_MS 10000
#define RME_LOG_ROWS      64
/* bytes that are kept of the last line left out, with the final zero */
#define RME_LOG_SAMPLE 160

/* Who a line is about: what is before the first ": " of a text whose format begins with "%s:
 * ". */
#define RME_LOG_ABOUT "%s: "

struct rme_log_row {
    uint64_t begin; /* of the period */
    uint32_t passed;
    uint64_t left_out;
    int level; /* of the last one */
    char sample[RME_LOG_SAMPLE];
};

/* All 0 at first. */
struct rme_log_limit {
    struct rme_log_row row[RME_LOG_ROWS];
    uint32_t owing;     /* rows that have left lines out */
    uint64_t next_look; /* no period of theirs ends before */
};

/*
 * May this line be logged at now_ms?  If not it is counted.  `format` is compared by its text,
 * `line` is what it became; `level` is the host's.
 */
bool rme_log_limit_pass(struct rme_log_limit *limit, int level, const char *format,
                        const char *line, uint64_t now_ms);

/*
 * A row whose period is over (with `all`: any) and that has left lines out: their number, the
 * last one in *sample (valid until the next call), its level in *level.  0: there is none.
 */
uint64_t rme_log_limit_owed(struct rme_log_limit *limit, uint64_t now_ms, bool all, int *level,
                            const char **sample);

#endif
