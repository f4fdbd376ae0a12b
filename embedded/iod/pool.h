/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool.h - the buffers of all transfers of a process: a fixed number of one size, so memory is
 * bounded whatever clients ask for.  Who finds none queues; a buffer that comes back goes to
 * the head of the queue.  A transfer that sees others waiting (pool_wanted) gives its buffer
 * back after each message, so all get their turn.
 */
#ifndef IOD_POOL_H
#define IOD_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "embedded/iod/net.h"
#include "embedded/iod/workers.h"

struct pool;

struct buffer {
    struct net_memory memory; /* holds pool_buffer_size() bytes */
    struct buffer *next;
    void *block;
};

/* In the queue for a buffer.  `job` runs, with `buffer` set, when it is its turn. */
struct waiter {
    struct job job;
    struct buffer *buffer;
    struct waiter *next;
};

/*
 * At most `count` buffers of `size` bytes, made when first needed.  pieces == 1: memory from
 * BMI_memalloc, of the method of `home`, an address that must outlive the pool; more: that many
 * pieces of ordinary memory with gaps between them.  0 or -ENOMEM.
 */
int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, int pieces,
             struct pool **out);

/* Frees all.  Every buffer is back, nobody waits, BMI still runs. */
void pool_free(struct pool *pool);

/* A buffer, or NULL when none is left. */
struct buffer *pool_try(struct pool *pool);

/*
 * The same into waiter->buffer, and queues when there is none.  1: got it; 0: queued; -ENOMEM:
 * there is none, and nobody has one that could come back.
 */
int pool_get(struct pool *pool, struct waiter *waiter);

/* Leaves the queue.  False when the waiter has its buffer already: then its job runs. */
bool pool_unwait(struct pool *pool, struct waiter *waiter);

void pool_put(struct pool *pool, struct buffer *buffer);
bool pool_wanted(struct pool *pool);
size_t pool_buffer_size(const struct pool *pool);
int pool_in_use(struct pool *pool);

#endif
