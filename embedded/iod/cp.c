/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cp.c - the program bmi-cp, around copy.h. */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"
#include "embedded/program/program.h"

#include <stdlib.h>
#include <string.h>

static void print_line(const char *line)
{
    fprintf(stderr, "%s\n", line);
}

static const char help[] =
    "usage: bmi-cp [OPTION]... SRC DST\n"
    "Copies a file to or from bmi-iod.  One of SRC and DST is a remote name, ADDR/name, like\n"
    "ib://host:port/name; the other one is a file (DST may be a folder).\n"
    "\n"
    "  -s, --servers ADDR,...   stripe over ADDR, the first, and these servers; copying out,\n"
    "                           all servers of the file\n"
    "  -S, --strip SIZE         bytes on one server before the next one follows (64K)\n"
    "  -b, --buffers N          messages in flight per server (8)\n"
    "  -B, --buffer-size SIZE   bytes of a message (512K)\n"
    "  -o, --options STR        key=value,... for the BMI methods\n"
    "  -t, --timeout S          fail when a server is silent for S seconds (6)\n"
    "  -q, --quiet              no progress bar and no result line\n"
    "  -v, --verbose            log details to standard error\n"
    "  -h, --help  -V, --version\n";

/* Source or destination. */
struct side {
    bool remote;
    char address[BMI_MAX_ADDR_LEN];
    const char *name; /* name of the object */
    const char *text;
};

static bool read_side(const char *text, struct side *side)
{
    side->text = text;
    if (!*text)
        return args_complain("empty name; give a file or ADDR/name");
    if (strcmp(text, "-") == 0)
        return args_complain("-: standard input and output cannot be copied; name a file "
                             "(./- for one of this name)");
    if (!args_remote(text, side->address, sizeof side->address, &side->name))
        return false;
    side->remote = side->name != NULL;
    return true;
}

static bool read_sides(int argc, char **argv, struct side *from, struct side *to)
{
    if (argc != 2)
        return args_complain("%d names given; give a source and a destination", argc);
    if (!read_side(argv[0], from) || !read_side(argv[1], to))
        return false;
    if (from->remote && to->remote)
        return args_complain("%s: both names are remote; copy to a file, then from there",
                             to->text);
    return from->remote || to->remote ||
           args_complain("%s: neither name is remote; write one as ib://host:port/name",
                         to->text);
}

int main(int argc, char **argv)
{
    static struct copy copy; /* large; the only one */
    struct args_list servers = {0};
    struct copy_options o = {.client = {.threads = 4, .interrupted = &args_interrupted},
                             .servers = &servers};
    uint64_t strip = 65536, buffers = 8, buffer_size = 512u << 10, timeout = 6;
    bool quiet = false, verbose = false, good;
    const struct args_option options[] = {
        {"servers", 's', ARGS_SERVERS, &servers, 0, 0},
        {"strip", 'S', ARGS_NUMBER, &strip, IOD_STRIP_MIN, IOD_STRIP_MAX},
        {"buffers", 'b', ARGS_NUMBER, &buffers, 1, IOD_BUFFERS_MAX},
        {"buffer-size", 'B', ARGS_NUMBER, &buffer_size, IOD_BUFFER_MIN, IOD_BUFFER_MAX},
        ARGS_OPTIONS(&o.client.options),
        ARGS_TIMEOUT(&timeout),
        {"quiet", 'q', ARGS_FLAG, &quiet, 0, 0},
        {"verbose", 'v', ARGS_FLAG, &verbose, 0, 0},
        {0},
    };
    struct side from, to;
    enum args_result result;
    double began, seconds;

    if (!program_streams())
        return 1;
    result = args_read(argc, argv, options, help);
    if (result != ARGS_READ || !read_sides(argc - optind, argv + optind, &from, &to)) {
        args_list_free(&servers);
        return result == ARGS_DONE ? 0 : 1;
    }
    o.client.timeout_ms = (int)timeout * 1000;
    o.strip = strip;
    o.buffers = (uint32_t)buffers;
    o.buffer_size = (uint32_t)buffer_size;
    o.bar = !quiet;
    o.client.line = verbose ? print_line : NULL;
    o.client.ignored = quiet || verbose ? NULL : args_ignored; /* --verbose shows it already */
    args_catch_signals();
    if (verbose)
        args_complain("copying %s to %s", from.text, to.text);
    began = clock_seconds();
    good = from.remote ? copy_out(&copy, &o, from.address, from.name, to.text)
                       : copy_in(&copy, &o, from.text, to.address, to.name);
    seconds = clock_seconds() - began;
    if (!good)
        args_complain("%s", copy.client.why);
    else if (copy.note[0] && !quiet)
        args_complain("%s", copy.note);
    if (good && !quiet)
        printf("%llu bytes in %.3f s, %.1f MB/s\n", (unsigned long long)copy.size, seconds,
               seconds > 0 ? (double)copy.size / seconds / 1e6 : 0);
    args_list_free(&servers);
    return good && args_output("; the copy itself is complete") ? 0 : 1;
}
