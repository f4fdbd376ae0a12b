/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* emuverbs: runs a program on the software HCA, explains the knobs, and prints the counters of
 * a running process. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "emul/common/command.h"
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

/* Finds the library beside this program (build tree) or in its installed place. */
static int find_library(char *path, size_t size)
{
    char self[PATH_MAX];
    const char *env = getenv("EMUVERBS_LIBRARY");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (env != NULL && *env) {
        snprintf(path, size, "%s", env);
        return access(path, R_OK);
    }
    if (n > 0) {
        self[n] = 0;
        char *slash = strrchr(self, '/');
        if (slash != NULL)
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

static bool is_of(const void *segment, int pid)
{
    const struct shm_head *seg = segment;

    return seg->magic == EMU_SHM_MAGIC && seg->pid == pid;
}

static struct shm_head *segment_of(const char *text)
{
    return emul_segment_of("emuverbs", text, sizeof(struct shm_head), is_of);
}

static int show(const char *text)
{
    char path[300], comm[64] = "";
    const struct shm_head *seg = segment_of(text);

    if (seg == NULL)
        return 1;
    snprintf(path, sizeof(path), "/proc/%s/comm", text);
    FILE *f = fopen(path, "re");
    if (f != NULL) {
        if (fgets(comm, sizeof(comm), f) != NULL)
            comm[strcspn(comm, "\n")] = 0;
        fclose(f);
    }
    emu_counters_json(&seg->counters, atoi(text), comm, stdout);
    return emul_printed("emuverbs");
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

    if (seg == NULL)
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

    if (old != NULL && *old) {
        if (asprintf(&joined, "%s%s%s", first, sep, old) < 0)
            return;
        first = joined;
    }
    setenv(var, first, 1);
    free(joined);
}

/* Sets the path under which execvp() finds a program. */
static bool find_program(const char *name, char *path, size_t size)
{
    const char *list = getenv("PATH");

    snprintf(path, size, "%s", name);
    if (strchr(name, '/') != NULL)
        return true;
    for (size_t n; list; list = list[n] ? list + n + 1 : NULL) {
        n = strcspn(list, ":");
        snprintf(path, size, "%.*s%s%s", (int)n, list, n ? "/" : "", name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* Returns which other rights than the caller's the kernel gives the program, because of which
 * the loader ignores LD_PRELOAD; NULL: none. */
static const char *raised(const char *path)
{
    struct statvfs fs;
    struct stat st;

    if (stat(path, &st) < 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) > 0 ||
        (statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOSUID)))
        return NULL;
    if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
        return "set-user-ID";
    if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
        return "set-group-ID";
    if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
        return "file capabilities";
    return NULL;
}

/* Returns whether a program is an ELF file, of this machine's word size, without a loader. */
static bool is_static(const char *path)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) part;
    FILE *file = fopen(path, "re");
    bool found = file != NULL && fread(&head, sizeof(head), 1, file) == 1 &&
                 memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
                 head.e_phentsize == sizeof(part) &&
                 fseeko(file, (off_t)head.e_phoff, SEEK_SET) == 0;

    for (unsigned i = 0; found && i < head.e_phnum; i++)
        found = fread(&part, sizeof(part), 1, file) == 1 && part.p_type != PT_INTERP;
    if (file != NULL)
        fclose(file);
    return found;
}

/* Returns whether a library can be loaded into the program; reports why not. */
static bool is_loadable(const char *name)
{
    char path[PATH_MAX];
    const char *why;

    if (!find_program(name, path, sizeof(path)))
        return true;
    why = raised(path);
    if (why != NULL)
        fprintf(
            stderr,
            "emuverbs: %s: would not use emuverbs: the loader ignores LD_PRELOAD for a "
            "program with %s; run it as that user, or a copy without these rights, or, of a "
            "program that runs others, such as sudo, as: sudo emuverbs PROGRAM\n",
            path, why);
    else if (is_static(path))
        fprintf(
            stderr,
            "emuverbs: %s: would not use emuverbs: statically linked, so that no library is "
            "loaded; link it dynamically, or, if it only runs others: emuverbs env %s\n",
            path, name);
    else
        return true;
    return false;
}

/* Lets programs that load libibverbs.so.1 or librdmacm.so.1 by name find the library under
 * these names, in a folder beside it. */
static void provide_names(const char *library)
{
    char full[PATH_MAX], folder[PATH_MAX + 32];
    char *slash = realpath(library, full) != NULL ? strrchr(full, '/') : NULL;

    if (slash != NULL)
        *slash = 0;
    snprintf(folder, sizeof(folder), "%s/emuverbs-libs", slash != NULL ? full : "");
    if (strpbrk(folder, ":;") == NULL && access(folder, X_OK) == 0)
        prepend("LD_LIBRARY_PATH", folder, ":");
    else
        fprintf(stderr,
                "emuverbs: %s: cannot be a folder of LD_LIBRARY_PATH: %s; programs that load "
                "libibverbs.so.1 by name get the real library; install emuverbs completely, at "
                "a path without colons and semicolons\n",
                folder,
                strpbrk(folder, ":;") != NULL ? "a separator in the path" : strerror(errno));
}

/* Runs a program with the library; returns the exit status if this fails. */
static int run(char **argv, bool sysfs)
{
    char library[PATH_MAX + 64];

    if (find_library(library, sizeof(library)) < 0) {
        fprintf(stderr, "emuverbs: %s: not found; set EMUVERBS_LIBRARY to its path\n", LIBRARY);
        return 2;
    }
    if (strpbrk(library, " :\t\n") != NULL) {
        fprintf(
            stderr,
            "emuverbs: %s: cannot be preloaded: LD_PRELOAD does not support spaces and colons "
            "in a path; build or install at a path without them, or set EMUVERBS_LIBRARY to a "
            "link at such a path\n",
            library);
        return 2;
    }
    if (!is_loadable(argv[0]))
        return 2;
    if (sysfs && view_make(library) < 0)
        return 2;
    prepend("LD_PRELOAD", library, ":");
    provide_names(library);
    /* otherwise programs built with AddressSanitizer require to be first in LD_PRELOAD */
    prepend("ASAN_OPTIONS", "verify_asan_link_order=0", ":");
    return emul_run("emuverbs", argv);
}

int main(int argc, char **argv)
{
    bool sysfs = false;
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return emul_printed("emuverbs");
        }
        if (strcmp(argv[i], "--show") == 0 && i + 1 < argc)
            return show(argv[i + 1]);
        if (strcmp(argv[i], "--device") == 0 && i + 3 < argc)
            return change(argv[i + 1], argv[i + 2], argv[i + 3]);
        if (strcmp(argv[i], "--counters-dir") == 0 && i + 1 < argc) {
            if (!emul_set_folder("emuverbs", "EMUVERBS_COUNTERS_DIR", argv[++i]))
                return 2;
        } else if (strcmp(argv[i], "--sysfs") == 0) {
            sysfs = true;
        } else if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        } else {
            return emul_bad_option("emuverbs", argv[i],
                                   strcmp(argv[i], "--show") == 0 ||
                                       strcmp(argv[i], "--device") == 0 ||
                                       strcmp(argv[i], "--counters-dir") == 0);
        }
    }
    if (i >= argc) {
        usage(stderr);
        return 2;
    }
    return run(argv + i, sysfs);
}
