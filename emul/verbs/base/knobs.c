/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/verbs/base/knobs.h"

#include <inttypes.h>

#include "emul/common/knobs.h"

static const struct emul_knob rows[] = {
#define X(field, var, def, min, max, unit, prose)                                              \
    {#var, unit, prose, def, min, max, false, offsetof(struct emu_knobs, field)},
    EMU_NUMBERS(X)
#undef X
#define X(field, var, unit, prose)                                                             \
    {#var, unit, prose, 0, 0, 0, true, offsetof(struct emu_knobs, field)},
        EMU_STRINGS(X)
#undef X
};

/* LIBRARY is read by the command. */
static const struct emul_knobs knobs = {"emuverbs", "EMUVERBS_", rows,
                                        sizeof(rows) / sizeof(rows[0]), "LIBRARY"};

void emu_knobs_load(struct emu_knobs *k)
{
    emul_knobs_load(&knobs, k);
    if (k->mtu & (k->mtu - 1)) {
        fprintf(stderr,
                "emuverbs: EMUVERBS_MTU=%" PRIu64 " is not an InfiniBand MTU; using 4096\n",
                k->mtu);
        k->mtu = 4096;
    }
}

void emu_knobs_help(FILE *out)
{
    emul_knobs_help(&knobs, out);
}
