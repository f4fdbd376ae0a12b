/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each cell: one shape of message, by the planner's choice and by each protocol by force. */
#include <stdlib.h>
#include <string.h>

#include "bench/model/pages.h"
#include "bench/model/stream.h"

#define BAR 1.10

#define NO_RING  "eager_ring_bytes=0,"
#define IN_PLACE "list_mode=group,pack_threshold=1"
#define COPIED   "list_mode=pack,pack_threshold=1G"

/* Options of both ends, of the sender and of the receiver. */
static const struct forced {
    const char *name, *both, *sender, *receiver;
} forced[] = {
    {"the planner", "", "", ""},
    {"copied through the ring", COPIED, "", ""},
    {"written in place", NO_RING "rndv=write", IN_PLACE, IN_PLACE},
    {"written in place, not invited", NO_RING "rndv=write,early_cts=0", IN_PLACE, IN_PLACE},
    {"written, the receiver copies", NO_RING "rndv=write", IN_PLACE, COPIED},
    {"written, the sender copies", NO_RING "rndv=write", COPIED, IN_PLACE},
    {"written, both copy", NO_RING "rndv=write", COPIED, COPIED},
    {"read in place", NO_RING "rndv=read,early_cts=0", IN_PLACE, IN_PLACE},
    {"read, the receiver copies", NO_RING "rndv=read,early_cts=0", IN_PLACE, COPIED},
    {"read, the sender copies", NO_RING "rndv=read,early_cts=0", COPIED, IN_PLACE},
    {"read, both copy", NO_RING "rndv=read,early_cts=0", COPIED, COPIED},
};

enum { FORCED = sizeof forced / sizeof *forced };

/* What a key opens to a peer (option rkey_scope of bmi_ib). */
static const struct exposure {
    const char *name, *options;
} windows = {"windows", "loop_windows=4096"},
  each = {"registered for each operation", "loop_windows=0,loop_each=1"},
  region = {"without windows", "loop_windows=0"};

static const uint64_t sizes[] = {64,       1 << 10,   4 << 10,   8 << 10, 16 << 10, 32 << 10,
                                 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20};
static const uint64_t list_sizes[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20};
static const uint32_t pieces[] = {8, 64, 128};

/* The cells of one device and exposure. */
struct part {
    FILE *out;
    const struct device *d;
    const struct exposure *exposure;
    int cells, above, failed;
    double worst;
    char worst_cell[96];
};

static int measure(const struct part *p, const struct shape *shape, const struct forced *f,
                   struct outcome *out)
{
    char both[256];
    const struct stream_options options = {both, f->sender, f->receiver};

    snprintf(both, sizeof both, "%s%s%s", p->exposure->options, *f->both ? "," : "", f->both);
    return stream_run(p->d, shape, &options, out);
}

static void cell(struct part *p, uint64_t bytes, uint32_t send, uint32_t recv, uint32_t flight)
{
    const struct shape shape = {bytes, send, recv, flight};
    struct outcome chosen, other, best = {0};
    int by = 0;

    for (int i = 0; i < FORCED; i++) {
        if (measure(p, &shape, &forced[i], &other)) {
            p->failed++;
            return;
        }
        if (i == 0)
            chosen = best = other;
        if (other.ns < best.ns) {
            best = other;
            by = i;
        }
    }
    double ratio = chosen.ns / best.ns;
    const char *mark = ratio > BAR ? "**" : "";
    char name[96];
    snprintf(name, sizeof name, "%llu bytes, %u to %u pieces, %u in flight",
             (unsigned long long)bytes, send, recv, flight);
    fprintf(p->out, "| %llu | %u | %u | %u | %.2f | %s | %.2f | %s | %s%.2f%s |\n",
            (unsigned long long)bytes, send, recv, flight, chosen.ns / 1e3, chosen.chosen,
            best.ns / 1e3, forced[by].name, mark, ratio, mark);
    p->cells++;
    p->above += ratio > BAR;
    if (ratio > p->worst) {
        p->worst = ratio;
        snprintf(p->worst_cell, sizeof p->worst_cell, "%s", name);
    }
}

