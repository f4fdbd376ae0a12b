/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocking TCP sockets.  Results are 0 or a negative errno. */
#ifndef BENCH_SOCKETS_H
#define BENCH_SOCKETS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 * Connect to, or listen on, "host:port" or "[v6]:port". *fd: the socket, with TCP_NODELAY.
 * -EINVAL: invalid address; -EHOSTUNREACH: unknown name. sockets_listen() with host "" or "*"
 * uses all addresses.
 */
int sockets_connect(const char *address, int *fd);
int sockets_listen(const char *address, int *fd);

/* Returns the port of a listening socket, also if chosen by the kernel. */
int sockets_port(int fd);

/* Seconds; a blocking read or write without any progress for this time fails with
 * -ETIMEDOUT. */
#define SOCKETS_SILENCE_S 60

/* Waits without limit for data to receive. */
int sockets_wait(int fd);

/* Transfer all data. -ECONNRESET if the peer closes earlier. */
int sockets_send(int fd, const void *data, size_t size);
int sockets_receive(int fd, void *data, size_t size);

/* The same for segments; the array is not modified. */
int sockets_send_list(int fd, const struct iovec *iov, size_t count);
int sockets_receive_list(int fd, const struct iovec *iov, size_t count);

/*
 * Accepts clients on a listening socket until it is shut down, and serves each in a thread of
 * its own. The socket is closed after `serve` returns. Threads of remaining clients continue.
 */
void sockets_serve(int listener, void (*serve)(int fd, void *arg), void *arg);

#endif
