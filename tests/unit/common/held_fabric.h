/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fabric whose registrations hold pages like a device: a transfer uses the pages present at
 * registration, even after remapping. io_uring holds the pages (it pins them as RDMA drivers
 * do), or a pipe where io_uring is forbidden; a pipe's pages can only be read, and not after a
 * fork. Older kernels' io_uring (such as 6.1) refuses System V segments with -EOPNOTSUPP, and
 * ranges with memory of several kinds with -EINVAL: all pages must belong to one file or to
 * none.
 */
#ifndef HELD_FABRIC_H
#define HELD_FABRIC_H

#include "fabric.h"

extern const struct rme_fabric_ops held_ops;

/* Opens the device; once, before the first registration. */
void held_open(void);
void held_close(void);

/* Returns whether the device can write, and survives a fork. */
bool held_pins(void);

/* Number of current registrations, and of all. */
int held_live(void);
int held_ever(void);

/* Reads or writes memory through a key. Returns false if the key does not cover the memory or
 * the kernel refuses. */
bool held_read(uint64_t key, const void *start, size_t length, void *out);
bool held_write(uint64_t key, void *start, size_t length, const void *in);

#endif
