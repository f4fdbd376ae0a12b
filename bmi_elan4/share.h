/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * share.h - division of a limited resource among all processes.  A holder of as many as are
 * left gets nothing further.  So the first holder gets at most a half, the second one a half of
 * the rest, and a few holders cannot exhaust the resource.  The processes of a node together
 * get at most three times what is left, that is three quarters, so that many processes of one
 * node cannot exhaust the resource either: without this limit, 7 unresponsive processes hold 56
 * of 64 send buffers.  Measured with three quarters: beside 30 hostile processes of a node,
 * which are renewed for 60 s, requests of other nodes take 1.1 to 2.7 times their quiet median.
 */
#ifndef BMI_ELAN4_SHARE_H
#define BMI_ELAN4_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "bmi_elan4/process.h"

struct elan_share {
    uint32_t most, taken;
    unsigned per_node; /* processes */
    uint16_t of[BMI_ELAN4_MAX_VPS], of_node[BMI_ELAN4_MAX_VPS];
};

/* Returns true if that process may take one now. */
static inline bool elan_share_left(const struct elan_share *s, unsigned vp)
{
    uint32_t left = s->most - s->taken;

    return s->of[vp] < left && s->of_node[vp / s->per_node] < 3 * left;
}

/* Takes one for that process, if elan_share_left(). */
static inline void elan_share_take(struct elan_share *s, unsigned vp)
{
    s->taken++;
    s->of[vp]++;
    s->of_node[vp / s->per_node]++;
}

static inline void elan_share_give(struct elan_share *s, unsigned vp)
{
    s->taken--;
    s->of[vp]--;
    s->of_node[vp / s->per_node]--;
}

#endif
