/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/asleep.h"

void asleep_announce(atomic_int *tid)
{
    atomic_store(tid, (int)syscall(SYS_gettid));
}

static bool is_in_state(int tid, char state)
{
    char path[64], line[256];
    const char *end = NULL;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    f = fopen(path, "r");
    if (f == NULL)
        return false;
    if (fgets(line, sizeof(line), f) != NULL)
        end = strrchr(line, ')'); /* skip the program's name, which may contain any character */
    fclose(f);
    return end != NULL && end[1] == ' ' && end[2] == state;
}

bool asleep_now(const atomic_int *tid, char state)
{
    return is_in_state(atomic_load(tid), state);
}

void asleep_await(const atomic_int *tid)
{
    while (!asleep_now(tid, 'S'))
        usleep(1000);
}

/* Counts the threads. Stores in *awake how many of them, without the caller, do not sleep. */
static unsigned count(unsigned *awake)
{
    int self = (int)syscall(SYS_gettid);
    DIR *dir = opendir("/proc/self/task");
    unsigned threads = 0;

    *awake = 0;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        int tid = atoi(e->d_name); /* 0: not a thread */

        threads += tid != 0;
        *awake += tid != 0 && tid != self && !is_in_state(tid, 'S');
    }
    if (dir != NULL)
        closedir(dir);
    return threads;
}

unsigned asleep_threads(void)
{
    unsigned awake;

    return count(&awake);
}

void asleep_await_others(void)
{
    unsigned awake;

    do {
        usleep(1000);
        (void)count(&awake);
    } while (awake != 0);
}
