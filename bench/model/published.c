/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Published rows, and the model's beside them.  doc/design/model.md names the sources. */
#include "bench/model/raw.h"

#include <stddef.h>
#include <string.h>

enum unit { US, MB_S, MIB_S, GBIT_S };
enum of { LATENCY, BANDWIDTH, REGISTER, INTERVAL, BIND_AFTER };

struct row {
    uint64_t bytes;
    double value;
};

/* Rows of one source. */
struct series {
    const char *device, *source;
    enum request_kind kind;
    enum of of;
    enum unit unit;
    struct row row[14]; /* ended by a value of 0 */
};

#define KIB 1024
#define MIB (1024 * KIB)

static const struct series published[] = {
    {"infinihost", "000 Table 2", REQUEST_SEND, LATENCY, US, {{4, 8.1}}},
    {"infinihost", "000 Table 2", REQUEST_WRITE, LATENCY, US, {{4, 6.0}}},
    {"infinihost", "000 Table 2", REQUEST_READ, LATENCY, US, {{4, 12.4}}},
    {"infinihost", "000 Table 2", REQUEST_SEND, BANDWIDTH, MIB_S, {{MIB, 825}}},
    {"infinihost", "000 Table 2", REQUEST_WRITE, BANDWIDTH, MIB_S, {{MIB, 827}}},
    {"infinihost", "000 Table 2", REQUEST_READ, BANDWIDTH, MIB_S, {{MIB, 816}}},
    {"infinihost", "001 Table 1", REQUEST_WRITE, LATENCY, US, {{4, 5.8}}},
    {"infinihost", "001 Table 1", REQUEST_READ, LATENCY, US, {{4, 11.2}}},
    {"infinihost", "001 Table 1", REQUEST_WRITE, BANDWIDTH, MIB_S, {{MIB, 832}}},
    {"infinihost", "001 Table 1", REQUEST_READ, BANDWIDTH, MIB_S, {{MIB, 821}}},
    {"infinihost", "003 Figure 2", REQUEST_WRITE, BANDWIDTH, MIB_S, {{MIB, 834}}},
    {"infinihost-dafs", "002 Table I", REQUEST_SEND, LATENCY, US, {{4, 7.5}}},
    {"infinihost-dafs", "002 Table I", REQUEST_SEND, BANDWIDTH, MB_S, {{MIB, 746}}},
    {"infinihost-dafs",
     "002 Table II, VAPI",
     REQUEST_WRITE,
     REGISTER,
     US,
     {{KIB, 61},
      {4 * KIB, 61},
      {8 * KIB, 74},
      {16 * KIB, 87},
      {32 * KIB, 117},
      {64 * KIB, 174}}},
    {"qm500", "004 Table 2", REQUEST_WRITE, LATENCY, US, {{4, 1.93}}},
    {"qm500", "004 Table 2", REQUEST_READ, LATENCY, US, {{4, 3.19}}},
    {"qm500", "004 Table 2", REQUEST_SEND, LATENCY, US, {{4, 3.02}}},
    {"qm500", "004 Table 2", REQUEST_WRITE, BANDWIDTH, MB_S, {{MIB, 910.1}}},
    {"qm500", "004 Table 2", REQUEST_READ, BANDWIDTH, MB_S, {{MIB, 911.1}}},
    {"qm500", "004 Table 2", REQUEST_SEND, BANDWIDTH, MB_S, {{2 * KIB, 368.2}}},
    {"cx3-qdr",
     "log Q",
     REQUEST_WRITE,
     LATENCY,
     US,
     {{2, 0.98},
      {128, 1.22},
      {256, 1.84},
      {KIB, 2.42},
      {2 * KIB, 3.18},
      {4 * KIB, 3.74},
      {8 * KIB, 4.82},
      {16 * KIB, 7.08},
      {64 * KIB, 19.97},
      {128 * KIB, 36.95},
      {256 * KIB, 71.0},
      {MIB, 275.4},
      {4 * MIB, 1093}}},
    {"cx3-qdr",
     "log Q",
     REQUEST_READ,
     LATENCY,
     US,
     {{2, 1.99},
      {128, 2.05},
      {256, 2.13},
      {KIB, 2.70},
      {2 * KIB, 3.45},
      {4 * KIB, 4.02},
      {8 * KIB, 5.08},
      {16 * KIB, 7.19},
      {64 * KIB, 20.0},
      {128 * KIB, 36.96},
      {256 * KIB, 70.97},
      {MIB, 275.0},
      {4 * MIB, 1092}}},
    {"cx3-qdr",
     "log Q",
     REQUEST_WRITE,
     BANDWIDTH,
     MIB_S,
     {{2, 10.4},
      {256, 1319},
      {KIB, 3406},
      {4 * KIB, 3608},
      {16 * KIB, 3650},
      {64 * KIB, 3658},
      {MIB, 3663},
      {4 * MIB, 3662}}},
    {"cx3-qdr",
     "log Q",
     REQUEST_READ,
     BANDWIDTH,
     MIB_S,
     {{2, 9.1},
      {256, 1163},
      {KIB, 2781},
      {4 * KIB, 3520},
      {16 * KIB, 3690},
      {64 * KIB, 3691},
      {MIB, 3668},
      {4 * MIB, 3667}}},
    {"cx3-fdr",
     "log F",
     REQUEST_READ,
     LATENCY,
     US,
     {{2, 2.34}, {128, 2.38}, {256, 2.49}, {KIB, 2.95}, {2 * KIB, 3.55}, {4 * KIB, 4.13}}},
    {"cx3-fdr", "log F2", REQUEST_WRITE, BANDWIDTH, MIB_S, {{64 * KIB, 6034}}},
    {"cx3-fdr", "log F3", REQUEST_SEND, BANDWIDTH, GBIT_S, {{64 * KIB, 49.6}}},
    {"cx5-edr",
     "thesis P",
     REQUEST_SEND,
     LATENCY,
     US,
     {{32, 0.83}, {KIB, 1.61}, {4 * KIB, 2.28}, {32 * KIB, 4.57}}},
    {"cx5-edr",
     "log I",
     REQUEST_WRITE,
     BANDWIDTH,
     GBIT_S,
     {{2, 0.059},
      {256, 7.5},
      {KIB, 30.9},
      {4 * KIB, 86.4},
      {16 * KIB, 98.2},
      {64 * KIB, 98.3},
      {MIB, 98.4},
      {4 * MIB, 98.4}}},
    {"cx5-edr", "log E", REQUEST_READ, BANDWIDTH, GBIT_S, {{MIB, 98.2}}},
    {"cx5-edr", "FineMem Table 1", REQUEST_BIND, INTERVAL, US, {{4 * KIB, 1.33}}},
    {"cx5-edr", "FineMem Table 1", REQUEST_INVALIDATE, INTERVAL, US, {{4 * KIB, 1.33}}},
    {"cx5-edr", "FineMem Table 1", REQUEST_INVALIDATE, BIND_AFTER, US, {{4 * KIB, 2.37}}},
    {"cx5-roce", "log M", REQUEST_WRITE, LATENCY, US, {{2, 0.99}}},
    {"cx5-roce", "log M", REQUEST_SEND, LATENCY, US, {{2, 0.92}}},
    {"cx5-roce", "log R", REQUEST_WRITE, BANDWIDTH, GBIT_S, {{MIB, 92.5}}},
    {"cx5-roce", "log R", REQUEST_READ, BANDWIDTH, GBIT_S, {{MIB, 87.3}}},
    {"cx6-hdr",
     "log H",
     REQUEST_WRITE,
     LATENCY,
     US,
     {{2, 1.87},
      {128, 1.96},
      {256, 2.87},
      {KIB, 3.05},
      {2 * KIB, 3.19},
      {4 * KIB, 3.85},
      {8 * KIB, 4.22},
      {16 * KIB, 4.39},
      {64 * KIB, 6.76},
      {128 * KIB, 9.41},
      {256 * KIB, 14.92},
      {MIB, 46.9},
      {4 * MIB, 175}}},
    {"cx6-hdr",
     "log H",
     REQUEST_WRITE,
     BANDWIDTH,
     MIB_S,
     {{2, 4.9},
      {256, 633},
      {KIB, 2507},
      {4 * KIB, 10281},
      {16 * KIB, 20503},
      {64 * KIB, 22715},
      {MIB, 23296},
      {4 * MIB, 23319}}},
    {"rxe",
     "this project",
     REQUEST_SEND,
     LATENCY,
     US,
     {{8, 9.5}, {64 * KIB, 658}, {MIB, 10390}, {4 * MIB, 38232}}},
    {"rxe", "this project", REQUEST_WRITE, BANDWIDTH, MIB_S, {{MIB, 101}}},
    {"rxe", "this project", REQUEST_READ, BANDWIDTH, MIB_S, {{MIB, 102}}},
    {"rxe", "this project", REQUEST_SEND, BANDWIDTH, MIB_S, {{MIB, 99.5}}},
};

