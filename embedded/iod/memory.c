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
    pthread_mutex_t lock; /* protects all fields, and references */
    uint64_t limit, used;
    struct spare *spare; /* freed chunks, not part of `used` */
};

struct memory_file {
    struct memory *memory;
    unsigned references;
    uint64_t size, bytes, chunks; /* bytes: as counted in `used` */
    char *chunk[];
};

struct memory *memory_new(uint64_t limit)
{
    struct memory *memory = calloc(1, sizeof *memory);

    if (memory == NULL)
        return NULL;
    memory->limit = limit;
    pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

void memory_free(struct memory *memory)
{
    while (memory->spare != NULL) {
        struct spare *next = memory->spare->next;

        free(memory->spare);
        memory->spare = next;
    }
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

static void *take_chunk(struct memory *memory)
{
    void *chunk = memory->spare;

    if (chunk != NULL)
        memory->spare = memory->spare->next;
    else if (posix_memalign(&chunk, 4096, MEMORY_CHUNK) != 0)
        chunk = NULL;
    return chunk;
}

/* Frees a file, with the lock held. */
static void file_free(struct memory_file *file)
{
    struct memory *memory = file->memory;

    for (uint64_t i = 0; i < file->chunks; i++) {
        struct spare *spare = (struct spare *)(void *)file->chunk[i];

        spare->next = memory->spare;
        memory->spare = spare;
    }
    memory->used -= file->bytes;
    free(file);
}

/* Makes a file of so many chunks, with the lock held. */
static int file_new(struct memory *memory, uint64_t chunks, struct memory_file **out)
{
    uint64_t table = sizeof **out + chunks * sizeof(char *);
    uint64_t bytes = table + chunks * MEMORY_CHUNK;
    struct memory_file *file;

    if (bytes > memory->limit - memory->used)
        return -EXFULL;
    file = calloc(1, table);
    if (file == NULL)
        return -ENOMEM;
    *file = (struct memory_file){.memory = memory, .references = 1, .bytes = bytes};
    memory->used += bytes;
    for (; file->chunks < chunks; file->chunks++)
        if ((file->chunk[file->chunks] = take_chunk(memory)) == NULL) {
            file_free(file);
            return -ENOMEM;
        }
    *out = file;
    return 0;
}

int memory_file_new(struct memory *memory, uint64_t size, struct memory_file **out)
{
    int error;

    pthread_mutex_lock(&memory->lock);
    error = file_new(memory, (size + MEMORY_CHUNK - 1) / MEMORY_CHUNK, out);
    pthread_mutex_unlock(&memory->lock);
    if (!error)
        (*out)->size = size;
    return error;
}

void memory_file_get(struct memory_file *file)
{
    pthread_mutex_lock(&file->memory->lock);
    file->references++;
    pthread_mutex_unlock(&file->memory->lock);
}

void memory_file_put(struct memory_file *file)
{
    struct memory *memory = file != NULL ? file->memory : NULL;

    if (file == NULL)
        return;
    pthread_mutex_lock(&memory->lock);
    if (--file->references == 0)
        file_free(file);
    pthread_mutex_unlock(&memory->lock);
}

int memory_move(struct memory_file *file, uint64_t offset, char *bytes, uint64_t length,
                bool write)
{
    if (offset > file->size || length > file->size - offset)
        return -EINVAL;
    for (uint64_t step; length; length -= step, offset += step, bytes += step) {
        char *at = file->chunk[offset / MEMORY_CHUNK] + offset % MEMORY_CHUNK;

        step = MEMORY_CHUNK - offset % MEMORY_CHUNK;
        step = step < length ? step : length;
        memcpy(write ? at : bytes, write ? bytes : at, step);
    }
    return 0;
}
