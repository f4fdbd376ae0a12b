/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>

#include "op/op.h"

#define INDEX_MASK ((1u << RME_OP_INDEX_BITS) - 1)

#define BIT(state) (1u << RME_OP_##state)

/* Permitted next states of each state.  doc/architecture.md has the diagram. */
const unsigned rme_op_steps[RME_OP_STATE_COUNT] = {
    [RME_OP_FREE] = BIT(QUEUED) | BIT(POSTED) | BIT(MOVING),
    [RME_OP_QUEUED] = BIT(RTS) | BIT(MOVING) | BIT(ENDING) | BIT(DONE),
    [RME_OP_POSTED] = BIT(INVITING) | BIT(TARGET) | BIT(MOVING) | BIT(ENDING) | BIT(DONE),
    [RME_OP_INVITING] = BIT(POSTED) | BIT(TARGET) | BIT(CANCELLING) | BIT(ENDING),
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

const char *rme_op_kind_name(enum rme_op_kind kind)
{
    static const char *const names[] = {
#define RME_OP_NAME(id, name) [RME_OP_##id] = name,
        RME_OP_KINDS(RME_OP_NAME)
#undef RME_OP_NAME
    };

    return names[kind];
}

void rme_op_table_init(struct rme_op_table *table)
{
    table->nchunk = 0;
    table->live = 0;
    list_init(&table->free);
}

void rme_op_drop_segs(struct rme_op *op)
{
    if (op->seg != op->own_seg)
        free(op->seg);
    op->seg = op->own_seg;
    op->seg_room = RME_OP_INLINE_SEGS;
}

void rme_op_table_clear(struct rme_op_table *table)
{
    for (uint32_t c = 0; c < table->nchunk; c++) {
        for (uint32_t i = 0; i < RME_OP_CHUNK; i++)
            rme_op_drop_segs(&table->chunk[c][i]);
        free(table->chunk[c]);
        table->chunk[c] = NULL;
    }
    rme_op_table_init(table);
}

/* Adds a chunk of free ops.  Index 0 is never used, so no id is 0. */
static bool grow(struct rme_op_table *table)
{
    struct rme_op *chunk;
    uint32_t c = table->nchunk;

    if (c == sizeof(table->chunk) / sizeof(table->chunk[0]))
        return false;
    chunk = calloc(RME_OP_CHUNK, sizeof(*chunk));
    if (chunk == NULL)
        return false;
    for (uint32_t i = 0; i < RME_OP_CHUNK; i++) {
        struct rme_op *op = &chunk[i];

        op->id = c * RME_OP_CHUNK + i;
        op->state = RME_OP_FREE;
        op->seg = op->own_seg;
        op->seg_room = RME_OP_INLINE_SEGS;
        list_init(&op->of_peer);
        list_init(&op->link);
        list_init(&op->match.same);
        if (c != 0 || i != 0)
            list_add_tail(&op->link, &table->free);
    }
    table->chunk[c] = chunk;
    table->nchunk++;
    return true;
}

struct rme_op *rme_op_find_free(struct rme_op_table *table, uint32_t nseg)
{
    struct rme_op *op;
    struct rme_seg *seg;

    if (list_empty(&table->free) && !grow(table))
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

static struct rme_op *at_index(const struct rme_op_table *table, uint32_t index)
{
    if (index / RME_OP_CHUNK >= table->nchunk)
        return NULL;
    return &table->chunk[index / RME_OP_CHUNK][index % RME_OP_CHUNK];
}

struct rme_op *rme_op_find(const struct rme_op_table *table, rme_id id)
{
    struct rme_op *op = at_index(table, (uint32_t)id & INDEX_MASK);

    return op != NULL && op->id == id && op->state != RME_OP_FREE ? op : NULL;
}
