/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "op/op.h"

#define BIT(state) (1u << RME_OP_##state)

/* Permitted next states of each state.  doc/architecture.md explains the states. */
const unsigned rme_op_steps[RME_OP_STATE_COUNT] = {
    [RME_OP_FREE] = BIT(QUEUED) | BIT(POSTED),
    [RME_OP_QUEUED] = BIT(RTS) | BIT(MOVING) | BIT(ENDING) | BIT(DONE),
    [RME_OP_POSTED] = BIT(INVITING) | BIT(TARGET) | BIT(MOVING) | BIT(ENDING) | BIT(DONE),
    [RME_OP_INVITING] = BIT(POSTED) | BIT(CANCELLING) | BIT(ENDING),
    [RME_OP_RTS] = BIT(TARGET) | BIT(MOVING) | BIT(CANCELLING) | BIT(ENDING),
    [RME_OP_TARGET] = BIT(CANCELLING) | BIT(ENDING),
    [RME_OP_MOVING] = BIT(TARGET) | BIT(CANCELLING) | BIT(ENDING),
    [RME_OP_CANCELLING] = BIT(ENDING),
    [RME_OP_ENDING] = BIT(DONE) | BIT(FREE),
    [RME_OP_DONE] = BIT(FREE),
};

#undef BIT

const char *rme_op_state_name(enum rme_op_state state)
{
    static const char *const names[RME_OP_STATE_COUNT] = {
#define RME_OP_NAME(id, name, text) [RME_OP_##id] = name,
        RME_OP_STATES(RME_OP_NAME)
#undef RME_OP_NAME
    };

    return names[state];
}

void rme_op_table_init(struct rme_op_table *table, const void *host, size_t host_size)
{
    memset(table, 0, sizeof(*table));
    table->host = host;
    table->host_size = host != NULL ? host_size : sizeof(rme_id);
    table->stride = sizeof(struct rme_op) + table->host_size;
    list_init(&table->free);
}

void rme_op_drop_segs(struct rme_op *op)
{
    if (op->seg != op->own_seg)
        free(op->seg);
    op->seg = op->own_seg;
    op->seg_room = RME_OP_INLINE_SEGS;
}

static struct rme_op *op_at(const struct rme_op_table *table, uint32_t c, size_t i)
{
    return (struct rme_op *)(void *)(table->chunk[c] + i * table->stride);
}

void rme_op_table_clear(struct rme_op_table *table)
{
    for (uint32_t c = 0; c < table->nchunk; c++) {
        for (size_t i = 0; i < RME_OP_CHUNK << c; i++)
            rme_op_drop_segs(op_at(table, c, i));
        free(table->chunk[c]);
    }
    rme_op_table_init(table, table->host, table->host_size);
}

/* Adds a chunk of free ops. */
static void grow(struct rme_op_table *table)
{
    uint32_t c = table->nchunk;
    size_t count = RME_OP_CHUNK << c;

    if (c == RME_OP_CHUNKS)
        return;
    table->chunk[c] = calloc(count, table->stride);
    if (table->chunk[c] == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        struct rme_op *op = op_at(table, c, i);

        op->id = (uintptr_t)(op + 1);
        op->state = RME_OP_FREE;
        op->seg = op->own_seg;
        op->seg_room = RME_OP_INLINE_SEGS;
        list_init(&op->of_peer);
        list_init(&op->match.same);
        list_add_tail(&op->link, &table->free);
        if (table->host != NULL)
            memcpy(rme_op_host(op), table->host, table->host_size);
    }
    table->nchunk++;
    table->room += count;
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
        uint64_t at = id - sizeof(struct rme_op) - (uintptr_t)table->chunk[c];

        if (at < (RME_OP_CHUNK << c) * table->stride) {
            struct rme_op *op = op_at(table, c, at / table->stride);

            return op->id == id && op->state != RME_OP_FREE ? op : NULL;
        }
    }
    return NULL;
}
