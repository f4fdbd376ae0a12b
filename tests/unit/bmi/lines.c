/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <string.h>

#include "gossip.h"
#include "lines.h"

struct lines lines;

static void count(void *arg, char kind, const char *line)
{
    (void)arg;
    if (kind == 'E') {
        lines.errors++;
        snprintf(lines.last_error, sizeof(lines.last_error), "%s", line);
    } else {
        lines.debug++;
    }
}

void lines_count(void)
{
    memset(&lines, 0, sizeof(lines));
    gossip_set_sink(count, NULL);
}
