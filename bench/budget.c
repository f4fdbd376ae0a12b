/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/budget.h"

bool budget_take(struct budget *budget, uint64_t bytes)
{
    uint64_t used = atomic_load(&budget->used);

    if (bytes > budget->limit / 2)
        return false;
    do {
        if (bytes > budget->limit - used)
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
    return true;
}

void budget_give(struct budget *budget, uint64_t bytes)
{
    atomic_fetch_sub(&budget->used, bytes);
}