static const char *const unit_names[] = {"us", "MB/s", "MiB/s", "Gbit/s"};
static const char *const kind_names[] = {"send", "write", "read", "bind", "invalidate"};
static const char *const of_names[] = {"latency", "bandwidth", "registration", "interval",
                                       "and bind, interval"};

static double in_unit(enum unit unit, uint64_t bytes, double ns)
{
    double per_ns = (double)bytes / ns;

    switch (unit) {
    case US:
        return ns / 1e3;
    case MB_S:
        return per_ns * 1e3;
    case MIB_S:
        return per_ns * 1e9 / MIB;
    case GBIT_S:
        return per_ns * 8;
    }
    return 0;
}

static double modelled(const struct series *s, uint64_t bytes)
{
    const struct device *d = model_device(s->device);
    double ns = 0;

    switch (s->of) {
    case LATENCY:
        ns = raw_latency(d, s->kind, bytes);
        break;
    case BANDWIDTH:
    case INTERVAL:
        ns = raw_interval(d, s->kind, bytes);
        break;
    case BIND_AFTER:
        ns = raw_interval(d, s->kind, bytes) + raw_interval(d, REQUEST_BIND, bytes);
        break;
    case REGISTER:
        ns = cost_of_pages(&d->reg, bytes);
        break;
    }
    return in_unit(s->unit, bytes, ns);
}

