/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BENCH_BMI_SERVER_H
#define BENCH_BMI_SERVER_H

#include <signal.h>
#include <stdint.h>

/*
 * Serves clients at `address` until *stop is set, with `memory` bytes at most for all of them
 * together (budget.h). Prints "listening on ADDRESS, port PORT" on standard output when ready,
 * and notifies a supervisor (program_notify). Returns 0, or -1 with one line in `why` (WHY_SIZE
 * bytes).
 */
int bmi_serve(const char *address, const char *options, uint64_t memory,
              const volatile sig_atomic_t *stop, char *why);

#endif
