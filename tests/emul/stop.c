/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/emul/stop.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns the state of a thread, or of a process's first thread; 0: none. */
static char state_of(const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");

    if (f == NULL)
        return 0;
    char *got = fgets(line, sizeof(line), f);
    fclose(f);
    char *end = got != NULL ? strrchr(line, ')') : NULL;
    return end != NULL ? end[2] : 0;
}

bool process_is_dead(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    char state = state_of(path);
    return state == 0 || state == 'Z';
}

bool process_is_stopped(pid_t pid)
{
    char path[400];

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    bool all = dir != NULL;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, e->d_name);
        all = all && (e->d_name[0] == '.' || state_of(path) == 'T');
    }
    if (dir != NULL)
        closedir(dir);
    return all;
}

bool process_stop(pid_t pid)
{
    if (kill(pid, SIGSTOP) < 0)
        return false;
    while (!process_is_stopped(pid)) {
        if (process_is_dead(pid))
            return false;
        usleep(1000);
    }
    return true;
}

bool thread_sleeps(pid_t tid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
    return state_of(path) == 'S';
}
