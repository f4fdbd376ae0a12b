/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocking TCP sockets, with TCP_NODELAY.  Results are 0 or a negative errno. */
#ifndef BENCH_SOCKETS_H
#define BENCH_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* Connects to "host:port" or "[v6]:port". -EINVAL: invalid address; -EHOSTUNREACH: unknown
 * name. */
int sockets_connect(const char *address, int *fd);

/*
 * Serves each client of "host:port" (host "" or "*": all addresses) in a thread of its own,
 * until a signal ends the process. Prints "listening on ADDRESS, port PORT" on standard output
 * when ready, and notifies a supervisor (program_notify). `serve` leaves the socket open.
 * Returns -1 with one line in `why` (WHY_SIZE bytes) if it cannot listen.
 */
int sockets_serve(const char *address, void (*serve)(int fd, void *arg), void *arg, char *why);

/* Waits without limit for data to receive. */
int sockets_wait(int fd);

/* Move all bytes. -ECONNRESET if the peer closes earlier, -ETIMEDOUT after 60 s without any
 * progress. */
int sockets_move(int fd, const struct iovec *iov, size_t count, bool sending);
int sockets_send(int fd, const void *data, size_t size);
int sockets_receive(int fd, void *data, size_t size);

#endif
