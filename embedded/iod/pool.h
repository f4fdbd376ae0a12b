/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool.h - buffers of all transfers of a process: a fixed number of one size, so memory is
 * bounded.  Without a free buffer a request queues; a returned buffer is given to a waiter.  A
 * transfer returns its buffer after each message while others wait (pool_wanted()), so all get
 * their turn.
 *
 * The buffers of a server are shared by host, each with a `struct share`: a share gets another
 * buffer while it holds fewer than are left.  One host thus gets a half, two a third each, and
 * a host without buffers always gets one.  Within a share, a transfer gets more than its first
 * buffer only while its own and those of the share are below half of what is left; the rest of
 * the share's limit is for first buffers of other transfers.
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
    size_t filled; /* set by the user: longest message stored in it */
};

/* Buffers of one host.  Initially zero; outlives its buffers and waiters.  Protected by the
 * pool's lock. */
struct share {
    int held;
    struct waiter *first, *last; /* queue of waiters */
    struct share *next;          /* next share with waiters */
};

/* Waiter for a buffer.  `job` runs, with `buffer` set, when a buffer is granted. */
struct waiter {
    struct job job;
    struct buffer *buffer;
    struct waiter *next;
};

/*
 * Makes a pool of at most `count` buffers of `size` bytes, allocated when first needed.  pieces
 * == 1: memory from BMI_memalloc of the method of `home`, an address that must outlive the
 * pool; else this number of segments of ordinary memory with gaps.  `fair`: the rule above
 * applies; else first come, first served.  Returns 0 or -ENOMEM.
 */
int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, int pieces,
             bool fair, struct pool **out);

/* Frees the pool.  All buffers are returned, no waiter is left, and BMI still runs. */
void pool_free(struct pool *pool);

/* Returns another buffer for a user with `own` of the share's buffers, or NULL. */
struct buffer *pool_try(struct pool *pool, struct share *share, int own);

/*
 * Gets a first buffer into waiter->buffer, or queues.  Returns 1: got one; 0: queued; -ENOMEM:
 * none can be allocated, and none is in use that could be returned.
 */
int pool_get(struct pool *pool, struct share *share, struct waiter *waiter);

/* Leaves the queue.  Returns false if the waiter has its buffer already: its job will run. */
bool pool_unwait(struct pool *pool, struct share *share, struct waiter *waiter);

/* Returns a buffer to the pool; a `fair` pool (of a server) clears its data. */
void pool_put(struct pool *pool, struct share *share, struct buffer *buffer);

/* Frees a buffer whose operation BMI did not report before its end; memory of BMI was freed by
 * BMI. */
void pool_abandon(struct buffer *buffer);

/* Returns true if a waiter would get a buffer that this share returned now. */
bool pool_wanted(struct pool *pool, const struct share *share);

/* Frees buffers that were unused since the last call.  Call periodically, from one thread. */
void pool_trim(struct pool *pool);

size_t pool_buffer_size(const struct pool *pool);
int pool_in_use(struct pool *pool);
int pool_made(struct pool *pool); /* allocated buffers, in use or not */

#endif
