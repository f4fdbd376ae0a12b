/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cp.c - the program bmi-cp, around copy.h. */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/json.h"
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
    "  -s, --servers ADDR,...   stripe over these servers, ADDR being one of them and the "
    "first;\n"
    "                           copying out, go also to these of the recorded servers\n"
    "  -a, --allow HOST,...     copying out, go also to recorded servers on these hosts and\n"
    "                           networks (NET/BITS)\n"
    "  -S, --strip SIZE         bytes on one server before the next one follows (64K)\n"
    "  -b, --buffers N          messages in flight per server (8)\n"
    "  -B, --buffer-size SIZE   bytes of a message (512K)\n"
    "  -L, --list N             memory in N pieces per message (1)\n"
    "  -T, --threads N          threads for the disk (4)\n"
    "  -o, --options STR        key=value,... for the BMI methods\n"
    "  -t, --timeout S          fail when a server is silent for S seconds (6)\n"
    "  -f, --fsync              a file copied out is on the disk before success is reported\n"
    "  -j, --json               print the result as JSON\n"
    "  -q, --quiet              no progress bar and no result line\n"
    "  -v, --verbose            log details to standard error\n"
    "  -h, --help  -V, --version\n";

struct settings {
    struct copy_options copy;
    struct args_list servers;
    struct access *allow;
    bool json, quiet, verbose;
};

/* Source or destination. */
struct side {
    bool remote;
    char address[BMI_MAX_ADDR_LEN];
    const char *name; /* name of the object */
    const char *text;
};

static bool set_count(const char *option, const char *text, uint64_t most, int *value)
{
    uint64_t n = 0;

    if (!args_number(option, text, 1, most, &n))
        return false;
    *value = (int)n;
    return true;
}

static bool set_option(int option, const char *text, void *settings)
{
    struct settings *s = settings;
    struct copy_options *c = &s->copy;
    int n = 0;
    bool good = true;

    switch (option) {
    case 's':
        args_list_free(&s->servers);
        return args_list("--servers", text, IOD_STRIPE_MAX, &s->servers);
    case 'a':
        return args_access("--allow", text, &s->allow);
    case 'S':
        return args_number("--strip", text, IOD_STRIP_MIN, IOD_STRIP_MAX, &c->strip);
    case 'b':
        good = set_count("--buffers", text, IOD_BUFFERS_MAX, &n);
        c->buffers = (uint32_t)n;
        return good;
    case 'B': {
        uint64_t size = 0;
        good = args_number("--buffer-size", text, IOD_BUFFER_MIN, IOD_BUFFER_MAX, &size);
        c->buffer_size = (uint32_t)size;
        return good;
    }
    case 'L':
        return set_count("--list", text, NET_PIECES_MAX, &c->list);
    case 'T':
        return set_count("--threads", text, 64, &c->client.threads);
    case 'o':
        c->client.options = text;
        return true;
    case 't':
        good = set_count("--timeout", text, 86400, &n);
        c->client.timeout_ms = n * 1000;
        return good;
    case 'f':
        c->sync = true;
        return true;
    case 'j':
        s->json = true;
        return true;
    case 'q':
        s->quiet = true;
        return true;
    case 'v':
        s->verbose = true;
        c->client.line = print_line;
        return true;
    }
    return false;
}

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

/* Checks that the address before the name is one of --servers. */
static bool check_servers(const struct settings *s, const struct side *remote)
{
    if (s->servers.count == 0)
        return true;
    for (int i = 0; i < s->servers.count; i++)
        if (strcmp(s->servers.item[i], remote->address) == 0)
            return true;
    return args_complain("%s: %s is not one of --servers; write %s/%s", remote->text,
                         remote->address, s->servers.item[0], remote->name);
}

static bool check_sides(const struct settings *s, const struct side *from,
                        const struct side *to)
{
    if (from->remote && to->remote)
        return args_complain("%s: both names are remote; copy to a file, then from there",
                             to->text);
    if (!from->remote && !to->remote)
        return args_complain("%s: neither name is remote; write one as ib://host:port/name",
                             to->text);
    return check_servers(s, from->remote ? from : to);
}

