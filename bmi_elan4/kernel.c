/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * kernel.c - see kernel.h.
 *
 * A signal is a datagram socket connected to itself, because eventfd exists since 2.6.22.  The
 * socket holds one byte at most, because a raised signal is not raised again: one write for all
 * threads that raise the signal, and one read of the sleeper.
 *
 * Flags at creation (2.6.27) are replaced by fcntl(), under the lock that is held during forks.
 */
#include "bmi_elan4/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Sets close-on-exec, and non-blocking mode if requested. */
static int flagged(int fd, bool nonblock)
{
    int err;
    if (fd < 0 || (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
                   (!nonblock || fcntl(fd, F_SETFL, O_NONBLOCK) == 0)))
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

int bmi_elan4_socket(int family, int type)
{
    int fd;
    bmi_elan4_lock();
    fd = flagged(socket(family, type, 0), true);
    bmi_elan4_unlock();
    return fd;
}

int bmi_elan4_signal_open(struct bmi_elan4_signal *s)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    socklen_t size = sizeof(a);

    s->fd = bmi_elan4_socket(AF_UNIX, SOCK_DGRAM);
    /* the kernel chooses the name */
    return s->fd < 0 || bind(s->fd, (struct sockaddr *)&a, sizeof(sa_family_t)) < 0 ||
                   getsockname(s->fd, (struct sockaddr *)&a, &size) < 0 ||
                   connect(s->fd, (struct sockaddr *)&a, size) < 0
               ? -errno
               : 0;
}

void bmi_elan4_signal_raise(struct bmi_elan4_signal *s)
{
    if (atomic_exchange(&s->raised, 1))
        return;
    while (syscall(SYS_write, s->fd, "", 1) < 0) /* not write(): see base/thread.h */
        if (errno != EINTR) { /* without memory: the next raise tries again */
            atomic_store(&s->raised, 0);
            return;
        }
}

void bmi_elan4_signal_clear(struct bmi_elan4_signal *s)
{
    char byte;

    while (read(s->fd, &byte, 1) < 0 && errno == EINTR)
        ;
    atomic_exchange(&s->raised, 0);
}

int bmi_elan4_epoll(void)
{
    int fd;
    bmi_elan4_lock();
    fd = flagged(epoll_create(8), false);
    bmi_elan4_unlock();
    return fd;
}

int bmi_elan4_accept(int listener)
{
    int fd;
    bmi_elan4_lock();
    fd = flagged(accept(listener, NULL, NULL), true);
    bmi_elan4_unlock();
    return fd;
}

/*
 * Opens the file, and creates it only if missing, because the kernel may refuse O_CREAT for
 * another user's file in such a folder.
 */
int bmi_elan4_shared_file(const char *path)
{
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags);

    if (fd < 0 && errno == ENOENT) {
        fd = open(path, flags | O_CREAT | O_EXCL, 0666);
        if (fd >= 0 && fchmod(fd, 0666) < 0) { /* independently of the umask */
            int err = errno;
            close(fd);
            return -err;
        }
        if (fd < 0 && errno == EEXIST) /* another process was faster */
            fd = open(path, flags);
    }
    fd = flagged(fd, false);
    return fd < 0 ? -errno : fd;
}

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static int fork_error;
void (*bmi_elan4_in_child)(void);

static void in_child(void)
{
    if (bmi_elan4_in_child != NULL)
        bmi_elan4_in_child();
    bmi_elan4_unlock();
}

/* Registers the only fork handlers of the fabric (doc/architecture.md, "Fork"). */
static void register_handlers(void)
{
    fork_error = -pthread_atfork(bmi_elan4_lock, bmi_elan4_unlock, in_child);
}

int bmi_elan4_guard_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_handlers);
    return fork_error;
}

void bmi_elan4_lock(void)
{
    pthread_mutex_lock(&process_lock);
}

void bmi_elan4_unlock(void)
{
    pthread_mutex_unlock(&process_lock);
}
