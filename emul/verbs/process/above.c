/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rows of the layers above, registered when the library is loaded. */
#include "emul/verbs/process/process.h"

static const struct emu_above *rows[EMU_FLOORS_ABOVE];

void emu_above_is(enum emu_floor_above floor, const struct emu_above *row)
{
    rows[floor] = row;
}

void emu_above_notified(struct emu_dev *d, const struct shm_msg *m)
{
    for (unsigned i = 0; i < EMU_FLOORS_ABOVE; i++)
        if (rows[i] != NULL && rows[i]->told != NULL)
            rows[i]->told(d, m);
}

void emu_above_untold(struct emu_dev *d)
{
    for (unsigned i = 0; i < EMU_FLOORS_ABOVE; i++)
        if (rows[i] != NULL && rows[i]->untold != NULL)
            rows[i]->untold(d);
}

void emu_above_slot_died(struct emu_dev *d, uint32_t slot)
{
    for (unsigned i = 0; i < EMU_FLOORS_ABOVE; i++)
        if (rows[i] != NULL && rows[i]->slot_died != NULL)
            rows[i]->slot_died(d, slot);
}

void emu_above_peer_died(struct emu_dev *d, struct emu_peer *p)
{
    for (unsigned i = 0; i < EMU_FLOORS_ABOVE; i++)
        if (rows[i] != NULL && rows[i]->peer_died != NULL)
            rows[i]->peer_died(d, p);
}

void emu_above_settle(struct emu_dev *d)
{
    for (unsigned i = 0; i < EMU_FLOORS_ABOVE; i++)
        if (rows[i] != NULL && rows[i]->settle != NULL)
            rows[i]->settle(d);
}

void emu_above_forked(struct emu_dev *d)
{
    for (unsigned i = 0; i < EMU_FLOORS_ABOVE; i++)
        if (rows[i] != NULL && rows[i]->forked != NULL)
            rows[i]->forked(d);
}
