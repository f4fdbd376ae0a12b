/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Preloaded into a program: stops it at a certain call on files, or makes a call fail, so that
 * a test can act at that moment.
 *
 * DISKSTOP=CALL:N:WHEN:FILE   at the N-th call of CALL (renameat, pread, pwrite, preadv or
 *                             pwritev), "before" or "after" it, makes FILE and waits until
 *                             FILE is removed; other threads continue, except for later calls
 *                             of preadv and pwritev, of which a copy makes one for each piece
 * DISKSTOP_WRITE_MS=N         every pwritev() takes N ms
 * DISKSTOP_CLOSE=TEXT         close() of a file with TEXT in its name fails with EDQUOT
 * DISKSTOP_FSYNC=NAME         fsync() of the file with exactly this name fails with EIO
 * DISKSTOP_FSYNC_ERRNO=N      or with this error
 * DISKSTOP_READDIR=NAME       readdir() of the folder with exactly this name fails with EIO
 *                             while NAME.bad exists
 * DISKSTOP_FTRUNCATE=TEXT     ftruncate() of a file with TEXT in its name fails with EFBIG
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static void stop_at(const char *call, int number, const char *when)
{
    const char *text = getenv("DISKSTOP");
    char wanted_call[16], wanted_when[8];
    int first, length = 0, fd;
    const char *file;

    if (text == NULL ||
        sscanf(text, "%15[^:]:%d:%7[^:]:%n", wanted_call, &first, wanted_when, &length) != 3 ||
        !length || strcmp(call, wanted_call) != 0 || strcmp(when, wanted_when) != 0)
        return;
    file = text + length;
    if (number == first) {
        fd = open(file, O_CREAT | O_WRONLY, 0600);
        if (fd >= 0)
            close(fd);
    } else if (number < first || strchr(call, 'v') == NULL) {
        return;
    }
    while (access(file, F_OK) == 0)
        usleep(10000);
}

/* Makes the call in between, and counts calls of this name. */
#define STOPPING(result, call, doing)                                                          \
    do {                                                                                       \
        static atomic_int calls;                                                               \
        int number_ = atomic_fetch_add(&calls, 1) + 1;                                         \
        stop_at(call, number_, "before");                                                      \
        result = doing;                                                                        \
        int error_ = errno;                                                                    \
        stop_at(call, number_, "after");                                                       \
        errno = error_;                                                                        \
    } while (0)

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int (*real)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");
    int result;

    STOPPING(result, "renameat", real(from_dir, from, to_dir, to));
    return result;
}

EXPORT ssize_t pread(int fd, void *to, size_t length, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    ssize_t result;

    STOPPING(result, "pread", real(fd, to, length, offset));
    return result;
}

EXPORT ssize_t pwrite(int fd, const void *from, size_t length, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    ssize_t result;

    STOPPING(result, "pwrite", real(fd, from, length, offset));
    return result;
}

EXPORT ssize_t preadv(int fd, const struct iovec *to, int count, off_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, "preadv");
    ssize_t result;

    STOPPING(result, "preadv", real(fd, to, count, offset));
    return result;
}

EXPORT ssize_t pwritev(int fd, const struct iovec *from, int count, off_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, "pwritev");
    const char *ms = getenv("DISKSTOP_WRITE_MS");
    ssize_t result;

    if (ms != NULL)
        usleep((useconds_t)atoi(ms) * 1000);

    STOPPING(result, "pwritev", real(fd, from, count, offset));
    return result;
}

/* Returns false if the descriptor has no name. */
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

EXPORT int close(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    const char *text = getenv("DISKSTOP_CLOSE");
    char name[4096];
    int named = text != NULL && name_of(fd, name, sizeof name);
    int result = real(fd);

    if (!named || result != 0 || strstr(name, text) == NULL)
        return result;
    errno = EDQUOT;
    return -1;
}

EXPORT int ftruncate(int fd, off_t length)
{
    int (*real)(int, off_t) = dlsym(RTLD_NEXT, "ftruncate");
    const char *text = getenv("DISKSTOP_FTRUNCATE");
    char name[4096];

    if (text == NULL || !name_of(fd, name, sizeof name) || strstr(name, text) == NULL)
        return real(fd, length);
    errno = EFBIG;
    return -1;
}

EXPORT int fsync(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    const char *wanted = getenv("DISKSTOP_FSYNC"), *number = getenv("DISKSTOP_FSYNC_ERRNO");
    char name[4096];

    if (wanted == NULL || !name_of(fd, name, sizeof name) || strcmp(name, wanted) != 0)
        return real(fd);
    errno = number != NULL ? atoi(number) : EIO;
    return -1;
}

EXPORT struct dirent *readdir(DIR *dir)
{
    struct dirent *(*real)(DIR *) = dlsym(RTLD_NEXT, "readdir");
    const char *wanted = getenv("DISKSTOP_READDIR");
    char name[4096], bad[4200];
    int before = errno; /* which stays at the end of the folder */

    snprintf(bad, sizeof bad, "%s.bad", wanted != NULL ? wanted : "");
    if (wanted != NULL && access(bad, F_OK) == 0 && name_of(dirfd(dir), name, sizeof name) &&
        strcmp(name, wanted) == 0) {
        errno = EIO;
        return NULL;
    }
    errno = before;
    return real(dir);
}
