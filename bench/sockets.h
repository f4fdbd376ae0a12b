/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocking TCP sockets.  Results are 0 or a negative errno. */
#ifndef BENCH_SOCKETS_H
#define BENCH_SOCKETS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 * Connect to, or listen on, "host:port" or "[v6]:port".  *fd is the socket, with TCP_NODELAY.
 * -EINVAL: not such an address; -EHOSTUNREACH: the name is unknown.  sockets_listen with host
 * "" or "*" takes all of the host's addresses.
 */
int sockets_connect(const char *address, int *fd);
int sockets_listen(const char *address, int *fd);

/* The port that a listening socket has, also where 0 was asked for. */
int sockets_port(int fd);

/* A blocking read or write that has seen no byte for this long fails with -ETIMEDOUT. */
#define SOCKETS_SILENCE_S 60

/* Waits, for ever, until there is something to receive. */
int sockets_wait(int fd);

/* Transfer everything.  -ECONNRESET when the peer closes before that. */
int sockets_send(int fd, const void *data, size_t size);
int sockets_receive(int fd, void *data, size_t size);

/* The same for segments; the array is left as it was. */
int sockets_send_list(int fd, const struct iovec *iov, size_t count);
int sockets_receive_list(int fd, const struct iovec *iov, size_t count);

/*
 * Accepts clients on a listening socket until it is shut down, and serves each in a thread of
 * its own.  `serve` closes nothing: the socket is closed when it returns.  Threads of clients
 * that are still there run on.
 */
void sockets_serve(int listener, void (*serve)(int fd, void *arg), void *arg);

#endif
