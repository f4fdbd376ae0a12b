/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bmi_elan4/share.h"

bool elan_share_take(struct elan_share *s, unsigned vp)
{
    if (s->of[vp] >= s->most - s->taken)
        return false;
    s->taken++;
    s->of[vp]++;
    return true;
}

void elan_share_give(struct elan_share *s, unsigned vp)
{
    s->taken--;
    s->of[vp]--;
}
