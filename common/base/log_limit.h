/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Limits log lines for each host.  Lines are of one sort if they have the same format and
 * concern the same host; ports are ignored.  Of each sort RME_LOG_BURST lines pass in
 * RME_LOG_PERIOD_MS; the others are counted, and their number is reported when the period is
 * over.  Sorts share a fixed number of rows, and two sorts in one row share its allowance.  So
 * any number of peers causes at most RME_LOG_ROWS times RME_LOG_BURST lines in a period.
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
/* bytes kept of the last line left out, with the final zero */
#define RME_LOG_SAMPLE 160

/* Prefix of formats of lines about a host: the text before the first ": " names the host. */
#define RME_LOG_ABOUT "%s: "

struct rme_log_row {
    uint64_t begin; /* start of the period */
    uint32_t passed;
    uint64_t left_out;
    int level; /* of the last line left out */
    char sample[RME_LOG_SAMPLE];
};

/* Zero-initialised. */
struct rme_log_limit {
    struct rme_log_row row[RME_LOG_ROWS];
    uint32_t owing;     /* rows with lines left out */
    uint64_t next_look; /* no period of these rows ends before */
};

/* Returns true if the line may be logged at now_ms, else counts it.  `format` is compared by
 * its text, `line` is the formatted line; `level` is the host's. */
bool rme_log_limit_pass(struct rme_log_limit *limit, int level, const char *format,
                        const char *line, uint64_t now_ms);

/* Returns how many lines a row has left out whose period is over (with `all`: any row), the
 * last one in *sample (valid until the next call), its level in *level.  0: none. */
uint64_t rme_log_limit_owed(struct rme_log_limit *limit, uint64_t now_ms, bool all, int *level,
                            const char **sample);

#endif
