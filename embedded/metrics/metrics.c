/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* metrics.c - see metrics.h. */
#include "embedded/metrics/metrics.h"

#include <inttypes.h>
#include <string.h>

#define NAME_MAX_LENGTH 128
#define STAGES_MOST     256 /* maximum number of stages, over all kinds and protocols */

/* Upper bounds of the histogram's buckets, as powers of two in ns: 1 us to 17 s in steps of
 * four.  The last bucket has no bound. */
#define CLASS_FIRST 10
#define CLASS_LAST  34
#define CLASS_STEP  2

/* Escapes backslash and line feed, as help texts need, and quotes in labels. */
static void put_escaped(FILE *out, const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\n') {
            fputs("\\n", out);
            continue;
        }
        if (strchr(special, *text))
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

/* ---- Stages ---- */

static void put_stage_sample(FILE *out, const struct rme_stage *s, const char *network,
                             const char *suffix, const char *bound)
{
    fprintf(out, "rme_stage_seconds%s{network=\"", suffix);
    metrics_label(out, network);
    fprintf(out, "\",kind=\"%s\",protocol=\"%s\",stage=\"%s\"", s->kind, s->protocol, s->stage);
    if (bound)
        fprintf(out, ",le=\"%s\"", bound);
    fputs("} ", out);
}

static void put_stage(FILE *out, const struct rme_stage *s, const char *network)
{
    uint64_t sum = 0;
    char bound[32];

    for (int i = 0; i < RME_TIME_CLASSES; i++) {
        int power = i + 1; /* class i ends below 2^(i+1) ns */

        sum += s->count[i];
        if (power < CLASS_FIRST || power > CLASS_LAST || (power - CLASS_FIRST) % CLASS_STEP)
            continue;
        snprintf(bound, sizeof(bound), "%.9f", (double)(UINT64_C(1) << power) * 1e-9);
        put_stage_sample(out, s, network, "_bucket", bound);
        fprintf(out, "%" PRIu64 "\n", sum);
    }
    put_stage_sample(out, s, network, "_bucket", "+Inf");
    fprintf(out, "%" PRIu64 "\n", sum);
    put_stage_sample(out, s, network, "_sum", NULL);
    fprintf(out, "%.9f\n", (double)s->spent_ns * 1e-9);
    put_stage_sample(out, s, network, "_count", NULL);
    fprintf(out, "%" PRIu64 "\n", sum);
}

/* Stages printed already.  A stage that is first counted during the output can move later rows
 * by one. */
struct seen {
    const char *kind, *protocol, *stage;
};

static bool was_seen(const struct seen *seen, int count, const struct rme_stage *s)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(seen[i].kind, s->kind) && !strcmp(seen[i].protocol, s->protocol) &&
            !strcmp(seen[i].stage, s->stage))
            return true;
    return false;
}

static void put_stages(FILE *out, struct rme *rme, const char *network)
{
    struct seen seen[STAGES_MOST];
    struct rme_stage stage;
    int count = 0;

    for (int i = 0; count < STAGES_MOST && !rme_stage_get(rme, i, &stage); i++) {
        if (was_seen(seen, count, &stage))
            continue;
        if (count == 0)
            metrics_head(
                out, "rme_stage_seconds", "histogram",
                "time of operations in a stage; one operation of sample_ops is measured");
        seen[count++] = (struct seen){stage.kind, stage.protocol, stage.stage};
        put_stage(out, &stage, network);
    }
}

void metrics_engine(FILE *out, struct rme *rme, const char *network)
{
    struct rme_counter counter;

    for (int i = 0; !rme_counter_get(rme, i, &counter); i++)
        put_counter(out, &counter, network);
    put_stages(out, rme, network);
}
