/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct spare {
    struct spare *next;
};

struct memory {
    pthread_mutex_t lock; /* protects all fields and the tables of chunks */
    uint64_t limit, used;
    struct spare *spare; /* freed chunks, not part of `used` */
};

struct memory_file {
    struct memory *memory;
    unsigned references;
    uint64_t size, chunks;
    char *chunk[]; /* NULL: zeros */
};

struct memory *memory_new(uint64_t limit)
{
    struct memory *memory = calloc(1, sizeof *memory);

    if (!memory)
        return NULL;
    memory->limit = limit;
    pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

void memory_free(struct memory *memory)
{
    while (memory->spare) {
        struct spare *next = memory->spare->next;

        free(memory->spare);
        memory->spare = next;
    }
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* Counts `bytes` if there is room, with the lock held. */
static bool charge(struct memory *memory, uint64_t bytes)
{
    if (bytes > memory->limit - memory->used)
        return false;
    memory->used += bytes;
    return true;
}

static uint64_t table_bytes(uint64_t chunks)
{
    return sizeof(struct memory_file) + chunks * sizeof(char *);
}

int memory_file_new(struct memory *memory, uint64_t size, struct memory_file **out)
{
    uint64_t chunks = (size + MEMORY_CHUNK - 1) / MEMORY_CHUNK;
    struct memory_file *file = NULL;
    bool room;

    pthread_mutex_lock(&memory->lock);
    room = charge(memory, table_bytes(chunks));
    if (room && !(file = calloc(1, table_bytes(chunks))))
        memory->used -= table_bytes(chunks);
    pthread_mutex_unlock(&memory->lock);
    if (!file)
        return room ? -ENOMEM : -EXFULL;
    file->memory = memory;
    file->references = 1;
    file->size = size;
    file->chunks = chunks;
    *out = file;
    return 0;
}

void memory_file_get(struct memory_file *file)
{
    pthread_mutex_lock(&file->memory->lock);
    file->references++;
    pthread_mutex_unlock(&file->memory->lock);
}

void memory_file_put(struct memory_file *file)
{
    struct memory *memory = file ? file->memory : NULL;
    bool last;

    if (!file)
        return;
    pthread_mutex_lock(&memory->lock);
    last = --file->references == 0;
    for (uint64_t i = 0; last && i < file->chunks; i++) {
        struct spare *spare = (struct spare *)(void *)file->chunk[i];

        if (!spare)
            continue;
        spare->next = memory->spare;
        memory->spare = spare;
        memory->used -= MEMORY_CHUNK;
    }
    if (last)
        memory->used -= table_bytes(file->chunks);
    pthread_mutex_unlock(&memory->lock);
    if (last)
        free(file);
}

/* Allocates a chunk of zeros, with the lock held.  Returns 0, -EXFULL or -ENOMEM. */
static int new_chunk(struct memory *memory, char **chunk)
{
    void *fresh = memory->spare;

    if (!charge(memory, MEMORY_CHUNK))
        return -EXFULL;
    if (fresh)
        memory->spare = memory->spare->next;
    else if (posix_memalign(&fresh, 4096, MEMORY_CHUNK) != 0)
        fresh = NULL;
    if (!fresh) {
        memory->used -= MEMORY_CHUNK;
        return -ENOMEM;
    }
    memset(fresh, 0, MEMORY_CHUNK);
    *chunk = fresh;
    return 0;
}

/* Moves bytes of one chunk. */
static int move_in_chunk(struct memory_file *file, uint64_t offset, char *bytes, size_t length,
                         bool write)
{
    char **at = &file->chunk[offset / MEMORY_CHUNK], *chunk;
    int error = 0;

    pthread_mutex_lock(&file->memory->lock);
    if (write && !*at)
        error = new_chunk(file->memory, at);
    chunk = *at;
    pthread_mutex_unlock(&file->memory->lock);
    if (error)
        return error;
    if (write)
        memcpy(chunk + offset % MEMORY_CHUNK, bytes, length);
    else if (chunk)
        memcpy(bytes, chunk + offset % MEMORY_CHUNK, length);
    else
        memset(bytes, 0, length);
    return 0;
}

int memory_move(struct memory_file *file, struct extent_cursor from, char *bytes,
                uint64_t length, bool write)
{
    uint64_t offset, run, step;
    int error = 0;

    while (!error && (run = extent_cursor_take(&from, length, &offset)) > 0) {
        if (offset > file->size || run > file->size - offset)
            return -EINVAL;
        length -= run;
        for (; run && !error; run -= step, offset += step, bytes += step) {
            step = MEMORY_CHUNK - offset % MEMORY_CHUNK;
            step = step < run ? step : run;
            error = move_in_chunk(file, offset, bytes, (size_t)step, write);
        }
    }
    return error ? error : length ? -EINVAL : 0;
}

int memory_extents(struct memory_file *file, uint64_t from, size_t max,
                   struct extent_list *list, uint64_t *next)
{
    size_t most = list->count + max;
    uint64_t end;
    int error = 0;

    for (; from < file->size && list->count < most && !error; from = end) {
        uint64_t chunk = from / MEMORY_CHUNK;

        end = (chunk + 1) * MEMORY_CHUNK < file->size ? (chunk + 1) * MEMORY_CHUNK : file->size;
        if (file->chunk[chunk]) /* constant: the object is complete */
            error = extent_list_add(list, from, end - from);
    }
    *next = from;
    return error;
}
