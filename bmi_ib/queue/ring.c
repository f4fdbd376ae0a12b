/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include "bmi_ib/ring.h"

int ib_ring_init(struct ib_ring *r, uint32_t depth)
{
    uint32_t slots = 1;
    while (slots < depth)
        slots *= 2;
    *r = (struct ib_ring){.mask = slots - 1, .depth = depth};
    r->slot = calloc(slots, sizeof(*r->slot));
    return r->slot ? 0 : -ENOMEM;
}

void ib_ring_fini(struct ib_ring *r)
{
    free(r->slot);
    *r = (struct ib_ring){.slot = NULL};
}
