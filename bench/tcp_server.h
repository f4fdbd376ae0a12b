/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BENCH_TCP_SERVER_H
#define BENCH_TCP_SERVER_H

#include <stdint.h>

/*
 * Serves jobs over plain TCP at "host:port" until SIGTERM or SIGINT, with `memory` bytes at
 * most for all of them together (budget.h). Prints "listening on ADDRESS, port PORT" on
 * standard output when ready, and notifies a supervisor (program_notify). Returns -1 with one
 * line in `why` (WHY_SIZE bytes) if it cannot listen.
 */
int tcp_serve(const char *address, uint64_t memory, char *why);

#endif
