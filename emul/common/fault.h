/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Injection of single failures, by number, into calls of both emulators. */
#ifndef EMUL_COMMON_FAULT_H
#define EMUL_COMMON_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Parses a list of `call:K` (the K-th call of that name), `call:RATE%` (drawn with
 * emul_fault_seed), and `K` (of all calls, if `any`); reports others on stderr, with the
 * variable's name. */
void emul_faults_parse(const char *emulator, const char *variable, const char *list,
                       const char *const *names, int count, bool any);
/* Returns whether a call must fail, by its number among calls of its name and among all (0: not
 * counted). */
bool emul_fault_hits(int call, uint64_t n, uint64_t all);
extern int emul_nfaults; /* faults that are to be injected */
extern uint64_t emul_fault_seed;

#endif
