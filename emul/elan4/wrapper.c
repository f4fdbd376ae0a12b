/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* emuelan4: starts a program on a node of the emulated network, or prints information. */
#include <stdlib.h>
#include <string.h>

#include "emul/common/command.h"
#include "emul/elan4/counters.h"
#include "emul/elan4/knobs.h"
#include "emul/elan4/shm.h"

static void usage(FILE *out)
{
    fprintf(out,
            "usage: emuelan4 [--node N] [--dir FOLDER] [--counters-dir FOLDER] PROGRAM "
            "[ARGUMENT...]\n"
            "       emuelan4 --show PID\n"
            "       emuelan4 --help\n\n"
            "Runs PROGRAM, built with the emulation of libelan4, on node N of an emulated\n"
            "network. Processes reach each other if they use the same rendezvous folder.\n");
}

static void help(void)
{
    usage(stdout);
    printf("\n"
           "Options:\n"
           "  --node N               the node, from 0 (sets EMUELAN4_NODE)\n"
           "  --dir FOLDER           the rendezvous folder (sets EMUELAN4_DIR)\n"
           "  --counters-dir FOLDER  at exit each process writes its counters to\n"
           "                         FOLDER/emuelan4-PID.json (sets EMUELAN4_COUNTERS_DIR)\n"
           "  --show PID             print the counters of a running process as JSON\n"
           "\n"
           "Environment variables:\n");
    emu4_knobs_help(stdout);
    printf("\nCounters:\n");
    emu4_counters_help(stdout);
}

static bool is_of(const void *segment, int pid)
{
    const struct shm_head *seg = segment;

    return seg->magic == EMU4_MAGIC && seg->pid == pid;
}

static int show(const char *process)
{
    const struct shm_head *seg =
        emul_segment_of("emuelan4", process, sizeof(struct shm_head), is_of);

    if (seg == NULL)
        return 1;
    emu4_counters_json(&seg->counters, atoi(process), stdout);
    return emul_printed("emuelan4");
}

int main(int argc, char **argv)
{
    int i = 1;

    while (i < argc && argv[i][0] == '-') {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return emul_printed("emuelan4");
        }
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (value != NULL && strcmp(argv[i], "--show") == 0)
            return show(value);
        if (value != NULL && strcmp(argv[i], "--node") == 0) {
            setenv("EMUELAN4_NODE", value, 1);
        } else if (value != NULL && strcmp(argv[i], "--dir") == 0) {
            if (!emul_set_folder("emuelan4", "EMUELAN4_DIR", value))
                return 2;
        } else if (value != NULL && strcmp(argv[i], "--counters-dir") == 0) {
            if (!emul_set_folder("emuelan4", "EMUELAN4_COUNTERS_DIR", value))
                return 2;
        } else {
            return emul_bad_option(
                "emuelan4", argv[i],
                strcmp(argv[i], "--show") == 0 || strcmp(argv[i], "--node") == 0 ||
                    strcmp(argv[i], "--dir") == 0 || strcmp(argv[i], "--counters-dir") == 0);
        }
        i += 2; /* option and value */
    }
    if (i >= argc) {
        usage(stderr);
        return 2;
    }
    return emul_run("emuelan4", argv + i);
}
