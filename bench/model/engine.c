/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/model/pages.h"
#include "bench/model/raw.h"
#include "bench/model/stream.h"

static const uint64_t sizes[] = {64,       1 << 10,   4 << 10,   8 << 10, 16 << 10, 32 << 10,
                                 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20};

static int print_row(FILE *out, const struct device *d, uint64_t bytes)
{
    const struct stream_options options = {d->windows ? "loop_windows=4096" : "loop_windows=0",
                                           "", ""};
    struct shape shape = {bytes, 1, 1, 1};
    struct outcome one, eight;
    double bare = raw_latency(d, REQUEST_WRITE, bytes),
           each = raw_interval(d, REQUEST_WRITE, bytes);

    if (stream_run(d, &shape, &options, &one))
        return -1;
    shape.in_flight = 8;
    if (stream_run(d, &shape, &options, &eight))
        return -1;
    fprintf(out, "| %s | %llu | %.2f | %.2f | %.2f | %.0f | %.0f | %.2f | %s |\n", d->name,
            (unsigned long long)bytes, bare / 1e3, one.ns / 1e3, one.ns / bare,
            (double)bytes / each * 1e3, (double)bytes / eight.ns * 1e3, each / eight.ns,
            eight.chosen);
    return 0;
}

/* ---- Depth of the send queue ---- */

static int print_depth(FILE *out, const struct device *of, uint32_t depth)
{
    static const struct stream_options options = {"loop_windows=4096", "", ""};
    struct shape shape = {4 << 10, 1, 1, 8};
    struct device d = *of;
    struct outcome eight, many;

    d.depth = depth;
    if (stream_run(&d, &shape, &options, &eight))
        return -1;
    shape.in_flight = 32;
    if (stream_run(&d, &shape, &options, &many))
        return -1;
    fprintf(out, "| %s | %u | %u | %.0f | %.0f | %.0f |\n", d.name, depth, (depth + 1) / 2,
            4096 / raw_interval_depth(&d, 4096, depth) * 1e3, 4096 / eight.ns * 1e3,
            4096 / many.ns * 1e3);
    return 0;
}

static int depth_table(FILE *out)
{
    static const char *const devices[] = {"cx5-edr", "cx5-roce", "cx6-hdr"};
    static const uint32_t depths[] = {7, 15, 31, 63, 127};
    int rc = 0;

    fputs(
        "\n## Depth of the send queue\n\n"
        "4 KiB by one connection. Sends alone, as `bmi_ib` signals them: a completion for half "
        "a queue frees\nits entries. The engine, with 8 and 32 messages in flight. KiB: a "
        "connection's send queue on mlx5.\n\n"
        "| device | depth | KiB | sends, MB/s | engine, 8 | engine, 32 |\n"
        "|---|---|---|---|---|---|\n",
        out);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        for (size_t k = 0; k < sizeof depths / sizeof *depths && !rc; k++)
            rc = print_depth(out, model_device(devices[i]), depths[k]);
    return rc;
}

int engine_page(FILE *out)
{
    int rc = 0;

    fputs("# Devices in virtual time: the engine\n\n"
          "Written by `bench/model/model engine`. Memory of the program, used before; each "
          "receive is posted\nbefore its send. Latency: one message at a time, from its post "
          "to its receipt. Bandwidth: 64\nmessages (24 from 1 MiB on) with 8 in "
          "flight, from the first post to the last receipt. Beside: a\nbare write with "
          "perftest's loop. Windows where the device has them.\nNot measured: "
          "modelled (`doc/design/model.md`).\n\n"
          "| device | bytes | write, us | engine, us | ratio | write, MB/s | engine, MB/s | "
          "ratio | by |\n|---|---|---|---|---|---|---|---|---|\n",
          out);
    for (const struct device *d = model_devices; d->name; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !rc; i++)
            rc = print_row(out, d, sizes[i]);
    return rc ? rc : depth_table(out);
}
