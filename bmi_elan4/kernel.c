/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * kernel.c - see kernel.h.
 *
 * An eventfd (2.6.22) is replaced by a datagram socket connected to itself, flags at creation
 * (2.6.27) by fcntl(), and locks of open files (3.15) by locks of processes.  Between creation
 * and fcntl() a fork may copy a descriptor that a program executed later inherits.
 *
 * Locks of a process do not exclude the process itself, and its child does not inherit them.
 * The locks of this process are therefore recorded here.
 */
#include "bmi_elan4/kernel.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PARTS 2048 /* maximum parts of a file */

static atomic_bool no_eventfd;

/* Returns true if the kernel lacks a call, or a flag of it. */
static bool is_old(int fd)
{
    return fd < 0 && (errno == ENOSYS || errno == EINVAL);
}

/* Sets close-on-exec, and non-blocking mode if requested. */
static int flagged(int fd, bool nonblock)
{
    if (fd < 0 || (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
                   (!nonblock || fcntl(fd, F_SETFL, O_NONBLOCK) == 0)))
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

int bmi_elan4_signal(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    socklen_t size = sizeof(a);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (!is_old(fd))
        return fd;
    atomic_store(&no_eventfd, true);
    fd = flagged(socket(AF_UNIX, SOCK_DGRAM, 0), true);
    /* the kernel chooses the name */
    if (fd < 0 || (bind(fd, (struct sockaddr *)&a, sizeof(sa_family_t)) == 0 &&
                   getsockname(fd, (struct sockaddr *)&a, &size) == 0 &&
                   connect(fd, (struct sockaddr *)&a, size) == 0))
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

void bmi_elan4_signal_raise(int fd)
{
    uint64_t one = 1;

    while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ; /* full: raised already */
}

void bmi_elan4_signal_clear(int fd)
{
    uint64_t count;

    while (read(fd, &count, sizeof(count)) > 0 && atomic_load(&no_eventfd))
        ;
}

int bmi_elan4_epoll(void)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);

    return is_old(fd) ? flagged(epoll_create(8), false) : fd;
}

int bmi_elan4_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return is_old(fd) ? flagged(socket(family, SOCK_STREAM, 0), true) : fd;
}

int bmi_elan4_accept(int listener, struct sockaddr *from, socklen_t *size)
{
    int fd = accept4(listener, from, size, SOCK_CLOEXEC | SOCK_NONBLOCK);

    return is_old(fd) ? flagged(accept(listener, from, size), true) : fd;
}

/*
 * Opens the file, and creates it only if missing, because the kernel may refuse O_CREAT for
 * another user's file in such a folder.
 */
int bmi_elan4_shared_file(const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

        if (fd < 0 && errno == ENOENT) {
            fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0666);
            if (fd < 0 && errno == EEXIST)
                continue;
            if (fd >= 0 && fchmod(fd, 0666) < 0) { /* independently of the umask */
                int err = errno;
                close(fd);
                return -err;
            }
        }
        fd = flagged(fd, false);
        return fd < 0 ? -errno : fd;
    }
    return -EAGAIN;
}

/* ---- Locks of processes ---- */

/* File with locks, which is never closed. */
struct file {
    struct file *next;
    int fd;
    bool taken[PARTS]; /* by this process */
    char path[];
};

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;
static pid_t files_of;

static struct file *file_of(const char *path)
{
    struct file *f;
    size_t bytes = strlen(path) + sizeof(".lock");

    if (files_of != getpid()) { /* a child: the locks and the descriptors are its parent's */
        for (; files; files = f) {
            f = files->next;
            free(files);
        }
        files_of = getpid();
    }
    for (f = files; f; f = f->next)
        if (strlen(f->path) == bytes - 1 && strncmp(f->path, path, strlen(path)) == 0)
            return f;
    f = calloc(1, sizeof(*f) + bytes);
    if (!f)
        return NULL;
    snprintf(f->path, bytes, "%s.lock", path);
    f->fd = bmi_elan4_shared_file(f->path);
    if (f->fd < 0) {
        errno = -f->fd;
        free(f);
        return NULL;
    }
    f->next = files;
    return files = f;
}

static int lock_of_process(const char *path, int command, struct flock *l)
{
    const struct flock asked = *l;
    off_t part = asked.l_start / asked.l_len;
    struct file *f = file_of(path);

    if (!f)
        return -1;
    if (part >= PARTS) {
        errno = EINVAL;
        return -1;
    }
    if (command == F_OFD_SETLK) {
        if (f->taken[part] && asked.l_type != F_UNLCK) {
            errno = EAGAIN;
            return -1;
        }
        if (fcntl(f->fd, F_SETLK, l) < 0)
            return -1;
        f->taken[part] = asked.l_type != F_UNLCK;
        return 0;
    }
    if (f->taken[part]) {
        l->l_type = F_WRLCK;
        l->l_pid = -1;
        return 0;
    }
    if (fcntl(f->fd, F_GETLK, l) < 0)
        return -1;
    if (l->l_start == asked.l_start && l->l_len == asked.l_len)
        l->l_pid = -1; /* as for the lock of an open file, which belongs to no process */
    return 0;
}

int bmi_elan4_lock(int fd, const char *path, int command, struct flock *lock)
{
    struct flock old = *lock;
    int rc = fcntl(fd, command, lock);

    if (!is_old(rc))
        return rc;
    *lock = old;
    pthread_mutex_lock(&files_lock);
    rc = lock_of_process(path, command, lock);
    int err = errno;
    pthread_mutex_unlock(&files_lock);
    errno = err;
    return rc;
}
