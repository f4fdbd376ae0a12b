/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * kernel.h - calls that kernels with the driver of Elan4 (2.4.26, 2.6.5 to 2.6.18) may lack.
 * Each call is tried, and replaced by older ones if unknown to the kernel.
 */
#ifndef BMI_ELAN4_KERNEL_H
#define BMI_ELAN4_KERNEL_H

#include <sys/socket.h>

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

/* Lock what the process shares; held during a fork. */
void bmi_elan4_lock(void);
void bmi_elan4_unlock(void);

/* Opens a file that all users of the node may write, and creates a missing one.  Returns a
 * close-on-exec descriptor, or -errno. */
int bmi_elan4_shared_file(const char *path);

#endif
