/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Linked with --wrap for these calls: statically linked code, that is bmi_elan4 but not the
 * emulation, sees a kernel before 2.6.22. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int __real_socket(int family, int type, int protocol);
int __wrap_epoll_create1(int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags);
int __wrap_socket(int family, int type, int protocol);

static int refuse(int error)
{
    errno = error;
    return -1;
}

int __wrap_epoll_create1(int flags)
{
    (void)flags;
    return refuse(ENOSYS);
}

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    (void)fd;
    (void)from;
    (void)size;
    (void)flags;
    return refuse(ENOSYS);
}

int __wrap_socket(int family, int type, int protocol)
{
    return type & (SOCK_CLOEXEC | SOCK_NONBLOCK) ? refuse(EINVAL)
                                                 : __real_socket(family, type, protocol);
}

/* Checks that the wrappers are in effect. */
__attribute__((constructor)) static void begin(void)
{
    if (epoll_create1(0) >= 0 || accept4(0, NULL, NULL, 0) >= 0 ||
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0) {
        fprintf(stderr, "linked without --wrap\n");
        abort();
    }
}
