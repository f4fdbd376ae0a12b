/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool.h - the buffers of all transfers of a process: a fixed number of one size, so memory is
 * bounded whatever clients ask for.  Who finds none queues; a buffer that comes back goes to
 * somebody who waits.  A transfer that sees others waiting (pool_wanted) gives its buffer back
 * after each message, so all get their turn.
 *
 * The buffers of a server are shared by hosts, each with a `struct share`, by a rule that
 * leaves room for others whoever comes first: a share gets a further one while it holds fewer
 * than are left.  So one greedy host gets a half, two get a third each, and a host that holds
 * none finds one.  Within a share the same holds for its transfers: beyond its first buffer a
 * transfer gets more only while what it and its share hold is below half of what is left; what
 * the share may hold beyond that is for first buffers of others.
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
    size_t filled; /* its user's: the most bytes that a message has had there */
};

/* What one host has of the pool.  Zeroed at first; outlives its buffers and waiters.  Guarded
 * by the pool's lock. */
struct share {
    int held;
    struct waiter *first, *last; /* who waits */
    struct share *next;          /* of the shares where somebody waits */
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
 * pieces of ordinary memory with gaps between them.  `fair`: the rule above holds; else whoever
 * comes gets what there is.  0 or -ENOMEM.
 */
int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, int pieces,
             bool fair, struct pool **out);

/* Frees all.  Every buffer is back, nobody waits, BMI still runs. */
void pool_free(struct pool *pool);

/* A further buffer for somebody who holds `own` of the share's, or NULL. */
struct buffer *pool_try(struct pool *pool, struct share *share, int own);

/*
 * A first buffer into waiter->buffer, and queues when there is none.  1: got it; 0: queued;
 * -ENOMEM: there is none, and nobody has one that could come back.
 */
int pool_get(struct pool *pool, struct share *share, struct waiter *waiter);

/* Leaves the queue.  False when the waiter has its buffer already: then its job runs. */
bool pool_unwait(struct pool *pool, struct share *share, struct waiter *waiter);

/* Gives it back; in a server's pool, `fair`, the bytes of its user are cleared. */
void pool_put(struct pool *pool, struct share *share, struct buffer *buffer);

/* Frees a buffer whose operation BMI did not report before its end; what BMI gave has gone with
 * it. */
void pool_abandon(struct buffer *buffer);

/* Would somebody else get a buffer that this share gave back now? */
bool pool_wanted(struct pool *pool, const struct share *share);

/* Gives memory back that nobody needed since the last call.  Now and then, by one thread. */
void pool_trim(struct pool *pool);

size_t pool_buffer_size(const struct pool *pool);
int pool_in_use(struct pool *pool);
int pool_made(struct pool *pool); /* buffers that have memory, in use or not */

#endif
