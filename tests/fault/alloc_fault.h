/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes the K-th allocation of our code fail. The program is linked with --wrap for the
 * allocating calls: calls from our objects are redirected here, those of libc, libibverbs and
 * the software HCA are not.
 */
#ifndef ALLOC_FAULT_H
#define ALLOC_FAULT_H

#include <stdbool.h>

/* Makes the process's K-th allocation fail for lack of memory; 0: none. To be called before
 * that one, while the process has one thread. */
void alloc_fault_start(unsigned long kth);

/* Return the number of allocations so far, and whether the K-th was among them. */
unsigned long alloc_fault_count(void);
bool alloc_fault_hit(void);

#endif
