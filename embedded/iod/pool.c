/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_GAP 192u /* bytes between the segments of a buffer: not a multiple of a page */

struct pool {
    struct workers *workers;
    BMI_addr_t home;
    size_t size;
    int limit, pieces;
    bool clear;
    pthread_mutex_t lock; /* protects the following fields */
    int made, used;
    struct buffer *spare;
    struct waiter *first, **last;
};

int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, int pieces,
             bool clear, struct pool **out)
{
    struct pool *pool = malloc(sizeof *pool);

    if (pool == NULL)
        return -ENOMEM;
    *pool = (struct pool){.workers = workers,
                          .home = home,
                          .size = size,
                          .limit = count,
                          .pieces = pieces,
                          .clear = clear,
                          .last = &pool->first};
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

/* Allocates a block for all segments; all but the last have the same length. */
static struct buffer *buffer_new(const struct pool *pool)
{
    struct buffer *buffer = calloc(1, sizeof *buffer);
    size_t step = pool->size / (size_t)pool->pieces;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (buffer == NULL)
        return NULL;
    buffer->memory.pieces = pool->pieces;
    buffer->memory.piece = calloc((size_t)pool->pieces, sizeof *buffer->memory.piece);
    if (buffer->memory.piece == NULL)
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
    if (buffer->block == NULL)
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

/* Returns a spare or new buffer, with the lock held; NULL: none is left, or no memory. */
static struct buffer *take(struct pool *pool)
{
    struct buffer *buffer = pool->spare;

    if (buffer != NULL)
        pool->spare = buffer->next;
    else if (pool->made < pool->limit && (buffer = buffer_new(pool)) != NULL)
        pool->made++;
    pool->used += buffer != NULL;
    return buffer;
}

struct buffer *pool_try(struct pool *pool)
{
    struct buffer *buffer;

    pthread_mutex_lock(&pool->lock);
    buffer = pool->first != NULL ? NULL : take(pool);
    pthread_mutex_unlock(&pool->lock);
    return buffer;
}

int pool_get(struct pool *pool, struct waiter *waiter)
{
    int result = 1;

    pthread_mutex_lock(&pool->lock);
    waiter->next = NULL;
    waiter->buffer = pool->first != NULL ? NULL : take(pool);
    if (waiter->buffer == NULL && pool->used == 0) {
        result = -ENOMEM;
    } else if (waiter->buffer == NULL) {
        *pool->last = waiter;
        pool->last = &waiter->next;
        result = 0;
    }
    pthread_mutex_unlock(&pool->lock);
    return result;
}

/* Removes the waiter at this place of the queue, with the lock held. */
static void leave(struct pool *pool, struct waiter **at)
{
    *at = (*at)->next;
    if (*at == NULL)
        pool->last = at;
}

bool pool_unwait(struct pool *pool, struct waiter *waiter)
{
    struct waiter **at = &pool->first;
    bool found;

    pthread_mutex_lock(&pool->lock);
    while (*at != NULL && *at != waiter)
        at = &(*at)->next;
    found = *at != NULL;
    if (found)
        leave(pool, at);
    pthread_mutex_unlock(&pool->lock);
    return found;
}

/* Clears a buffer, because a client could otherwise read the data of another one: a sender may
 * announce more than it writes. */
static void clear(struct buffer *buffer)
{
    size_t left = buffer->filled;

    for (int i = 0; i < buffer->memory.pieces && left > 0; i++) {
        const struct iovec *piece = &buffer->memory.piece[i];
        size_t step = piece->iov_len < left ? piece->iov_len : left;

        memset(piece->iov_base, 0, step);
        left -= step;
    }
    buffer->filled = 0;
}

void pool_put(struct pool *pool, struct buffer *buffer)
{
    struct waiter *waiter;

    if (pool->clear)
        clear(buffer);
    pthread_mutex_lock(&pool->lock);
    waiter = pool->first;
    if (waiter != NULL) {
        waiter->buffer = buffer;
        leave(pool, &pool->first);
    } else {
        buffer->next = pool->spare;
        pool->spare = buffer;
        pool->used--;
    }
    pthread_mutex_unlock(&pool->lock);
    if (waiter != NULL)
        workers_add(pool->workers, &waiter->job);
}

static void free_spare(struct pool *pool)
{
    while (pool->spare != NULL) {
        struct buffer *buffer = pool->spare;

        pool->spare = buffer->next;
        pool->made--;
        buffer_free(pool, buffer);
    }
}

void pool_trim(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    if (pool->used == 0)
        free_spare(pool);
    pthread_mutex_unlock(&pool->lock);
}

void pool_free(struct pool *pool)
{
    free_spare(pool);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
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
