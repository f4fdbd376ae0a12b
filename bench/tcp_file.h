/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files over plain TCP, as a baseline for bmi-cp: the same striping, a similar store
 * (tcp_store.h), one connection and one thread per server, blocking reads and writes. A file is
 * cut into strips of 64 KiB; strip i is on server i modulo their number.
 */
#ifndef BENCH_TCP_FILE_H
#define BENCH_TCP_FILE_H

#include <stdbool.h>

/* Copies a file to the servers (put) or from them. Returns 0, or -1 with one line in `why`
 * (WHY_SIZE bytes). */
int tcp_copy(bool put, const char *path, const char *name, char *const *servers, unsigned count,
             char *why);

#endif
