/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/common/command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int emul_printed(const char *emulator)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "%s: standard output: %s; direct it to where it can be written\n", emulator,
            errno ? strerror(errno) : "output incomplete");
    return 1;
}

/* Returns the process ID in the innermost PID namespace of the process. */
static int own_number(int pid)
{
    char line[256];
    int number = pid;

    snprintf(line, sizeof(line), "/proc/%d/status", pid);
    FILE *f = fopen(line, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, "NSpid:", 6) == 0)
            number = atoi(strrchr(line, '\t') != NULL ? strrchr(line, '\t') : line + 6);
    if (f != NULL)
        fclose(f);
    return number;
}

static void *map(const char *path, size_t size)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *seg = MAP_FAILED;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && (size_t)st.st_size >= size)
        seg = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return seg == MAP_FAILED ? NULL : seg;
}

void *emul_segment_of(const char *emulator, const char *process, size_t size,
                      bool (*is_of)(const void *segment, int pid))
{
    char path[300], link[128], name[64];
    int pid = atoi(process), own = own_number(pid);
    void *found = NULL;

    snprintf(name, sizeof(name), "/memfd:%s-", emulator);
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        fprintf(stderr, "%s: process %s: %s\n", emulator, process, strerror(errno));
        return NULL;
    }
    for (struct dirent *e; found == NULL && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        void *seg = strncmp(link, name, strlen(name)) == 0 ? map(path, size) : NULL;
        /* a process also opens segments of peers while mapping them */
        if (seg != NULL && is_of(seg, own))
            found = seg;
        else if (seg != NULL)
            munmap(seg, size);
    }
    closedir(dir);
    if (found == NULL)
        fprintf(stderr, "%s: process %s does not run on %s; give the PID of one that does\n",
                emulator, process, emulator);
    return found;
}

bool emul_set_folder(const char *emulator, const char *variable, const char *name)
{
    char full[PATH_MAX];

    if (mkdir(name, 0777) < 0 && errno != EEXIST) {
        fprintf(stderr, "%s: cannot make the folder %s: %s\n", emulator, name, strerror(errno));
        return false;
    }
    setenv(variable, realpath(name, full) != NULL ? full : name, 1);
    return true;
}

int emul_bad_option(const char *emulator, const char *option, bool known)
{
    if (known)
        fprintf(stderr, "%s: option %s needs a value; see %s --help\n", emulator, option,
                emulator);
    else
        fprintf(stderr, "%s: unknown option %s; %s --help lists them\n", emulator, option,
                emulator);
    return 2;
}

int emul_run(const char *emulator, char **argv)
{
    execvp(argv[0], argv);
    fprintf(stderr, "%s: %s: cannot run: %s; give a program in PATH, or a path\n", emulator,
            argv[0], strerror(errno));
    return 127;
}
