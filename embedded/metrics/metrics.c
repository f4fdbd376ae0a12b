/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* metrics.c - see metrics.h. */
#include "embedded/metrics/metrics.h"

#include <inttypes.h>
#include <string.h>

#define NAME_MAX_LENGTH 128

/* Escapes backslash and line feed, as help texts need, and quotes in labels. */
static void put_escaped(FILE *out, const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\n') {
            fputs("\\n", out);
            continue;
        }
        if (strchr(special, *text) != NULL)
            putc('\\', out);
        putc(*text, out);
    }
}

void metrics_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s ", name);
    put_escaped(out, help, "\\");
    fprintf(out, "\n# TYPE %s %s\n", name, type);
}

void metrics_label(FILE *out, const char *value)
{
    put_escaped(out, value, "\\\"");
}

static void put_counter(FILE *out, const struct rme_counter *c, const char *network)
{
    char name[NAME_MAX_LENGTH];
    bool has_unit = strstr(c->name, c->unit) != NULL;

    snprintf(name, sizeof(name), "rme_%s%s%s%s", c->name, has_unit ? "" : "_",
             has_unit ? "" : c->unit, c->gauge ? "" : "_total");
    metrics_head(out, name, c->gauge ? "gauge" : "counter", c->text);
    fprintf(out, "%s{network=\"", name);
    metrics_label(out, network);
    fprintf(out, "\"} %" PRIu64 "\n", c->value);
}

void metrics_engine(FILE *out, struct rme *rme, const char *network)
{
    struct rme_counter counter;

    for (int i = 0; !rme_counter_get(rme, i, &counter); i++)
        put_counter(out, &counter, network);
}
