/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/elan4/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct shm_head *own_segment(void)
{
    char path[300], link[100], own[40];
    void *at = MAP_FAILED;
    DIR *dir = opendir("/proc/self/fd");

    snprintf(own, sizeof(own), "/memfd:emuelan4-%d ", getpid());
    for (struct dirent *e; dir && at == MAP_FAILED && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        if (strncmp(link, own, strlen(own)) != 0)
            continue;
        int fd = open(path, O_RDWR);
        at = mmap(NULL, sizeof(struct shm_head), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (dir)
        closedir(dir);
    return at == MAP_FAILED ? NULL : at;
}

bool ctx_is_idle(const struct shm_ctx *c)
{
    uint64_t used = 0;

    for (unsigned i = 0; i < EMU4_WORDS; i++)
        used |= __atomic_load_n(&c->used[i], __ATOMIC_RELAXED);
    return !used;
}

bool somebody_is_gone(const struct shm_head *seg)
{
    for (unsigned i = 1; i < EMU4_USERS; i++)
        if (atomic_load(&seg->user[i].state) == USER_LEFT)
            return true;
    return false;
}

bool is_known(const struct shm_head *seg, int pid)
{
    for (unsigned i = 1; i < EMU4_USERS; i++)
        if (atomic_load(&seg->user[i].state) == USER_KNOWN &&
            atomic_load(&seg->user[i].pid) == pid)
            return true;
    return false;
}

bool take_lock(struct shm_ctx *c)
{
    uint64_t was = atomic_load(&c->lock);
    uint64_t mine = EMU4_LOCK(EMU4_LOCK_TICKET(was) + 1, 0, 1);

    return !EMU4_LOCK_HOLDER(was) && atomic_compare_exchange_strong(&c->lock, &was, mine);
}

void give_lock(struct shm_ctx *c)
{
    atomic_store(&c->lock, EMU4_LOCK(EMU4_LOCK_TICKET(atomic_load(&c->lock)), 0, 0));
}

/* Returns whether a timer of this process is armed. */
static bool some_timer_is_armed(void)
{
    char path[300], text[100];
    bool armed = false;
    DIR *dir = opendir("/proc/self/fd");

    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, text, sizeof(text) - 1);
        text[n > 0 ? n : 0] = 0;
        if (!strstr(text, "[timerfd]"))
            continue;
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", e->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(text, sizeof(text), f))
            armed |= strncmp(text, "it_value:", 9) == 0 && !strstr(text, "(0, 0)");
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return armed;
}

bool sleeps_for_ever(const struct shm_head *seg)
{
    uint64_t before = atomic_load(&seg->counters.wakeups);

    return atomic_load(&seg->asleep) && !some_timer_is_armed() && atomic_load(&seg->asleep) &&
           atomic_load(&seg->counters.wakeups) == before;
}
