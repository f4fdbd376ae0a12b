/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ls.c - bmi-ls: lists the objects of one or more servers.  Parts of a file on several servers
 * are one line. */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/listing.h"
#include "embedded/iod/text.h"
#include "embedded/program/program.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "usage: bmi-ls [OPTION]... ADDR[,ADDR]...\n"
    "Lists the objects of bmi-iod servers: size of the file, strip size, parts seen of parts "
    "in\n"
    "all, time of the copy, servers that hold the parts, name.\n"
    "\n"
    "  -o, --options STR  key=value,... for the BMI methods\n"
    "  -t, --timeout S    fail when a server is silent for S seconds (6)\n"
    "  -h, --help  -V, --version\n";

/* ---- printing ---- */

static int compare_parts(const void *a, const void *b)
{
    const struct listing_part *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    if (order)
        return order;
    if ((order = iod_id_compare(x->entry.id, y->entry.id)))
        return order;
    if (x->entry.layout.index != y->entry.layout.index)
        return x->entry.layout.index < y->entry.layout.index ? -1 : 1;
    return 0;
}

/* Returns the number of parts from `first` on that are of one copy. */
static size_t group(const struct listing *l, size_t first)
{
    size_t n = 1;

    while (first + n < l->count && strcmp(l->part[first].name, l->part[first + n].name) == 0 &&
           iod_id_compare(l->part[first].entry.id, l->part[first + n].entry.id) == 0)
        n++;
    return n;
}

/* Returns the number of different parts among sorted ones: a server with two addresses may have
 * listed a part twice. */
static unsigned parts_of(const struct listing_part *part, size_t n)
{
    unsigned parts = 1;

    for (size_t i = 1; i < n; i++)
        parts += part[i].entry.layout.index != part[i - 1].entry.layout.index;
    return parts;
}

static void print_row(const struct listing_part *part, size_t n)
{
    const struct iod_entry *e = &part->entry;
    time_t when = (time_t)e->mtime;
    char strip[24], parts[24], date[32] = "-";
    struct tm tm;

    args_size_text(e->layout.strip, strip, sizeof strip);
    snprintf(parts, sizeof parts, "%u/%u", parts_of(part, n), e->layout.count);
    if (gmtime_r(&when, &tm) != NULL)
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    printf("%15llu %8s %7s %20s  ", (unsigned long long)e->layout.size, strip, parts, date);
    for (size_t i = 0; i < n; i++)
        printf("%s%s", i ? "," : "", part[i].server);
    printf("  %s\n", part->name);
}

static void print_all(struct listing *l)
{
    size_t n;

    if (l->count)
        qsort(l->part, l->count, sizeof l->part[0], compare_parts);
    printf("%15s %8s %7s %20s  %s\n", "SIZE", "STRIP", "PARTS", "COPIED", "SERVERS  NAME");
    for (size_t i = 0; i < l->count; i += n) {
        n = group(l, i);
        text_no_controls(l->part[i].name);
        print_row(&l->part[i], n);
    }
}

/* Returns false, after a line for each server, if the list is incomplete. */
static bool is_whole(const struct listing *l)
{
    bool whole = true;

    for (int i = 0; i < l->client.count; i++) {
        const struct remote *r = l->client.remote[i];

        if (r->unread)
            whole = args_complain(
                "%s: %llu objects cannot be read by the server and are not listed; the "
                "server's log has their names, causes and remedies",
                r->uri, (unsigned long long)r->unread);
    }
    return whole;
}

/* ---- the program ---- */

int main(int argc, char **argv)
{
    static struct listing l; /* the only one */
    struct client_options client = {.threads = 1, .ignored = args_ignored};
    struct args_list servers;
    uint64_t timeout = 6;
    const struct args_option options[] = {
        ARGS_OPTIONS(&client.options), ARGS_TIMEOUT(&timeout), {0}};
    enum args_result result;
    bool good, whole = true;

    if (!program_streams())
        return 1;
    result = args_read(argc, argv, options, help);
    if (result == ARGS_READ && argc - optind != 1)
        args_complain("%d addresses given; give one argument, several servers with commas",
                      argc - optind);
    if (result != ARGS_READ || argc - optind != 1 || !args_list("ADDR", argv[optind], &servers))
        return result == ARGS_DONE ? 0 : 1;
    client.timeout_ms = (int)timeout * 1000;
    good = listing_take(&l, &client, &servers);
    if (good) {
        print_all(&l); /* the addresses are owned by the session */
        whole = is_whole(&l);
    }
    listing_end(&l);
    if (!good)
        args_complain("%s", l.client.why);
    args_list_free(&servers);
    return good && args_output("") && whole ? 0 : 1;
}
