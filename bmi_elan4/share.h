/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * share.h - division of a limited resource among all processes, or among all nodes, where `vp`
 * is the number of a node.  A holder of as many as are left gets no more.  So the first holder
 * gets at most a half, the second one a half of the rest, and a few holders cannot exhaust the
 * resource.
 */
#ifndef BMI_ELAN4_SHARE_H
#define BMI_ELAN4_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "bmi_elan4/process.h"

struct elan_share {
    uint32_t most, taken;
    uint16_t of[BMI_ELAN4_MOST_VPS];
};

/* Takes one for that process.  Returns false if none may be taken now. */
static inline bool elan_share_take(struct elan_share *s, unsigned vp)
{
    if (s->of[vp] >= s->most - s->taken)
        return false;
    s->taken++;
    s->of[vp]++;
    return true;
}

static inline void elan_share_give(struct elan_share *s, unsigned vp)
{
    s->taken--;
    s->of[vp]--;
}

#endif
