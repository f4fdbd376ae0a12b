/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* emuverbs: runs a program on the software HCA, explains the knobs, and prints the counters of
 * a running process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "emul/verbs/base/counters.h"
#include "emul/verbs/base/knobs.h"
#include "emul/verbs/base/shm.h"
#include "emul/verbs/base/stop.h"
#include "emul/verbs/view.h"

#define LIBRARY "libemuverbs.so"

static void usage(FILE *out)
{
    fprintf(out,
            "usage: emuverbs [--counters-dir DIR] [--sysfs] PROGRAM [ARGUMENT...]\n"
            "       emuverbs --show PID\n"
            "       emuverbs --device PID NAME STATE\n"
            "       emuverbs --help\n\n"
            "Runs PROGRAM with a software RDMA device in place of hardware: libibverbs and\n"
            "librdmacm of every process started this way on this machine reach each other\n"
            "by any of its addresses. No driver and no privilege is needed.\n");
}

static void help(void)
{
    usage(stdout);
    printf("\n"
           "Options:\n"
           "  --counters-dir DIR  at exit each process writes its counters to\n"
           "                      DIR/emuverbs-PID.json (sets EMUVERBS_COUNTERS_DIR)\n"
           "  --sysfs             show the devices in /sys/class/infiniband,\n"
           "                      /sys/class/infiniband_verbs and /dev/infiniband, to PROGRAM\n"
           "                      and its children only (a mount namespace: needs root, or\n"
           "                      unshare --user --map-root-user emuverbs --sysfs PROGRAM)\n"
           "  --show PID          print the counters of a running process as JSON\n"
           "  --device PID NAME STATE\n"
           "                      change a device of a running process: failed, removed,\n"
           "                      added, down, up, or the IP address of its first port\n"
           "\n"
           "Environment variables:\n");
    emu_knobs_help(stdout);
    printf("\n"
           "Steps of EMUVERBS_STOP:\n");
    emu_steps_help(stdout);
    printf("\nCounters besides the number of each call:\n");
    emu_counters_help(stdout);
}

/* Flushes standard output; reports a failure. */
static int printed(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "emuverbs: standard output: %s; direct it to where it can be written\n",
            errno ? strerror(errno) : "output incomplete");
    return 1;
}

/* Finds the library beside this program (build tree) or in its installed place. */
static int find_library(char *path, size_t size)
{
    char self[PATH_MAX];
    const char *env = getenv("EMUVERBS_LIBRARY");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (env && *env) {
        snprintf(path, size, "%s", env);
        return access(path, R_OK);
    }
    if (n > 0) {
        self[n] = 0;
        char *slash = strrchr(self, '/');
        if (slash)
            *slash = 0;
        static const char *const places[] = {"%s/.libs/" LIBRARY, "%s/" LIBRARY,
                                             "%s/../.libs/" LIBRARY};
        for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(path, size, places[i], self);
#pragma GCC diagnostic pop
            if (access(path, R_OK) == 0)
                return 0;
        }
    }
    snprintf(path, size, "%s/%s", EMUVERBS_LIBDIR, LIBRARY);
    return access(path, R_OK);
}

/* Returns the process ID in the innermost PID namespace of the process. */
static int own_number(int pid)
{
    char line[256];
    int number = pid;

    snprintf(line, sizeof(line), "/proc/%d/status", pid);
    FILE *f = fopen(line, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "NSpid:", 6) == 0)
            number = atoi(strrchr(line, '\t') ? strrchr(line, '\t') : line + 6);
    if (f)
        fclose(f);
    return number;
}

/* Maps the segment of a running process; NULL, with a line on standard error. */
static struct shm_head *segment_of(const char *text)
{
    char path[300], link[128];
    int pid = atoi(text), own = own_number(pid);
    struct shm_head *found = NULL;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    if (!dir) {
        fprintf(stderr, "emuverbs: process %s: %s\n", text, strerror(errno));
        return NULL;
    }
    for (struct dirent *e; !found && (e = readdir(dir)) != NULL;) {
        struct stat st;
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        if (strncmp(link, "/memfd:emuverbs-", 16) != 0)
            continue;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof(struct shm_head)) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        struct shm_head *seg =
            mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        /* a process also opens segments of peers while mapping them */
        if (seg != MAP_FAILED && seg->magic == EMU_SHM_MAGIC && seg->pid == own)
            found = seg;
        close(fd);
    }
    closedir(dir);
    if (!found)
        fprintf(
            stderr,
            "emuverbs: process %s does not run on emuverbs; give the PID of one that does\n",
            text);
    return found;
}

static int show(const char *text)
{
    char path[300], comm[64] = "";
    const struct shm_head *seg = segment_of(text);

    if (!seg)
        return 1;
    snprintf(path, sizeof(path), "/proc/%s/comm", text);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fgets(comm, sizeof(comm), f))
            comm[strcspn(comm, "\n")] = 0;
        fclose(f);
    }
    emu_counters_json(&seg->counters, atoi(text), comm, stdout);
    return printed();
}

