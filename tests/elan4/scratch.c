/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/elan4/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
    (void)st;
    (void)what;
    (void)ftw;
    remove(path);
    return 0;
}

/* Closes all descriptors except the pipe, so that no process waits for this one, and leaves the
 * test's process group, whose signals must not end it. */
static void guard(int fd, const char *dir)
{
    char byte;

    setsid();
    for (int other = 0; other < 1024; other++)
        if (other != fd)
            close(other);
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    _exit(0);
}

int scratch_open(struct scratch *s, const char *prefix)
{
    int pipes[2];

    snprintf(s->dir, sizeof(s->dir), "%s.XXXXXX", prefix);
    if (mkdtemp(s->dir) == NULL || pipe2(pipes, O_CLOEXEC) < 0)
        return -1;
    fflush(NULL);
    s->guard = fork();
    if (s->guard == 0)
        guard(pipes[0], s->dir);
    close(pipes[0]);
    s->fd = pipes[1];
    return s->guard < 0 ? -1 : 0;
}

void scratch_close(struct scratch *s)
{
    close(s->fd);
    while (waitpid(s->guard, NULL, 0) < 0 && errno == EINTR)
        ;
}

int64_t counter(const char *name)
{
    char cmd[200], text[4096] = "", key[64];
    int64_t v = -1;
    const char *wrapper = getenv("EMUELAN4");

    snprintf(cmd, sizeof(cmd), "%s --show %d",
             wrapper != NULL ? wrapper : "emul/elan4/emuelan4", (int)getpid());
    FILE *f = popen(cmd, "r");
    if (f == NULL)
        return -1;
    if (fgets(text, sizeof(text), f) != NULL) {
        snprintf(key, sizeof(key), "\"%s\": ", name);
        const char *at = strstr(text, key);
        v = at != NULL ? atoll(at + strlen(key)) : 0;
    }
    pclose(f);
    return v;
}
