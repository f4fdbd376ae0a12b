/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Preloaded into a server of OrangeFS: stops it between two blocks of a file's data, so that a
 * test can kill a process in the middle of a transfer.
 *
 * BLOCKSTOP=FILE: the file, once it exists, has "write N" or "read N". Before the N-th pwrite()
 * or pread() of a block from then on it is removed and the process stops, as by SIGSTOP.
 *
 * A block is 4 KiB or more of a file in a folder named bstreams.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int passed; /* blocks since the file exists */

static int is_data(int fd)
{
    char link[64], name[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0)
        return 0;
    name[length] = 0;
    return strstr(name, "/bstreams/") != NULL;
}

static void pass(const char *what, int fd, size_t length)
{
    const char *file = getenv("BLOCKSTOP");
    char wanted[8] = "";
    int number = 0;

    if (file == NULL || length < 4096 || access(file, F_OK) != 0 || !is_data(fd))
        return;
    pthread_mutex_lock(&lock);
    FILE *f = fopen(file, "r");
    if (f != NULL && fscanf(f, "%7s %d", wanted, &number) == 2 && strcmp(wanted, what) == 0 &&
        ++passed >= number && unlink(file) == 0) {
        passed = 0;
        kill(getpid(), SIGSTOP);
    }
    if (f != NULL)
        fclose(f);
    pthread_mutex_unlock(&lock);
}

EXPORTED ssize_t pwrite(int fd, const void *from, size_t length, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");

    pass("write", fd, length);
    return real(fd, from, length, offset);
}

EXPORTED ssize_t pwrite64(int fd, const void *from, size_t length, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");

    pass("write", fd, length);
    return real(fd, from, length, offset);
}

EXPORTED ssize_t pread(int fd, void *to, size_t length, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");

    pass("read", fd, length);
    return real(fd, to, length, offset);
}

EXPORTED ssize_t pread64(int fd, void *to, size_t length, off64_t offset)
{
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");

    pass("read", fd, length);
    return real(fd, to, length, offset);
}
