/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * kernel.h - replacements of calls that kernels with the driver of Elan4 (2.4.26, 2.6.5 to
 * 2.6.18) may lack.
 */
#ifndef BMI_ELAN4_KERNEL_H
#define BMI_ELAN4_KERNEL_H

#include <stdatomic.h>
#include <sys/socket.h>

/* Signal to sleepers: `fd` is readable from raise to clear, which never block. */
struct bmi_elan4_signal {
    int fd;
    _Atomic int raised; /* not cleared since */
};

/* Opens a signal.  Returns 0 or -errno; the caller closes fd unless it is -1. */
int bmi_elan4_signal_open(struct bmi_elan4_signal *s);
void bmi_elan4_signal_raise(struct bmi_elan4_signal *s);
/* To be called before what was signalled is looked for. */
void bmi_elan4_signal_clear(struct bmi_elan4_signal *s);

/* Create an epoll set, a socket, and a connection of one: close-on-exec; sockets do not block.
 * Return -1 with errno on failure. */
int bmi_elan4_epoll(void);
int bmi_elan4_socket(int family, int type);
int bmi_elan4_accept(int listener);

/* Registers the handlers that hold the lock during a fork, once.  Returns 0 or -errno; without
 * handlers the lock must not be taken, because a child might never get the lock. */
int bmi_elan4_guard_forks(void);
/* Function for a forked child to call with the lock held; NULL: none.  Set under the lock. */
extern void (*bmi_elan4_in_child)(void);
/*
 * Lock the context logs and bootstrap servers of the process; held during a fork.  A thread
 * that holds the lock must not call pthread_atfork(), because a C library may block that call
 * until a fork in progress has ended (glibc before 2.36, musl), and the fork waits for the
 * lock.
 */
void bmi_elan4_lock(void);
void bmi_elan4_unlock(void);

/* Opens a file that all users of the node may write, and creates a missing one.  Returns a
 * close-on-exec descriptor, or -errno. */
int bmi_elan4_shared_file(const char *path);

#endif
