/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parsing and printing of the knobs; both iterate over one table. */
#include "emul/verbs/base/knobs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "emul/knobs.h"

#define PREFIX "EMUVERBS_"

static const char *const names[] = {
#define X(field, var, def, min, max, unit, prose) #var,
    EMU_NUMBERS(X)
#undef X
#define X(field, var, unit, prose) #var,
        EMU_STRINGS(X)
#undef X
    /* read elsewhere: by emuverbs (library to preload) and by stop.c (socket of the test) */
    "LIBRARY",
    "STOP_FD"};

static const struct emul_variables variables = {"emuverbs", PREFIX, names,
                                                sizeof(names) / sizeof(names[0])};

void emu_knobs_load(struct emu_knobs *k)
{
    emul_warn_of_unknown(&variables);
    memset(k, 0, sizeof(*k));
#define X(field, var, def, min, max, unit, prose)                                              \
    k->field = emul_number(&variables, #var, def, min, max);
    EMU_NUMBERS(X)
#undef X
#define X(field, var, unit, prose)                                                             \
    k->field = getenv(PREFIX #var);                                                            \
    if (!k->field)                                                                             \
        k->field = "";
    EMU_STRINGS(X)
#undef X
    if (k->mtu & (k->mtu - 1)) {
        fprintf(stderr,
                "emuverbs: EMUVERBS_MTU=%" PRIu64 " is not an InfiniBand MTU; using 4096\n",
                k->mtu);
        k->mtu = 4096;
    }
}

void emu_knobs_help(FILE *out)
{
#define X(field, var, def, min, max, unit, prose)                                              \
    fprintf(out, "  %-24s default %" PRIu64 "%s%s\n      %s\n", PREFIX #var, (uint64_t)(def),  \
            unit[0] ? " " : "", unit, prose);
    EMU_NUMBERS(X)
#undef X
#define X(field, var, unit, prose)                                                             \
    fprintf(out, "  %-24s default unset (%s)\n      %s\n", PREFIX #var, unit, prose);
    EMU_STRINGS(X)
#undef X
}
