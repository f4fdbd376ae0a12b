/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Series of measurements; see series.h. */
#include "bench/series.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const unit_names[] = {"us", "MB/s", "msg/s"};
static const char *const side_names[] = {"bmi", "tcp"};
static const char *const memory_names[] = {"user", "bmi", "huge"}; /* enum job_memory */

static double value_of(const struct series *series, const struct outcome *outcome)
{
    double seconds = (double)(outcome->end - outcome->start) / 1e9;

    switch (series->unit) {
    case UNIT_US: /* all clients send at the same time; each message is sent there and back */
        return seconds * 1e6 / (double)series->job.count / 2;
    case UNIT_MBS:
        return (double)outcome->bytes / 1e6 / seconds;
    case UNIT_RATE:
        return (double)outcome->messages / seconds;
    }
    return 0;
}

static double server_cpu(const struct outcome *outcome)
{
    uint64_t sum = 0;
    int i;

    for (i = 0; i < MAX_SERVERS; i++)
        sum += outcome->server_cpu_end[i] - outcome->server_cpu_start[i];
    return (double)sum / (double)(outcome->end - outcome->start);
}

static int one_round(struct series *series, struct workers *workers, char *why)
{
    struct outcome outcome;

    if (workers_run(workers, series->side, &series->job, &outcome, why))
        return -1;
    series->value[series->rounds] = value_of(series, &outcome);
    series->client_cpu[series->rounds] =
        (double)outcome.cpu / (double)(outcome.end - outcome.start);
    series->server_cpu[series->rounds] = server_cpu(&outcome);
    series->bad += outcome.bad;
    latency_add(&series->latency, &outcome.latency);
    series->rounds++;
    return 0;
}

/* Runs the series of one group, interleaved. */
static int run_group(struct series *group, unsigned count, unsigned rounds,
                     struct workers *workers, char *why)
{
    unsigned round, i;

    for (round = 0; round < rounds; round++)
        for (i = 0; i < count; i++)
            if (one_round(&group[round % 2 ? count - 1 - i : i], workers, why))
                return -1;
    return 0;
}

int series_run(struct series *series, unsigned count, unsigned rounds, struct workers *workers,
               char *why)
{
    unsigned from, to;

    for (from = 0; from < count; from = to) {
        for (to = from + 1; to < count && !series[to].first_of_group; to++)
            ;
        if (run_group(series + from, to - from, rounds, workers, why))
            return -1;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct spread {
    double least, median, most;
};

static struct spread spread_of(const double *value, unsigned count)
{
    double sorted[MAX_ROUNDS];
    struct spread spread = {0};

    if (!count)
        return spread;
    memcpy(sorted, value, count * sizeof *value);
    qsort(sorted, count, sizeof *sorted, compare);
    spread.least = sorted[0];
    spread.most = sorted[count - 1];
    spread.median =
        count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    return spread;
}

double series_median(const double *value, unsigned count)
{
    return spread_of(value, count).median;
}

/* Returns the factor by which the first of the group is better than this one; for times, lower
 * is better. */
static double ratio(const struct series *first, const struct series *series)
{
    double a = series_median(first->value, first->rounds),
           b = series_median(series->value, series->rounds);

    if (series->unit == UNIT_US)
        return a > 0 ? b / a : 0;
    return b > 0 ? a / b : 0;
}

/* Percentiles of the time one way, in us, with the names of their columns. */
static const struct {
    const char *name;
    double share;
} percentiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}};

#define PERCENTILES (sizeof percentiles / sizeof *percentiles)

static double percentile(const struct series *series, size_t i)
{
    return latency_percentile(&series->latency, percentiles[i].share) / 2000;
}

static const char *way_name(const struct job *job)
{
    static const char *const names[] = {"put", "get", "both"};

    return job->test == JOB_STREAM ? names[job->direction] : "";
}

static uint64_t segments(const struct job *job)
{
    return job->extent ? job->size / job->extent : 1;
}

void series_print(FILE *out, const struct series *series, unsigned count)
{
    const struct series *first = series;
    unsigned i;

    fprintf(out, "%-7s %-4s %-4s %10s %8s %9s %11s %11s %11s %-5s", "test", "over", "way",
            "bytes", "segments", "messages", "median", "least", "most", "unit");
    for (size_t n = 0; count && series->unit == UNIT_US && n < PERCENTILES; n++)
        fprintf(out, " %8s", percentiles[n].name);
    fprintf(out, " %8s %8s  %s\n", "cl.cores", "sv.cores", "first is better by");
    for (i = 0; i < count; i++) {
        const struct series *s = &series[i];
        struct spread spread = spread_of(s->value, s->rounds);

        if (s->first_of_group)
            first = s;
        fprintf(out,
                "%-7s %-4s %-4s %10" PRIu64 " %8" PRIu64 " %9" PRIu64
                " %11.2f %11.2f %11.2f %-5s",
                s->name, side_names[s->side], way_name(&s->job), s->job.size, segments(&s->job),
                s->job.count, spread.median, spread.least, spread.most, unit_names[s->unit]);
        for (size_t n = 0; s->unit == UNIT_US && n < PERCENTILES; n++)
            fprintf(out, " %8.2f", percentile(s, n));
        fprintf(out, " %8.2f %8.2f", series_median(s->client_cpu, s->rounds),
                series_median(s->server_cpu, s->rounds));
        if (s != first)
            fprintf(out, "  %.2f", ratio(first, s));
        if (s->bad)
            fprintf(out, "  WRONG CONTENTS in %" PRIu64 " messages", s->bad);
        fputc('\n', out);
    }
}

static void print_values(FILE *out, const char *name, const double *value, unsigned count)
{
    unsigned i;

    fprintf(out, "\"%s\": [", name);
    for (i = 0; i < count; i++)
        fprintf(out, "%s%.3f", i ? ", " : "", value[i]);
    fprintf(out, "]");
}

void series_print_json(FILE *out, const struct series *series, unsigned count)
{
    const struct series *first = series;
    unsigned i;

    for (i = 0; i < count; i++) {
        const struct series *s = &series[i];
        struct spread spread = spread_of(s->value, s->rounds);

        if (s->first_of_group)
            first = s;
        fprintf(
            out,
            "  {\"test\": \"%s\", \"over\": \"%s\", \"way\": \"%s\", \"bytes\": %" PRIu64
            ", \"segments\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"window\": %" PRIu64
            ", \"buffers\": %" PRIu64
            ", \"memory\": \"%s\", \"verified\": %s, \"bad\": %" PRIu64 ", \"unit\": \"%s\","
            " \"median\": %.3f, \"least\": %.3f, \"most\": %.3f, \"first_better_by\": %.3f, ",
            s->name, side_names[s->side], way_name(&s->job), s->job.size, segments(&s->job),
            s->job.count, s->job.window, job_buffers(&s->job, s->job.window),
            memory_names[s->job.memory], s->job.verify ? "true" : "false", s->bad,
            unit_names[s->unit], spread.median, spread.least, spread.most, ratio(first, s));
        for (size_t n = 0; s->unit == UNIT_US && n < PERCENTILES; n++)
            fprintf(out, "\"%s\": %.3f, ", percentiles[n].name, percentile(s, n));
        print_values(out, "values", s->value, s->rounds);
        fprintf(out, ", ");
        print_values(out, "client_cores", s->client_cpu, s->rounds);
        fprintf(out, ", ");
        print_values(out, "server_cores", s->server_cpu, s->rounds);
        fprintf(out, "}%s", i + 1 < count ? ",\n" : "");
    }
}
