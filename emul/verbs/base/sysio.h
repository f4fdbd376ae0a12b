/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * read, write and close for the service thread, by the system call itself: a program may have
 * replaced the functions by ones in which every thread waits for the thread that connects, as
 * OrangeFS's liborangefs has, and connecting waits for the service thread.
 */
#ifndef EMU_SYSIO_H
#define EMU_SYSIO_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static inline ssize_t sys_read(int fd, void *data, size_t size)
{
    return syscall(SYS_read, fd, data, size);
}

static inline ssize_t sys_write(int fd, const void *data, size_t size)
{
    return syscall(SYS_write, fd, data, size);
}

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer's own, whatever the program has: it has seen what was opened. */
int __interceptor_close(int fd);
#endif

static inline int sys_close(int fd)
{
#ifdef __SANITIZE_THREAD__
    return __interceptor_close(fd);
#else
    return (int)syscall(SYS_close, fd);
#endif
}

/*
 * Moves a new descriptor away from the numbers of the standard streams: where a program was
 * started without them, what it prints would go there. The new number, or -1 with errno.
 */
static inline int sys_no_stream(int fd)
{
    if (fd < 0 || fd > 2)
        return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, 3), err = errno;
    sys_close(fd);
    errno = err;
    return up;
}

#endif