/* Prints as many digits as the published rows have. */
static void print_value(FILE *out, double value)
{
    int digits = value < 0.2 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0;

    fprintf(out, " %.*f |", digits, value);
}

int validate(FILE *out)
{
    int differ = 0, rows = 0;
    double worst = 1;

    fputs("# Devices in virtual time: validation\n\n"
          "Written by `bench/model/model validation`; `doc/design/model.md` has devices and "
          "sources.\n\n"
          "| device | source | row | bytes | unit | published | model | ratio |\n"
          "|---|---|---|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct series *s = &published[i];
        for (const struct row *row = s->row; row->value > 0; row++, rows++) {
            double model = modelled(s, row->bytes), ratio = model / row->value;
            double apart = ratio < 1 ? 1 / ratio : ratio;
            fprintf(out, "| %s | %s | %s %s | %llu | %s |", s->device, s->source,
                    kind_names[s->kind], of_names[s->of], (unsigned long long)row->bytes,
                    unit_names[s->unit]);
            print_value(out, row->value);
            print_value(out, model);
            fprintf(out, " %.2f |\n", ratio);
            differ += apart > 1.1;
            worst = apart > worst ? apart : worst;
        }
    }
    fprintf(out, "\n%d rows, %d of them beyond 1.10, the worst %.2f apart.\n", rows, differ,
            worst);
    return differ;
}
