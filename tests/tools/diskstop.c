/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Preloaded into a program, stops it at a place of its work on the disk, or fails there, so
 * that a test can kill somebody just then.
 *
 * DISKSTOP=N:WHEN:FILE   at the N-th call of renameat(), "before" or "after" it is done, makes
 *                        FILE and waits until it is gone
 * DISKSTOP_WRITE_MS=N    every pwrite() of a block or more takes so long
 * DISKSTOP_CLOSE=TEXT    close() of a file with TEXT in its name fails with EDQUOT
 * DISKSTOP_FSYNC=NAME    fsync() of what has this name, and no other, fails with EIO
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int renames;

static void stop_at(int number, const char *when)
{
    const char *text = getenv("DISKSTOP");
    char place[32];
    const char *file;
    int fd;

    snprintf(place, sizeof place, "%d:%s:", number, when);
    if (!text || strncmp(text, place, strlen(place)) != 0)
        return;
    file = text + strlen(place);
    fd = open(file, O_CREAT | O_WRONLY, 0600);
    if (fd >= 0)
        close(fd);
    while (access(file, F_OK) == 0)
        usleep(10000);
}

__attribute__((visibility("default"))) int renameat(int from_dir, const char *from, int to_dir,
                                                    const char *to)
{
    int (*real)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");
    int number = atomic_fetch_add(&renames, 1) + 1;
    int result;

    stop_at(number, "before");
    result = real(from_dir, from, to_dir, to);
    stop_at(number, "after");
    return result;
}

__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *from, size_t length,
                                                      off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    const char *ms = getenv("DISKSTOP_WRITE_MS");

    if (ms && length >= 4096)
        usleep((useconds_t)atoi(ms) * 1000);
    return real(fd, from, length, offset);
}

/* False: it has none. */
static int name_of(int fd, char *name, size_t size)
{
    char link[64];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, name, size - 1);
    if (length >= 0)
        name[length] = 0;
    return length >= 0;
}

__attribute__((visibility("default"))) int close(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    const char *text = getenv("DISKSTOP_CLOSE");
    char name[4096];
    int named = text && name_of(fd, name, sizeof name);
    int result = real(fd);

    if (!named || result != 0 || !strstr(name, text))
        return result;
    errno = EDQUOT;
    return -1;
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    const char *wanted = getenv("DISKSTOP_FSYNC");
    char name[4096];

    if (!wanted || !name_of(fd, name, sizeof name) || strcmp(name, wanted) != 0)
        return real(fd);
    errno = EIO;
    return -1;
}
