/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* rm.c - the program bmi-rm, around copy_remove(). */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/copy.h"
#include "embedded/program/program.h"

#include <stdlib.h>

static const char help[] =
    "usage: bmi-rm [OPTION]... ADDR/NAME...\n"
    "Removes files from bmi-iod.  A striped file is removed from all of its servers; name any\n"
    "one of them.  Copies of the file that are in progress complete.  A name that cannot be\n"
    "removed is reported, and the others are removed.\n"
    "\n"
    "  -a, --allow HOST,...  go also to recorded servers on these hosts and networks "
    "(NET/BITS)\n"
    "  -o, --options STR     key=value,... for the BMI methods\n"
    "  -t, --timeout S       fail when a server is silent for S seconds (6)\n"
    "  -h, --help  -V, --version\n";

struct settings {
    struct copy_options copy;
    struct args_list servers; /* none */
    struct access *allow;
};

static bool set_option(int option, const char *text, void *settings)
{
    struct settings *s = settings;
    uint64_t n = 0;

    switch (option) {
    case 'a':
        return args_access("--allow", text, &s->allow);
    case 'o':
        s->copy.client.options = text;
        return true;
    case 't':
        if (!args_number("--timeout", text, 1, 86400, &n))
            return false;
        s->copy.client.timeout_ms = (int)n * 1000;
        return true;
    }
    return false;
}

static bool remove_one(const struct settings *s, const char *text)
{
    static struct copy copy; /* large; used once per name */
    char address[BMI_MAX_ADDR_LEN];
    const char *name;

    if (!args_remote(text, address, sizeof address, &name))
        return false;
    if (!name)
        return args_complain("%s: not a remote name; write one as ib://host:port/name", text);
    if (!copy_remove(&copy, &s->copy, address, name))
        return args_complain("%s", copy.client.why);
    if (copy.note[0])
        args_complain("%s", copy.note);
    return true;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"allow", required_argument, NULL, 'a'},
        {"options", required_argument, NULL, 'o'},
        {"timeout", required_argument, NULL, 't'},
        {0},
    };
    struct settings s = {.copy = {.client = {.timeout_ms = 6000,
                                             .threads = 1,
                                             .interrupted = &args_interrupted,
                                             .ignored = args_ignored},
                                  .buffers = 1,
                                  .buffer_size = IOD_BUFFER_MIN,
                                  .list = 1}};
    enum args_result result;
    bool good, whole = true;

    if (!program_streams())
        return 1;
    result = args_read(argc, argv, options, help, set_option, &s);
    good = result == ARGS_READ;
    if (good && optind == argc)
        good = args_complain("no name given; give one or more like ib://host:port/name");
    s.copy.servers = &s.servers;
    s.copy.allow = s.allow;
    args_catch_signals();
    for (int i = optind; good && i < argc; i++)
        whole =
            (args_interrupted ? args_complain("%s: interrupted; remove the file again", argv[i])
                              : remove_one(&s, argv[i])) &&
            whole;
    access_free(s.allow);
    return (good && whole) || result == ARGS_DONE ? 0 : 1;
}
