/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * table.c - links by handle and by QP number.
 *
 * The device and other threads name links by handle (slot and generation), so that a late
 * reference finds no link instead of freed memory.  A CQE of an SRQ names only the QP.
 *
 * Free slots form a FIFO: allocation does not search, and a handle repeats as late as possible.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"

#define GENERATIONS 0xfffu

/* Appends a slot to the free slots. */
static void slot_free(struct rme_fabric *f, uint32_t i)
{
    f->slots[i].link = NULL;
    f->slots[i].next_free = IB_SLOT_MASK;
    if (f->first_free == IB_SLOT_MASK)
        f->first_free = i;
    else
        f->slots[f->last_free].next_free = i;
    f->last_free = i;
}

/* Doubles the number of slots; no slot is free. */
static int slots_grow(struct rme_fabric *f)
{
    uint32_t n = f->nslots ? f->nslots * 2 : 16;
    if (n > IB_SLOT_MASK)
        return -ENOSPC;
    struct ib_link_slot *more = realloc(f->slots, n * sizeof(*more));
    if (!more)
        return -ENOMEM;
    memset(more + f->nslots, 0, (n - f->nslots) * sizeof(*more));
    f->slots = more;
    f->first_free = IB_SLOT_MASK;
    for (uint32_t i = f->nslots; i < n; i++)
        slot_free(f, i);
    f->nslots = n;
    return 0;
}

int ib_table_put(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    if (f->nslots == 0 || f->first_free == IB_SLOT_MASK) {
        int error = slots_grow(f);
        if (error)
            return error;
    }
    uint32_t i = f->first_free;
    struct ib_link_slot *s = &f->slots[i];
    f->first_free = s->next_free;
    s->link = l;
    s->generation = s->generation % GENERATIONS + 1;
    l->handle = (uint32_t)s->generation << IB_SLOT_BITS | i;
    return 0;
}

void ib_table_remove(struct rme_link *l)
{
    slot_free(l->f, l->handle & IB_SLOT_MASK);
}

static void hash_insert(struct rme_fabric *f, struct rme_link *l)
{
    struct rme_link **at = &f->hash[l->qp_num & (f->hash_size - 1)];
    l->hash_next = *at;
    *at = l;
}

int ib_table_put_qp(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    if (f->hash_used >= f->hash_size) {
        uint32_t old_size = f->hash_size, n = old_size ? old_size * 2 : 64;
        struct rme_link **old = f->hash, **table = calloc(n, sizeof(*table));
        if (!table)
            return -ENOMEM;
        f->hash = table;
        f->hash_size = n;
        for (uint32_t i = 0; i < old_size; i++)
            for (struct rme_link *m = old[i], *next; m; m = next) {
                next = m->hash_next;
                hash_insert(f, m);
            }
        free(old);
    }
    hash_insert(f, l);
    f->hash_used++;
    return 0;
}

void ib_table_remove_qp(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct rme_link **at = f->hash_size ? &f->hash[l->qp_num & (f->hash_size - 1)] : NULL;
    while (at && *at && *at != l)
        at = &(*at)->hash_next;
    if (at && *at) {
        *at = l->hash_next;
        f->hash_used--;
    }
}

void ib_table_free(struct rme_fabric *f)
{
    free(f->slots);
    free(f->hash);
    f->slots = NULL;
    f->hash = NULL;
}
