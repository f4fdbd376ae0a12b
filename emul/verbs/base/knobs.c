/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parsing and printing of the knobs: both walk the one table. */
#include "emul/verbs/base/knobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "EMUVERBS_"

static uint64_t number(const char *var, uint64_t def, uint64_t min, uint64_t max)
{
    const char *text = getenv(var);
    char *end;

    if (!text || !*text)
        return def;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-' || v < min || v > max) {
        fprintf(stderr,
                "emuverbs: %s=%s is not a number from %" PRIu64 " to %" PRIu64
                "; using the default %" PRIu64 "\n",
                var, text, min, max, def);
        return def;
    }
    return v;
}

void emu_knobs_load(struct emu_knobs *k)
{
    memset(k, 0, sizeof(*k));
#define X(field, var, def, min, max, unit, prose) k->field = number(PREFIX #var, def, min, max);
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
                "emuverbs: EMUVERBS_MTU=%" PRIu64 " is no MTU of InfiniBand; using 4096\n",
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
