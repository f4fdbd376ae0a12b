/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/asleep.h"

void asleep_announce(atomic_int *tid)
{
    atomic_store(tid, (int)syscall(SYS_gettid));
}

bool asleep_now(const atomic_int *tid, char state)
{
    char path[64], line[256];
    const char *end = NULL;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(tid));
    f = fopen(path, "r");
    if (f == NULL)
        return false;
    if (fgets(line, sizeof(line), f) != NULL)
        end = strrchr(line, ')'); /* the name of the program may have any characters */
    fclose(f);
    return end != NULL && end[1] == ' ' && end[2] == state;
}

void asleep_await(const atomic_int *tid)
{
    while (!asleep_now(tid, 'S'))
        usleep(1000);
}
