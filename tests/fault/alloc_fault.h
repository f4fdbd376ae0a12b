/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lets the K-th allocation of our code fail.  The program is linked with --wrap for the
 * allocating calls, so calls from our objects come here, and those of libc, libibverbs and the
 * software HCA do not.
 */
#ifndef ALLOC_FAULT_H
#define ALLOC_FAULT_H

#include <stdbool.h>

/* The K-th allocation of the process returns as if there were no memory; 0: none.  Call it
 * before that one, while the process has one thread. */
void alloc_fault_start(unsigned long kth);

/* Allocations of the process so far, and whether the K-th was among them. */
unsigned long alloc_fault_count(void);
bool alloc_fault_hit(void);

#endif
