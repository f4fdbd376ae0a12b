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
    int limit;
    int pieces;
    pthread_mutex_t lock;
    bool fair;
    int made;
    int used;
    struct buffer *spare;
    int spares;
    int idle;              /* minimum of `spares` since the last pool_trim() */
    struct share *waiting; /* shares with waiters; the first one is next */
};

int pool_new(struct workers *workers, BMI_addr_t home, size_t size, int count, int pieces,
             bool fair, struct pool **out)
{
    struct pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return -ENOMEM;
    pool->workers = workers;
    pool->home = home;
    pool->size = size;
    pool->limit = count;
    pool->pieces = pieces;
    pool->fair = fair;
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

void pool_abandon(struct buffer *buffer)
{
    if (buffer->memory.type != BMI_PRE_ALLOC)
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

/* ---- rules, with the lock held ---- */

/* Returns true if the share may have another buffer, for a user with `own` of its buffers. */
static bool may_have(const struct pool *pool, const struct share *share, int own)
{
    int left = pool->limit - pool->used;

    if (left == 0 || !pool->fair)
        return left > 0;
    return own == 0 ? share->held < left : share->held + own < left / 2;
}

/* Returns a spare or new buffer; NULL: no memory. */
static struct buffer *take(struct pool *pool, struct share *share)
{
    struct buffer *buffer = pool->spare;

    if (buffer) {
        pool->spare = buffer->next;
        pool->spares--;
        if (pool->spares < pool->idle)
            pool->idle = pool->spares;
    } else {
        buffer = buffer_new(pool);
        if (!buffer)
            return NULL;
        pool->made++;
    }
    pool->used++;
    share->held++;
    return buffer;
}

static void add_waiter(struct pool *pool, struct share *share, struct waiter *waiter)
{
    struct share **at = &pool->waiting;

    waiter->next = NULL;
    if (share->first) {
        share->last->next = waiter;
    } else {
        share->first = waiter;
        while (*at)
            at = &(*at)->next;
        *at = share;
        share->next = NULL;
    }
    share->last = waiter;
}

/* Removes a share without waiters from the waiting ones. */
static void settle_share(struct pool *pool, struct share *share)
{
    struct share **at = &pool->waiting;

    if (share->first)
        return;
    while (*at != share)
        at = &(*at)->next;
    *at = share->next;
}

/* Grants free buffers to waiters, in turn of their shares.  Returns the waiters that got
 * one. */
static struct waiter *grant(struct pool *pool)
{
    struct waiter *granted = NULL;
    struct share **at = &pool->waiting, *share;

    while ((share = *at)) {
        struct waiter *waiter = share->first;

        if (!may_have(pool, share, 0)) {
            at = &share->next;
            continue;
        }
        waiter->buffer = take(pool, share);
        if (!waiter->buffer)
            break;
        share->first = waiter->next;
        waiter->next = granted;
        granted = waiter;
        *at = share->next; /* to the end, if it has more waiters */
        if (share->first) {
            share->next = NULL;
            while (*at)
                at = &(*at)->next;
            *at = share;
        }
        at = &pool->waiting;
    }
    return granted;
}

/* ---- functions ---- */

struct buffer *pool_try(struct pool *pool, struct share *share, int own)
{
    struct buffer *buffer = NULL;

    pthread_mutex_lock(&pool->lock);
    if (!share->first && may_have(pool, share, own))
        buffer = take(pool, share);
    pthread_mutex_unlock(&pool->lock);
    return buffer;
}

int pool_get(struct pool *pool, struct share *share, struct waiter *waiter)
{
    int result = 1;

    pthread_mutex_lock(&pool->lock);
    waiter->next = NULL;
    waiter->buffer = share->first || !may_have(pool, share, 0) ? NULL : take(pool, share);
    if (!waiter->buffer && pool->used == 0) {
        result = -ENOMEM;
    } else if (!waiter->buffer) {
        add_waiter(pool, share, waiter);
        result = 0;
    }
    pthread_mutex_unlock(&pool->lock);
    return result;
}

bool pool_unwait(struct pool *pool, struct share *share, struct waiter *waiter)
{
    struct waiter *before = NULL;
    bool found = false;

    pthread_mutex_lock(&pool->lock);
    for (struct waiter *at = share->first; at && !found; before = at, at = at->next) {
        if (at != waiter)
            continue;
        if (before)
            before->next = at->next;
        else
            share->first = at->next;
        if (share->last == at)
            share->last = before;
        settle_share(pool, share);
        found = true;
    }
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

void pool_put(struct pool *pool, struct share *share, struct buffer *buffer)
{
    struct waiter *granted, *next;

    if (pool->fair)
        clear(buffer);

    pthread_mutex_lock(&pool->lock);
    buffer->next = pool->spare;
    pool->spare = buffer;
    pool->spares++;
    pool->used--;
    share->held--;
    granted = grant(pool);
    pthread_mutex_unlock(&pool->lock);
    for (; granted; granted = next) {
        next = granted->next;
        workers_add(pool->workers, &granted->job);
    }
}

bool pool_wanted(struct pool *pool, const struct share *share)
{
    bool wanted = false;
    int left;

    pthread_mutex_lock(&pool->lock);
    left = pool->limit - pool->used + 1;
    for (const struct share *s = pool->waiting; s && !wanted; s = s->next)
        wanted = !pool->fair || s->held - (s == share) < left;
    pthread_mutex_unlock(&pool->lock);
    return wanted;
}

void pool_trim(struct pool *pool)
{
    struct buffer *gone = NULL;

    pthread_mutex_lock(&pool->lock);
    for (; pool->idle > 0; pool->idle--) {
        struct buffer *buffer = pool->spare;

        pool->spare = buffer->next;
        pool->spares--;
        pool->made--;
        buffer->next = gone;
        gone = buffer;
    }
    pool->idle = pool->spares;
    pthread_mutex_unlock(&pool->lock);
    while (gone) {
        struct buffer *next = gone->next;

        buffer_free(pool, gone);
        gone = next;
    }
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

int pool_made(struct pool *pool)
{
    int made;

    pthread_mutex_lock(&pool->lock);
    made = pool->made;
    pthread_mutex_unlock(&pool->lock);
    return made;
}
