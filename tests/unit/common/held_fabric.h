/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fabric whose registrations hold on to pages, as a device's do: what is moved through one
 * goes to and comes from the pages that were there when it was made, whatever is mapped there
 * now.  The pages are held by io_uring (which pins them as RDMA drivers do), or, where a
 * program may not use that, by a pipe; those are good for reading alone, and not after a fork.
 * Older kernels' io_uring (6.1, say) takes no System V segments, -EOPNOTSUPP, nor one range of
 * memory of several kinds, -EINVAL: all its pages must be of one file or of none.
 */
#ifndef HELD_FABRIC_H
#define HELD_FABRIC_H

#include "fabric.h"

extern const struct rme_fabric_ops held_ops;

/* Once, before anything is registered. */
void held_open(void);
void held_close(void);

/* Does the device write, too, and does it survive a fork? */
bool held_pins(void);

/* Registrations now, and ever. */
int held_live(void);
int held_ever(void);

/* The device reads, or writes, memory through a key.  False: the key does not cover it, or the
 * kernel refused. */
bool held_read(uint64_t key, const void *start, size_t length, void *out);
bool held_write(uint64_t key, void *start, size_t length, const void *in);

#endif