/* Wakes the service thread of a process: connects to the name of its slot. */
static void wake(const struct shm_head *seg)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int n = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "emuverbs/slot/%u", seg->slot);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (s < 0 || connect(s, (struct sockaddr *)&to,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)))
        fprintf(stderr, "emuverbs: process %d: %s\n", seg->pid, strerror(errno));
    if (s >= 0)
        close(s);
}

/* Changes a device of a running process, and returns when that is done. */
static int change(const char *pid, const char *device, const char *state)
{
    struct shm_head *seg = segment_of(pid);
    uint32_t now = ASKED_NOTHING;

    if (!seg)
        return 1;
    if (!atomic_compare_exchange_strong(&seg->asked, &now, ASKED_BEING_WRITTEN)) {
        fprintf(stderr, "emuverbs: process %s: another change is in progress\n", pid);
        return 1;
    }
    snprintf(seg->asked_device, sizeof(seg->asked_device), "%s", device);
    snprintf(seg->asked_state, sizeof(seg->asked_state), "%s", state);
    atomic_store(&seg->asked, ASKED_CHANGE);
    atomic_store(&seg->untold, 1);
    wake(seg);
    while ((now = atomic_load(&seg->asked)) == ASKED_CHANGE && kill(atoi(pid), 0) == 0)
        usleep(1000);
    atomic_store(&seg->asked, ASKED_NOTHING);
    if (now == ASKED_CHANGE)
        fprintf(stderr, "emuverbs: process %s: has ended before the change of %s\n", pid,
                device);
    else if (now == ASKED_UNKNOWN)
        fprintf(stderr, "emuverbs: process %s: no device %s, or no state %s; see --help\n", pid,
                device, state);
    return now != ASKED_NOTHING;
}

/* Prepends `first` to a list in the environment. */
static void prepend(const char *var, const char *first, const char *sep)
{
    const char *old = getenv(var);
    char *joined = NULL;

    if (old && *old) {
        if (asprintf(&joined, "%s%s%s", first, sep, old) < 0)
            return;
        first = joined;
    }
    setenv(var, first, 1);
    free(joined);
}

int main(int argc, char **argv)
{
    char library[PATH_MAX + 64];
    bool sysfs = false;
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return printed();
        }
        if (strcmp(argv[i], "--show") == 0 && i + 1 < argc)
            return show(argv[i + 1]);
        if (strcmp(argv[i], "--device") == 0 && i + 3 < argc)
            return change(argv[i + 1], argv[i + 2], argv[i + 3]);
        if (strcmp(argv[i], "--counters-dir") == 0 && i + 1 < argc) {
            char full[PATH_MAX];
            i++;
            if (mkdir(argv[i], 0777) < 0 && errno != EEXIST) {
                fprintf(stderr, "emuverbs: cannot make the directory %s: %s\n", argv[i],
                        strerror(errno));
                return 2;
            }
            setenv("EMUVERBS_COUNTERS_DIR", realpath(argv[i], full) ? full : argv[i], 1);
        } else if (strcmp(argv[i], "--sysfs") == 0) {
            sysfs = true;
        } else if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        } else if (strcmp(argv[i], "--show") == 0 || strcmp(argv[i], "--device") == 0 ||
                   strcmp(argv[i], "--counters-dir") == 0) {
            fprintf(stderr, "emuverbs: option %s needs a value; see emuverbs --help\n",
                    argv[i]);
            return 2;
        } else {
            fprintf(stderr, "emuverbs: unknown option %s; emuverbs --help lists them\n",
                    argv[i]);
            return 2;
        }
    }
    if (i >= argc) {
        usage(stderr);
        return 2;
    }
    if (find_library(library, sizeof(library)) < 0) {
        fprintf(stderr, "emuverbs: %s: not found; set EMUVERBS_LIBRARY to its path\n", LIBRARY);
        return 2;
    }
    if (strpbrk(library, " :\t\n")) {
        fprintf(
            stderr,
            "emuverbs: %s: cannot be preloaded: LD_PRELOAD does not support spaces and colons "
            "in a path; build or install at a path without them, or set EMUVERBS_LIBRARY to a "
            "link at such a path\n",
            library);
        return 2;
    }
    if (sysfs && view_make(library) < 0)
        return 2;
    prepend("LD_PRELOAD", library, ":");
    /* otherwise programs built with AddressSanitizer require to be first in LD_PRELOAD */
    prepend("ASAN_OPTIONS", "verify_asan_link_order=0", ":");
    execvp(argv[i], argv + i);
    fprintf(stderr, "emuverbs: %s: cannot run: %s; give a program in PATH, or a path\n",
            argv[i], strerror(errno));
    return 127;
}
