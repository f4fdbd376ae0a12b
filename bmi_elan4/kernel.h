/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Calls that the kernels which had the driver of Elan4 (2.4.26, 2.6.5 to 2.6.18) lack, or may
 * lack. Each is tried; where the kernel does not know it, older ones do the same.
 */
#ifndef BMI_ELAN4_KERNEL_H
#define BMI_ELAN4_KERNEL_H

#include <fcntl.h>
#include <sys/socket.h>

#ifndef F_OFD_SETLK /* headers before Linux 3.15 */
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

/* A descriptor that is readable from raise to clear, or -1 with errno. Both never block. */
int bmi_elan4_signal(void);
void bmi_elan4_signal_raise(int fd);
void bmi_elan4_signal_clear(int fd);

/* An epoll, a stream socket, and a connection of one: closed when a program is executed; the
 * sockets do not block. -1 with errno. */
int bmi_elan4_epoll(void);
int bmi_elan4_socket(int family);
int bmi_elan4_accept(int listener, struct sockaddr *from, socklen_t *size);

/* Opens a file that all users of the node may write to, and makes one that does not exist: a
 * descriptor, closed when a program is executed, or -errno. */
int bmi_elan4_shared_file(const char *path);

/*
 * F_OFD_SETLK or F_OFD_GETLK for a part of the open file `fd`, whose path it is; 0, or -1 with
 * errno. Where the kernel has locks of processes only, they are taken on another file, `path`
 * with ".lock" behind it, which stays open: the kernel drops them when any descriptor of their
 * file is closed. Parts are all of one length there, from the beginning of the file on.
 */
int bmi_elan4_lock(int fd, const char *path, int command, struct flock *lock);

#endif
