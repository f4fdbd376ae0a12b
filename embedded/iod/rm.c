/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* rm.c - the program bmi-rm, around copy_remove(). */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/copy.h"
#include "embedded/program/program.h"

static const char help[] =
    "usage: bmi-rm [OPTION]... ADDR/NAME...\n"
    "Removes files from bmi-iod.  ADDR is the first server of a striped file.  Copies of the\n"
    "file that are in progress complete.  A name that cannot be removed is reported, and the\n"
    "others are removed.\n"
    "\n"
    "  -s, --servers ADDR,...  all servers of striped files\n"
    "  -o, --options STR       key=value,... for the BMI methods\n"
    "  -t, --timeout S         fail when a server is silent for S seconds (6)\n"
    "  -h, --help  -V, --version\n";

static bool remove_one(const struct copy_options *o, const char *text)
{
    static struct copy copy; /* large; used once per name */
    char address[BMI_MAX_ADDR_LEN];
    const char *name;

    if (args_interrupted)
        return args_complain("%s: interrupted; remove the file again", text);
    if (!args_remote(text, address, sizeof address, &name))
        return false;
    if (name == NULL)
        return args_complain("%s: not a remote name; write one as ib://host:port/name", text);
    if (!copy_remove(&copy, o, address, name))
        return args_complain("%s", copy.client.why);
    if (copy.note[0])
        args_complain("%s", copy.note);
    return true;
}

int main(int argc, char **argv)
{
    struct args_list servers = {0};
    struct copy_options o = {
        .client = {.threads = 1, .interrupted = &args_interrupted, .ignored = args_ignored},
        .servers = &servers,
        .buffers = 1,
        .buffer_size = IOD_BUFFER_MIN};
    uint64_t timeout = 6;
    const struct args_option options[] = {{"servers", 's', ARGS_SERVERS, &servers, 0, 0},
                                          ARGS_OPTIONS(&o.client.options),
                                          ARGS_TIMEOUT(&timeout),
                                          {0}};
    enum args_result result;
    bool good;

    if (!program_streams())
        return 1;
    result = args_read(argc, argv, options, help);
    good = result == ARGS_READ;
    if (good && optind == argc)
        good = args_complain("no name given; give one or more like ib://host:port/name");
    o.client.timeout_ms = (int)timeout * 1000;
    args_catch_signals();
    for (int i = optind, last = good ? argc : 0; i < last; i++)
        good &= remove_one(&o, argv[i]);
    args_list_free(&servers);
    return good || result == ARGS_DONE ? 0 : 1;
}
