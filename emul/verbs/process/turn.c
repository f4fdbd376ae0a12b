/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * State of another process as shown by the kernel: stopped or not, and whether the process has
 * had a processor. Only such a process can be late.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Returns a thread's state as shown by the kernel; '?' if unknown for lack of a descriptor. */
static char thread_state(const char *path)
{
    char line[128], state = 'X'; /* also if it has ended meanwhile */
    FILE *f = fopen(path, "re");

    if (f == NULL)
        return errno != ENOENT && errno != ESRCH ? '?' : 'X';
    /* a thread's name, in parentheses, may contain parentheses */
    const char *name_end = fgets(line, sizeof(line), f) != NULL ? strrchr(line, ')') : NULL;
    if (name_end != NULL)
        (void)sscanf(name_end, ") %c", &state);
    fclose(f);
    return state;
}

static bool has_stopped(char state)
{
    return strchr("TtZX", state) != NULL;
}

static bool is_at_rest(char state)
{
    return state != 'R';
}

/* Returns whether `is` holds for all threads. Threads stop and end one by one, each after its
 * system call. */
static bool all_threads(int pid, bool (*is)(char state))
{
    char path[300];
    bool all = true;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return is(errno == ENOENT || errno == ESRCH ? 'X' : '?');
    for (struct dirent *e; all && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", pid, e->d_name);
        all = is(thread_state(path));
    }
    closedir(dir);
    return all;
}

bool emu_has_stopped(int pid)
{
    return all_threads(pid, has_stopped);
}

bool emu_at_rest(int pid)
{
    return all_threads(pid, is_at_rest);
}

bool emu_had_turn(int pid, uint64_t *ran)
{
    struct timespec t;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return true;
    uint64_t now = (uint64_t)t.tv_sec * EMU_NSEC + (uint64_t)t.tv_nsec;
    bool has_run = now != *ran;
    *ran = now;
    return has_run || emu_at_rest(pid);
}

bool emu_turns_had(struct emu_turns *t, bool forget)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        bool had = emu_had_turn(t->of[i].pid, &t->of[i].ran);
        left += !had;
        if (forget && !had)
            t->of[left - 1] = t->of[i];
    }
    if (forget)
        t->n = left;
    return left == 0;
}

void emu_turns_end(struct emu_turns *t)
{
    free(t->of);
    *t = (struct emu_turns){0};
}
