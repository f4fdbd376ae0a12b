/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * kernel.h - calls that kernels with the driver of Elan4 (2.4.26, 2.6.5 to 2.6.18) may lack.
 * Each call is tried, and replaced by older ones if unknown to the kernel.
 */
#ifndef BMI_ELAN4_KERNEL_H
#define BMI_ELAN4_KERNEL_H

#include <fcntl.h>
#include <sys/socket.h>

#ifndef F_OFD_SETLK /* headers before Linux 3.15 */
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

/* Creates a descriptor that is readable from raise to clear, or returns -1 with errno.  Raise
 * and clear never block. */
int bmi_elan4_signal(void);
void bmi_elan4_signal_raise(int fd);
void bmi_elan4_signal_clear(int fd);

/* Create an epoll set, a stream socket, and a connection of one: close-on-exec; sockets do not
 * block.  Return -1 with errno on failure. */
int bmi_elan4_epoll(void);
int bmi_elan4_socket(int family);
int bmi_elan4_accept(int listener, struct sockaddr *from, socklen_t *size);

/* Opens a file that all users of the node may write, and creates a missing one.  Returns a
 * close-on-exec descriptor, or -errno. */
int bmi_elan4_shared_file(const char *path);

/*
 * Performs F_OFD_SETLK or F_OFD_GETLK on a part of the open file `fd` with this path.  Returns
 * 0, or -1 with errno.  If the kernel has only locks of processes, another file is locked,
 * `path` with ".lock" appended, and kept open: the kernel drops such locks when any descriptor
 * of their file is closed.  All parts have one length then, from the start of the file on.
 */
int bmi_elan4_lock(int fd, const char *path, int command, struct flock *lock);

#endif
