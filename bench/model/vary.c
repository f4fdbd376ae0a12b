/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The numbers that doc/design/model.md assumes, by half and double: which answers change. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/pages.h"

#define AT(member) offsetof(struct device, member)

/* Numbers that are assumed together.  `devices`: the beginning of their names. */
static const struct assumption {
    const char *name, *devices, *judged; /* judged: the device of the planner's corners */
    size_t at[4];                        /* ended by 0, which is the name's place */
    bool whole;                          /* uint32_t instead of double */
} assumptions[] = {
    {"qm500: a wake-up 10 us", "qm500", "qm500", {AT(wakeup)}, false},
    {"infinihost: 1.5 us between requests",
     "infinihost",
     "infinihost",
     {AT(gap), AT(read_gap), AT(port_gap)},
     false},
    {"infinihost: 4 reads outstanding", "infinihost", "infinihost", {AT(reads)}, true},
    {"infinihost: windows of 3 us",
     "infinihost",
     "infinihost",
     {AT(bind), AT(invalidate)},
     false},
    {"infinihost: a further SGE 0.1 us", "infinihost", "infinihost", {AT(segment)}, false},
    {"infinihost: a wake-up 15 us", "infinihost", "infinihost", {AT(wakeup)}, false},
    {"qm500: 0.7 us between DMAs",
     "qm500",
     "qm500",
     {AT(gap), AT(read_gap), AT(port_gap), AT(segment)},
     false},
    {"ConnectX: a further SGE 10 ns", "cx", "cx5-edr", {AT(segment)}, false},
    {"ConnectX: a wake-up 7 us", "cx", "cx5-edr", {AT(wakeup)}, false},
    {"rxe: registration of 10 us and 0.4 us a page",
     "rxe",
     "rxe",
     {AT(reg.call), AT(reg.page)},
     false},
};

static void vary(const struct assumption *a, double factor)
{
    for (struct device *d = model_devices; d->name; d++)
        for (int i = 0;
             i < 4 && a->at[i] && strncmp(d->name, a->devices, strlen(a->devices)) == 0; i++) {
            char *at = (char *)d + a->at[i];
            if (a->whole)
                *(uint32_t *)at = (uint32_t)(factor * *(uint32_t *)at);
            else
                *(double *)at *= factor;
        }
}

/* Prints the ratios whose outcome is another one. */
static void print_changes(FILE *out, const struct papers_outcomes *now,
                          const struct papers_outcomes *usual)
{
    const char *between = "";

    for (int i = 0; i < now->count; i++)
        if (now->row[i].outcome != usual->row[i].outcome && now->row[i].outcome != '-') {
            fprintf(out, "%s%s: %s (%.3g)", between, now->row[i].item, now->row[i].text,
                    now->row[i].ratio);
            between = "; ";
        }
    if (!*between)
        fputs("none", out);
}

static int print_row(FILE *out, const char *path, const struct assumption *a, double factor,
                     const struct papers_outcomes *usual, const struct judged *before)
{
    static struct papers_outcomes now;
    struct judged judged = {0};

    vary(a, factor);
    int rc =
        papers_judge(path, a->devices, &now) || planner_judge(model_device(a->judged), &judged);
    vary(a, 1 / factor);
    if (rc)
        return -1;
    fprintf(out, "| %s | %s | ", a->name, factor < 1 ? "half" : "double");
    print_changes(out, &now, usual);
    fprintf(out, " | %d to %d, %.2f to %.2f |\n", before->above, judged.above, before->worst,
            judged.worst);
    return 0;
}

static int print_rows(FILE *out, const char *path, const struct assumption *a)
{
    static struct papers_outcomes usual;
    struct judged before = {0};

    return papers_judge(path, a->devices, &usual) ||
                   planner_judge(model_device(a->judged), &before) ||
                   print_row(out, path, a, 0.5, &usual, &before) ||
                   print_row(out, path, a, 2, &usual, &before)
               ? -1
               : 0;
}

int vary_page(FILE *out, const char *path, bool few)
{
    size_t n = few ? 1 : sizeof assumptions / sizeof *assumptions;
    int rc = 0;

    fputs("# Devices in virtual time: assumptions\n\n"
          "Written by `bench/model/model vary bench/papers.model` (minutes). Numbers that no "
          "source has, by\nhalf and double: the ratios of `model-papers.md` that are reached "
          "within a tenth now and not before,\nor the reverse, with their new value; and the "
          "corners of the planner's page on that device: cells\nabove 1.10 of 20 (10 without "
          "windows and registration), and the worst.\n\n"
          "| assumption | by | papers' ratios | planner's corners |\n|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = print_rows(out, path, &assumptions[i]);
    return rc;
}
