/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pending hints: ranges that the host announced.  rme_mreg_warm looks at the oldest, and
 * consumes the hint when its region is entered into the index (mreg_cache.c).  A hint that was
 * dropped by then, because its memory was unmapped or discarded or its use has begun, registers
 * nothing.
 */
#include <string.h>

#include "memory/mreg_int.h"

void mreg_hint_add(struct rme_mreg *mreg, uintptr_t start, size_t length, unsigned access)
{
    uint64_t bound = mreg->config.max_bytes / HINT_SHARE;

    pthread_mutex_lock(&mreg->lock);
    if (mreg->hints < HINTS && mreg->hint_bytes < bound) {
        struct hint *hint = &mreg->hint[mreg->hints];

        hint->start = start;
        hint->length =
            length < bound - mreg->hint_bytes ? length : (size_t)(bound - mreg->hint_bytes);
        hint->access = access;
        mreg->hint_bytes += hint->length;
        atomic_store_explicit(&mreg->hints, mreg->hints + 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&mreg->lock);
}

static void remove_hint(struct rme_mreg *mreg, unsigned at)
{
    struct hint *hint = &mreg->hint[at];

    mreg->hint_bytes -= hint->length;
    atomic_store_explicit(&mreg->hints, mreg->hints - 1, memory_order_relaxed);
    memmove(hint, hint + 1, (mreg->hints - at) * sizeof(*hint));
}

bool rme_mreg_wants_warming(const struct rme_mreg *mreg)
{
    return atomic_load_explicit(&mreg->hints, memory_order_relaxed) != 0;
}

bool mreg_hint_oldest(struct rme_mreg *mreg, struct hint *out)
{
    bool any;

    pthread_mutex_lock(&mreg->lock);
    any = mreg->hints > 0;
    if (any)
        *out = mreg->hint[0];
    pthread_mutex_unlock(&mreg->lock);
    return any;
}

bool mreg_hint_take(struct rme_mreg *mreg, const struct hint *hint)
{
    for (unsigned i = 0; i < mreg->hints; i++) {
        const struct hint *there = &mreg->hint[i];

        if (there->start != hint->start || there->length != hint->length ||
            there->access != hint->access)
            continue;
        remove_hint(mreg, i);
        return rme_itree_overlap(&mreg->index, hint->start, hint->start + hint->length) == NULL;
    }
    return false;
}

void mreg_hints_drop(struct rme_mreg *mreg, uintptr_t start, uintptr_t end)
{
    for (unsigned i = mreg->hints; i-- > 0;)
        if (mreg->hint[i].start < end && mreg->hint[i].start + mreg->hint[i].length > start)
            remove_hint(mreg, i);
}
