/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * read, write and close of the service thread, as direct system calls. A program may replace
 * the functions, as OrangeFS's liborangefs does, by ones in which each thread waits for the
 * connecting thread; connecting in turn waits for the service thread.
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
/* ThreadSanitizer's own close, because ThreadSanitizer tracks opened descriptors. */
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

/* Moves a new descriptor above the standard streams, so that output of a program started
 * without them does not go there. Returns the new number, or -1 with errno. */
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