static void lists(struct part *p, uint32_t flight)
{
    for (size_t s = 0; s < sizeof list_sizes / sizeof *list_sizes; s++)
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            cell(p, list_sizes[s], pieces[i], 1, flight);
            cell(p, list_sizes[s], 1, pieces[i], flight);
            cell(p, list_sizes[s], pieces[i], pieces[i], flight);
        }
}

static void all_cells(struct part *p)
{
    for (uint32_t flight = 1; flight <= 8; flight += 7) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            cell(p, sizes[s], 1, 1, flight);
        lists(p, flight);
    }
}

static void corner_cells(struct part *p)
{
    for (uint32_t flight = 1; flight <= 8; flight += 7) {
        cell(p, 64, 1, 1, flight);
        cell(p, 32 << 10, 1, 1, flight);
        cell(p, 64 << 10, 1, 1, flight);
        cell(p, 256 << 10, 8, 1, flight);
        cell(p, 256 << 10, 64, 64, flight);
    }
}

static void device_part(struct part *p, bool corners)
{
    fprintf(
        p->out,
        "\n## %s, %s\n\n"
        "| bytes | sender's pieces | receiver's | in flight | planner, us | by | best, us | "
        "by | ratio |\n|---|---|---|---|---|---|---|---|---|\n",
        p->d->text, p->exposure->name);
    if (corners)
        corner_cells(p);
    else
        all_cells(p);
}

/* What its keys open by default, and without windows; returns the number of both. */
static int exposures_of(const struct device *d, const struct exposure *kinds[2])
{
    kinds[0] = d->windows ? &windows : d->reg.call > 0 ? &each : &region;
    kinds[1] = &region;
    return kinds[0] == &region ? 1 : 2;
}

int planner_judge(const struct device *d, struct judged *out)
{
    const struct exposure *kinds[2];
    char *text = NULL;
    size_t size = 0;
    int n = exposures_of(d, kinds), failed = 0;
    FILE *lines = open_memstream(&text, &size);

    for (int i = 0; lines != NULL && i < n; i++) {
        struct part p = {.out = lines, .d = d, .exposure = kinds[i]};
        corner_cells(&p);
        out->above += p.above;
        out->worst = p.worst > out->worst ? p.worst : out->worst;
        failed += p.failed;
    }
    if (lines != NULL)
        fclose(lines);
    free(text);
    return lines != NULL && !failed ? 0 : -1;
}

static bool is_left_out(const struct device *d, bool corners)
{
    return corners && strcmp(d->name, "cx5-edr") != 0 && strcmp(d->name, "infinihost") != 0;
}

/* Writes all parts, and a row of the summary for each.  Returns the number of failures. */
static int all_parts(FILE *summary, FILE *parts, bool corners)
{
    int failed = 0;

    for (const struct device *d = model_devices; d->name; d++) {
        const struct exposure *kinds[2];
        int n = exposures_of(d, kinds);
        for (int i = 0; !is_left_out(d, corners) && i < n; i++) {
            struct part p = {.out = parts, .d = d, .exposure = kinds[i]};
            device_part(&p, corners);
            fprintf(summary, "| %s | %s | %d | %d | %.2f: %s |\n", d->name, p.exposure->name,
                    p.cells, p.above, p.worst, p.worst_cell);
            failed += p.failed;
        }
    }
    return failed;
}

int planner_page(FILE *out, bool corners)
{
    char *text = NULL;
    size_t size = 0;
    FILE *parts = open_memstream(&text, &size);
    int failed = -1;

    fputs("# Devices in virtual time: the planner\n\n"
          "Written by `bench/model/model planner` (a minute). Time of a message by the "
          "planner's choice, and by\nthe best of ten protocols that options force: from post "
          "to receipt with one in flight, a share of\n64 (24 from 1 MiB on) with 8. Memory of "
          "the program, used before. A list's pieces lie one piece\napart. Not measured: "
          "modelled (`doc/design/model.md`).\n\n"
          "| device | exposure | cells | above 1.10 | worst |\n|---|---|---|---|---|\n",
          out);
    if (parts != NULL) {
        failed = all_parts(out, parts, corners);
        fclose(parts);
        fputs(text, out);
    }
    free(text);
    return failed ? -1 : 0;
}
