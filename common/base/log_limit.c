/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "base/log_limit.h"

/* Returns the length of the name without the last colon and the text behind it (the port),
 * which a peer can vary. */
static size_t host_length(const char *line)
{
    const char *end = strstr(line, ": ");
    size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
    size_t at = length;

    while (at > 0 && line[at - 1] != ':')
        at--;
    return at > 1 ? at - 1 : length;
}

/* FNV-1a */
static uint32_t hash(uint32_t h, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        h = (h ^ (uint8_t)text[i]) * 16777619u;
    return h;
}

static struct rme_log_row *row_of(struct rme_log_limit *limit, const char *format,
                                  const char *line)
{
    uint32_t h = hash(2166136261u, format, strlen(format));

    h = hash(h, line, host_length(line));
    return &limit->row[(h ^ h >> 16) % RME_LOG_ROWS];
}

static bool is_over(const struct rme_log_row *row, uint64_t now_ms)
{
    return now_ms - row->begin >= RME_LOG_PERIOD_MS;
}

bool rme_log_limit_pass(struct rme_log_limit *limit, int level, const char *format,
                        const char *line, uint64_t now_ms)
{
    struct rme_log_row *row;
    size_t length;

    if (strncmp(format, RME_LOG_ABOUT, strlen(RME_LOG_ABOUT)) != 0)
        return true;
    row = row_of(limit, format, line);
    if (row->passed == 0 || (row->left_out == 0 && is_over(row, now_ms))) {
        row->begin = now_ms;
        row->passed = 0;
    }
    if (row->passed < RME_LOG_BURST) {
        row->passed++;
        return true;
    }
    if (row->left_out++ == 0 && limit->owing++ == 0)
        limit->next_look = row->begin + RME_LOG_PERIOD_MS;
    length = strnlen(line, RME_LOG_SAMPLE - 1);
    memcpy(row->sample, line, length);
    row->sample[length] = '\0';
    row->level = level;
    return false;
}

uint64_t rme_log_limit_owed(struct rme_log_limit *limit, uint64_t now_ms, bool all, int *level,
                            const char **sample)
{
    uint64_t next = UINT64_MAX;

    if (limit->owing == 0 || (!all && now_ms < limit->next_look))
        return 0;
    for (uint32_t i = 0; i < RME_LOG_ROWS; i++) {
        struct rme_log_row *row = &limit->row[i];
        uint64_t left_out = row->left_out;

        if (left_out == 0)
            continue;
        if (all || is_over(row, now_ms)) {
            row->left_out = 0;
            row->passed = 0;
            limit->owing--;
            *level = row->level;
            *sample = row->sample;
            return left_out;
        }
        if (row->begin + RME_LOG_PERIOD_MS < next)
            next = row->begin + RME_LOG_PERIOD_MS;
    }
    limit->next_look = next;
    return 0;
}
