/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What there are so many of, for all processes, or for all nodes: then `vp` is a node's number.
 * Who has as many as are left gets no more: the first that takes all it can get has half, a
 * second one half of the other half, and so on. So nobody is without because of one, or of a
 * few, that have very many.
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

/* One for that process. False: not now. */
bool elan_share_take(struct elan_share *s, unsigned vp);
void elan_share_give(struct elan_share *s, unsigned vp);

#endif
