/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* emuelan4: starts a program on a node of the emulated network, or prints information. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Flushes standard output; reports a failure. */
static int printed(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "emuelan4: standard output: %s; direct it to where it can be written\n",
            errno ? strerror(errno) : "output incomplete");
    return 1;
}

static bool show_fd(const char *path, int pid)
{
    struct stat st;
    bool shown = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(struct shm_head)) {
        struct shm_head *seg = mmap(NULL, sizeof(*seg), PROT_READ, MAP_SHARED, fd, 0);
        if (seg != MAP_FAILED && seg->magic == EMU4_MAGIC && seg->pid == pid) {
            emu4_counters_json(&seg->counters, pid, stdout);
            shown = true;
        }
    }
    close(fd);
    return shown;
}

static int show(const char *text)
{
    char path[300], link[128];
    int pid = atoi(text);
    bool shown = false;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    if (!dir) {
        fprintf(stderr, "emuelan4: process %s: %s\n", text, strerror(errno));
        return 1;
    }
    for (struct dirent *e; !shown && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        if (strncmp(link, "/memfd:emuelan4-", 16) == 0)
            shown = show_fd(path, pid);
    }
    closedir(dir);
    if (!shown)
        fprintf(
            stderr,
            "emuelan4: process %s does not run on emuelan4; give the PID of one that does\n",
            text);
    return shown ? printed() : 1;
}

/* Creates a folder and sets a variable to its full name. */
static bool set_folder(const char *var, const char *name)
{
    char full[PATH_MAX];

    if (mkdir(name, 0777) < 0 && errno != EEXIST) {
        fprintf(stderr, "emuelan4: cannot make the folder %s: %s\n", name, strerror(errno));
        return false;
    }
    setenv(var, realpath(name, full) ? full : name, 1);
    return true;
}

int main(int argc, char **argv)
{
    int i = 1;

    while (i < argc && argv[i][0] == '-') {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return printed();
        }
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (value && strcmp(argv[i], "--show") == 0)
            return show(value);
        if (value && strcmp(argv[i], "--node") == 0) {
            setenv("EMUELAN4_NODE", value, 1);
        } else if (value && strcmp(argv[i], "--dir") == 0) {
            if (!set_folder("EMUELAN4_DIR", value))
                return 2;
        } else if (value && strcmp(argv[i], "--counters-dir") == 0) {
            if (!set_folder("EMUELAN4_COUNTERS_DIR", value))
                return 2;
        } else if (strcmp(argv[i], "--show") == 0 || strcmp(argv[i], "--node") == 0 ||
                   strcmp(argv[i], "--dir") == 0 || strcmp(argv[i], "--counters-dir") == 0) {
            fprintf(stderr, "emuelan4: option %s needs a value; see emuelan4 --help\n",
                    argv[i]);
            return 2;
        } else {
            fprintf(stderr, "emuelan4: unknown option %s; emuelan4 --help lists them\n",
                    argv[i]);
            return 2;
        }
        i += 2; /* option and value */
    }
    if (i >= argc) {
        usage(stderr);
        return 2;
    }
    execvp(argv[i], argv + i);
    fprintf(stderr, "emuelan4: %s: cannot run: %s; give a program in PATH, or a path\n",
            argv[i], strerror(errno));
    return 127;
}
