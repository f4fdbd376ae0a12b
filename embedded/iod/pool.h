/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool.h - buffers of all transfers of a process: a fixed number of one size, so memory is
 * bounded.  Without a free buffer a transfer queues; a returned buffer is given to the first
 * waiter.  A transfer returns its buffer after each message while others wait (pool_wanted()),
 * so all get their turn.
 */
#ifndef IOD_POOL_H
#define IOD_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "embedded/iod/net.h"
#include "embedded/iod/workers.h"

struct pool;

struct buffer {
    void *bytes; /* pool_buffer_size() of them, from BMI_memalloc() */
    struct buffer *next;
    size_t filled; /* set by the user: longest message stored in it */
};

/* Waiter for a buffer.  `job` runs, with `buffer` set, when a buffer is granted. */
struct waiter {
    struct job job;
    struct buffer *buffer;
    struct waiter *next;
};

/*
 * Makes a pool of at most `count` buffers of `size` bytes, allocated when first needed by
 * BMI_memalloc of the method of `home`, an address that must outlive the pool.  `clear`: a
 * returned buffer is cleared, because the next user is another client.  Returns 0 or -ENOMEM.
 */
int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, bool clear,
             struct pool **out);

/* Frees the pool.  All buffers are returned, no waiter is left, and BMI still runs. */
void pool_free(struct pool *pool);

/* Returns a buffer if one is free and nobody waits, or NULL. */
struct buffer *pool_try(struct pool *pool);

/*
 * Gets a buffer into waiter->buffer, or queues.  Returns 1: got one; 0: queued; -ENOMEM: none
 * can be allocated, and none is in use that could be returned.
 */
int pool_get(struct pool *pool, struct waiter *waiter);

/* Leaves the queue.  Returns false if the waiter has its buffer already: its job will run. */
bool pool_unwait(struct pool *pool, struct waiter *waiter);

void pool_put(struct pool *pool, struct buffer *buffer);

/* Frees the memory of a pool of which nothing is in use.  Call periodically. */
void pool_trim(struct pool *pool);

bool pool_wanted(struct pool *pool); /* somebody waits */
size_t pool_buffer_size(const struct pool *pool);
int pool_in_use(struct pool *pool);

#endif
