/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/stats.h"

const struct rme_counter_row rme_counter_rows[RME_C_COUNT] = {
#define RME_COUNTER_ROW(id, name, unit, text) [RME_C_##id] = {name, unit, text},
    RME_COUNTERS(RME_COUNTER_ROW)
#undef RME_COUNTER_ROW
};