static enum args_result read_arguments(int argc, char **argv, struct settings *s,
                                       struct side *from, struct side *to)
{
    static const struct option options[] = {
        {"servers", required_argument, NULL, 's'},
        {"allow", required_argument, NULL, 'a'},
        {"strip", required_argument, NULL, 'S'},
        {"buffers", required_argument, NULL, 'b'},
        {"buffer-size", required_argument, NULL, 'B'},
        {"list", required_argument, NULL, 'L'},
        {"threads", required_argument, NULL, 'T'},
        {"options", required_argument, NULL, 'o'},
        {"timeout", required_argument, NULL, 't'},
        {"fsync", no_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},
        {"quiet", no_argument, NULL, 'q'},
        {"verbose", no_argument, NULL, 'v'},
        {0},
    };
    enum args_result result = args_read(argc, argv, options, help, set_option, s);

    if (result != ARGS_READ)
        return result;
    if (argc - optind != 2) {
        args_complain("%d names given; give a source and a destination", argc - optind);
        return ARGS_WRONG;
    }
    return read_side(argv[optind], from) && read_side(argv[optind + 1], to) &&
                   check_sides(s, from, to)
               ? ARGS_READ
               : ARGS_WRONG;
}

static void print_result(const struct settings *s, const struct copy *copy, double seconds)
{
    double rate = seconds > 0 ? (double)copy->size / seconds / 1e6 : 0;

    if (s->json) {
        printf("{\"direction\": \"%s\", \"name\": ", copy->put ? "in" : "out");
        json_string(stdout, copy->name, strlen(copy->name));
        printf(
            ", \"bytes\": %llu, \"data_bytes\": %llu, \"seconds\": %.6f, \"mb_per_s\": %.3f, "
            "\"servers\": %d, \"strip\": %llu, \"list\": %d}\n",
            (unsigned long long)copy->size, (unsigned long long)copy->data, seconds, rate,
            copy->servers, (unsigned long long)copy->strip, copy->o.list);
    } else if (!s->quiet) {
        printf("%llu bytes in %.3f s, %.1f MB/s\n", (unsigned long long)copy->size, seconds,
               rate);
    }
}

int main(int argc, char **argv)
{
    struct settings s = {
        .copy = {.client = {.timeout_ms = 6000, .threads = 4, .interrupted = &args_interrupted},
                 .strip = 65536,
                 .buffers = 8,
                 .buffer_size = 512u << 10,
                 .list = 1},
    };
    struct side from, to;
    static struct copy copy; /* large; the only one */
    enum args_result result;
    double began;
    bool good;

    if (!program_streams())
        return 1;
    result = read_arguments(argc, argv, &s, &from, &to);
    if (result != ARGS_READ) {
        args_list_free(&s.servers);
        access_free(s.allow);
        return result == ARGS_DONE ? 0 : 1;
    }
    s.copy.servers = &s.servers;
    s.copy.allow = s.allow;
    s.copy.bar = !s.quiet;
    if (!s.quiet && !s.verbose) /* --verbose reports unknown options already */
        s.copy.client.ignored = args_ignored;
    args_catch_signals();
    if (s.verbose)
        args_complain("copying %s to %s", from.text, to.text);
    began = clock_seconds();
    good = from.remote ? copy_out(&copy, &s.copy, from.address, from.name, to.text)
                       : copy_in(&copy, &s.copy, from.text, to.address, to.name);
    if (good && copy.note[0] && !s.quiet)
        args_complain("%s", copy.note);
    if (good)
        print_result(&s, &copy, clock_seconds() - began);
    else
        args_complain("%s", copy.client.why);
    args_list_free(&s.servers);
    access_free(s.allow);
    return good && args_output("; the copy itself is complete") ? 0 : 1;
}
