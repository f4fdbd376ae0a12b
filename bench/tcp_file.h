/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files over plain TCP, as something to compare bmi-cp with: the same striping, the same kind
 * of store, one connection and one thread for each server, ordinary blocking reads and writes.
 *
 * A file is cut into strips of 64 KiB, strip i goes to server i modulo their number.  A
 * connection carries one request:
 *
 *   client                                                       server
 *   put or get, length of the name, bytes to follow (put); name  ->
 *   put: the server's strips, one after the other                ->
 *                                         <-  put: 0 or an errno, when all is stored
 *                                         <-  get: 0 or an errno, the bytes to follow, the
 * strips
 */
#ifndef BENCH_TCP_FILE_H
#define BENCH_TCP_FILE_H

#include <stdbool.h>

/* Serves until a signal ends the process.  Returns -1 with one line in `why` when it cannot. */
int tcp_store(const char *address, const char *folder, char *why);

/* Copies a file to the servers (put) or from them.  0, or -1 with one line in `why` (WHY_SIZE
 * bytes). */
int tcp_copy(bool put, const char *path, const char *name, char *const *servers, unsigned count,
             char *why);

#endif
