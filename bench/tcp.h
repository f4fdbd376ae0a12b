/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The baseline over plain TCP: jobs (tcp_transport, transport.h, is their client), and copies
 * of files. Functions return 0, or -1 with one line in `why` (WHY_SIZE bytes). The servers
 * serve "host:port" until a signal ends the process (sockets_serve()).
 */
#ifndef BENCH_TCP_H
#define BENCH_TCP_H

#include <stdbool.h>
#include <stdint.h>

/* Serves jobs, with `memory` bytes at most for all of them together (budget.h). */
int tcp_serve(const char *address, uint64_t memory, char *why);

/* Serves the files of a folder. */
int tcp_store(const char *address, const char *folder, char *why);

/* Copies a file to these servers (put) or from them, as bmi-cp does: strip i of 64 KiB is on
 * server i modulo their number, each with a connection and a thread of its own. */
int tcp_copy(bool put, const char *path, const char *name, char *const *servers, unsigned count,
             char *why);

#endif
