/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pool {
    struct workers *workers;
    BMI_addr_t home;
    size_t size;
    int limit;
    bool clear;
    pthread_mutex_t lock; /* protects the following fields */
    int made, used;
    struct buffer *spare;
    struct waiter *first, **last;
};

int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, bool clear,
             struct pool **out)
{
    struct pool *pool = malloc(sizeof *pool);

    if (pool == NULL)
        return -ENOMEM;
    *pool = (struct pool){.workers = workers,
                          .home = home,
                          .size = size,
                          .limit = count,
                          .clear = clear,
                          .last = &pool->first};
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return 0;
}

static void buffer_free(const struct pool *pool, struct buffer *buffer)
{
    BMI_memfree(pool->home, buffer->bytes, (bmi_size_t)pool->size, BMI_SEND);
    free(buffer);
}

static struct buffer *buffer_new(const struct pool *pool)
{
    struct buffer *buffer = calloc(1, sizeof *buffer);

    if (buffer != NULL)
        buffer->bytes = BMI_memalloc(pool->home, (bmi_size_t)pool->size, BMI_SEND);
    if (buffer != NULL && buffer->bytes == NULL) {
        free(buffer);
        buffer = NULL;
    }
    return buffer;
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
    memset(buffer->bytes, 0, buffer->filled);
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
