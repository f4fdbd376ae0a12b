/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads the kernel's list of mappings of this process. */
#ifndef RME_MAPS_H
#define RME_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct rme_mapping {
    uintptr_t start, end;
    bool readable, writable;
};

/* Open and close a descriptor of the list; -1: not available.  System calls: see thread.h. */
int rme_maps_open(void);
void rme_maps_close(int maps);

/*
 * Calls `each` for all mappings, lowest first, until it returns that no more are needed.
 * Allocates nothing and uses no stdio, so a walk is possible while memory can neither be
 * allocated nor freed.  One thread at a time for each descriptor.
 */
void rme_maps_walk(int maps, bool (*each)(void *arg, const struct rme_mapping *mapping),
                   void *arg);

/*
 * Returns true if the whole range is mapped, readable, and with `write` writable.  One system
 * call for each mapping, no lock, no allocation; any number of threads.  Returns false also on
 * kernels that cannot tell (before Linux 6.11).
 */
bool rme_maps_cover(int maps, uintptr_t start, uintptr_t end, bool write);

#endif
