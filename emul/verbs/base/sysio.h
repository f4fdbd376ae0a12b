/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * read, write and close for the service thread, by the system call itself: a program may have
 * replaced the functions by ones in which every thread waits for the thread that connects, as
 * OrangeFS's liborangefs has, and connecting waits for the service thread.
 */
#ifndef EMU_SYSIO_H
#define EMU_SYSIO_H

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

static inline int sys_close(int fd)
{
    return (int)syscall(SYS_close, fd);
}

#endif
