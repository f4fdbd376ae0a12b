/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The mappings of this process, as the kernel has them. */
#ifndef RME_MAPS_H
#define RME_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct rme_mapping {
    uintptr_t start, end;
    bool readable, writable;
};

/* A descriptor to walk along, and its end.  -1: there is none.  By system calls: see thread.h.
 */
int rme_maps_open(void);
void rme_maps_close(int maps);

/*
 * Shows all mappings, lowest first, until `each` says that it needs no more.  No allocation, no
 * stdio: it also runs where memory can neither be had nor given back.  One thread at a time
 * for each descriptor.
 */
void rme_maps_walk(int maps, bool (*each)(void *arg, const struct rme_mapping *mapping),
                   void *arg);

/*
 * Is all of the range mapped, readable, and with `write` writable?  One system call for each
 * mapping, no lock, no allocation; any number of threads.  False also where the kernel cannot
 * tell (before Linux 6.11).
 */
bool rme_maps_cover(int maps, uintptr_t start, uintptr_t end, bool write);

#endif
