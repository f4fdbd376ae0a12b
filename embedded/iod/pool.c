/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE_GAP 192u /* bytes between the pieces of a buffer: not a multiple of a page */

struct pool {
    struct workers *workers;
    BMI_addr_t home;
    size_t size;
    int limit;
    int pieces;
    pthread_mutex_t lock;
    int made;
    int used;
    struct buffer *spare;
    struct waiter *first, *last;
};

int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, int pieces,
             struct pool **out)
{
    struct pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return -ENOMEM;
    pool->workers = workers;
    pool->home = home;
    pool->size = size;
    pool->limit = count;
    pool->pieces = pieces;
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return 0;
}

static void buffer_free(const struct pool *pool, struct buffer *buffer)
{
    if (buffer->memory.type == BMI_PRE_ALLOC)
        BMI_memfree(pool->home, buffer->block, (bmi_size_t)pool->size, BMI_SEND);
    else
        free(buffer->block);
    free(buffer->memory.piece);
    free(buffer);
}

/* One block for all pieces; each piece but the last has the same length. */
static struct buffer *buffer_new(const struct pool *pool)
{
    struct buffer *buffer = calloc(1, sizeof *buffer);
    size_t step = pool->size / (size_t)pool->pieces;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (!buffer)
        return NULL;
    buffer->memory.pieces = pool->pieces;
    buffer->memory.piece = calloc((size_t)pool->pieces, sizeof *buffer->memory.piece);
    if (!buffer->memory.piece)
        goto no_pieces;
    if (pool->pieces == 1) {
        buffer->memory.type = BMI_PRE_ALLOC;
        buffer->block = BMI_memalloc(pool->home, (bmi_size_t)pool->size, BMI_SEND);
    } else {
        buffer->memory.type = BMI_EXT_ALLOC;
        if (posix_memalign(&buffer->block, page,
                           pool->size + (size_t)pool->pieces * PIECE_GAP) != 0)
            buffer->block = NULL;
    }
    if (!buffer->block)
        goto no_block;
    for (int i = 0; i < pool->pieces; i++) {
        buffer->memory.piece[i].iov_base =
            (char *)buffer->block + (size_t)i * (step + PIECE_GAP);
        buffer->memory.piece[i].iov_len = step;
    }
    buffer->memory.piece[pool->pieces - 1].iov_len =
        pool->size - step * (size_t)(pool->pieces - 1);
    return buffer;

no_block:
    free(buffer->memory.piece);
no_pieces:
    free(buffer);
    return NULL;
}

void pool_free(struct pool *pool)
{
    while (pool->spare) {
        struct buffer *buffer = pool->spare;
        pool->spare = buffer->next;
        buffer_free(pool, buffer);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* With the lock held. */
static struct buffer *take(struct pool *pool)
{
    struct buffer *buffer = pool->spare;

    if (buffer) {
        pool->spare = buffer->next;
    } else if (pool->made < pool->limit) {
        buffer = buffer_new(pool);
        if (buffer)
            pool->made++;
    }
    if (buffer)
        pool->used++;
    return buffer;
}

struct buffer *pool_try(struct pool *pool)
{
    struct buffer *buffer = NULL;

    pthread_mutex_lock(&pool->lock);
    if (!pool->first)
        buffer = take(pool);
    pthread_mutex_unlock(&pool->lock);
    return buffer;
}

int pool_get(struct pool *pool, struct waiter *waiter)
{
    int result = 1;

    pthread_mutex_lock(&pool->lock);
    waiter->next = NULL;
    waiter->buffer = pool->first ? NULL : take(pool);
    if (!waiter->buffer && pool->used == 0) {
        result = -ENOMEM;
    } else if (!waiter->buffer) {
        if (pool->first)
            pool->last->next = waiter;
        else
            pool->first = waiter;
        pool->last = waiter;
        result = 0;
    }
    pthread_mutex_unlock(&pool->lock);
    return result;
}

bool pool_unwait(struct pool *pool, struct waiter *waiter)
{
    struct waiter *before = NULL;
    bool found = false;

    pthread_mutex_lock(&pool->lock);
    for (struct waiter *at = pool->first; at && !found; before = at, at = at->next) {
        if (at != waiter)
            continue;
        if (before)
            before->next = at->next;
        else
            pool->first = at->next;
        if (pool->last == at)
            pool->last = before;
        found = true;
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

void pool_put(struct pool *pool, struct buffer *buffer)
{
    struct waiter *waiter;

    pthread_mutex_lock(&pool->lock);
    waiter = pool->first;
    if (waiter) {
        pool->first = waiter->next;
        waiter->buffer = buffer;
    } else {
        buffer->next = pool->spare;
        pool->spare = buffer;
        pool->used--;
    }
    pthread_mutex_unlock(&pool->lock);
    if (waiter)
        workers_add(pool->workers, &waiter->job);
}

bool pool_wanted(struct pool *pool)
{
    bool wanted;

    pthread_mutex_lock(&pool->lock);
    wanted = pool->first != NULL;
    pthread_mutex_unlock(&pool->lock);
    return wanted;
}

size_t pool_buffer_size(const struct pool *pool)
{
    return pool->size;
}

int pool_in_use(struct pool *pool)
{
    int used;

    pthread_mutex_lock(&pool->lock);
    used = pool->used;
    pthread_mutex_unlock(&pool->lock);
    return used;
}
