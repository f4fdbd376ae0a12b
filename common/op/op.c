/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "op/op.h"

void rme_op_table_init(struct rme_op_table *table, const void *host, size_t host_size)
{
    memset(table, 0, sizeof(*table));
    table->host = host;
    table->host_size = host != NULL ? host_size : sizeof(rme_id);
    list_init(&table->free);
}

void rme_op_drop_segs(struct rme_op *op)
{
    if (op->seg != op->own_seg)
        free(op->seg);
    op->seg = op->own_seg;
    op->seg_room = RME_OP_INLINE_SEGS;
}

/* Returns the bytes of a chunk: no other object shares its pages. */
static size_t chunk_bytes(uint32_t c)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return ((RME_OP_CHUNK << c) * sizeof(struct rme_op) + page - 1) / page * page;
}

void rme_op_table_clear(struct rme_op_table *table)
{
    for (uint32_t c = 0; c < RME_OP_CHUNKS; c++) {
        for (size_t i = 0; c < table->nchunk && i < RME_OP_CHUNK << c; i++)
            rme_op_drop_segs(&table->chunk[c][i]);
        free(table->chunk[c]);
        free(table->parts[c]);
    }
    rme_op_table_init(table, table->host, table->host_size);
}

void rme_op_shrink(struct rme_op_table *table)
{
    while (table->nchunk > RME_OP_KEEP_CHUNKS) {
        uint32_t c = --table->nchunk;

        for (size_t i = 0; i < RME_OP_CHUNK << c; i++) {
            list_del_init(&table->chunk[c][i].link);
            rme_op_drop_segs(&table->chunk[c][i]);
        }
        table->room -= RME_OP_CHUNK << c;
        /* fails if the process locked its memory, which then stays */
        (void)madvise(table->chunk[c], chunk_bytes(c), MADV_DONTNEED);
    }
}

/* Allocates a chunk, and the host's parts of its ops.  False: memory is short. */
static bool allocate(struct rme_op_table *table, uint32_t c)
{
    size_t count = RME_OP_CHUNK << c, size = table->host_size;
    void *chunk;

    if (posix_memalign(&chunk, (size_t)sysconf(_SC_PAGESIZE), chunk_bytes(c)) != 0)
        return false;
    table->parts[c] = calloc(count, size);
    if (table->parts[c] == NULL) {
        free(chunk);
        return false;
    }
    for (size_t i = 0; table->host != NULL && i < count; i++)
        memcpy(table->parts[c] + i * size, table->host, size);
    table->chunk[c] = chunk;
    return true;
}

/* Adds a chunk of free ops. */
static void grow(struct rme_op_table *table)
{
    uint32_t c = table->nchunk;

    if (c == RME_OP_CHUNKS || (table->chunk[c] == NULL && !allocate(table, c)))
        return;
    memset(table->chunk[c], 0, chunk_bytes(c));
    for (size_t i = 0; i < RME_OP_CHUNK << c; i++) {
        struct rme_op *op = &table->chunk[c][i];

        op->id = (uintptr_t)(table->parts[c] + i * table->host_size);
        op->state = RME_OP_FREE;
        op->seg = op->own_seg;
        op->seg_room = RME_OP_INLINE_SEGS;
        list_init(&op->of_peer);
        list_init(&op->match.same);
        list_add_tail(&op->link, &table->free);
    }
    table->nchunk++;
    table->room += RME_OP_CHUNK << c;
}

struct rme_op *rme_op_find_free(struct rme_op_table *table, uint32_t nseg)
{
    struct rme_op *op;
    struct rme_seg *seg;

    if (table->live + RME_OP_RESTING >= table->room)
        grow(table);
    if (list_empty(&table->free))
        return NULL;
    op = container_of(table->free.next, struct rme_op, link);
    if (nseg <= op->seg_room)
        return op;
    seg = calloc(nseg, sizeof(*seg));
    if (seg == NULL)
        return NULL;
    rme_op_drop_segs(op);
    op->seg = seg;
    op->seg_room = nseg;
    return op;
}

struct rme_op *rme_op_find(const struct rme_op_table *table, rme_id id)
{
    for (uint32_t c = 0; c < table->nchunk; c++) {
        uint64_t at = id - (uintptr_t)table->parts[c];

        if (at < (RME_OP_CHUNK << c) * table->host_size) {
            struct rme_op *op = &table->chunk[c][at / table->host_size];

            return op->id == id && op->state != RME_OP_FREE ? op : NULL;
        }
    }
    return NULL;
}
