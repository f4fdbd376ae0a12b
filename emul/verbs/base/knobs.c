/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parsing and printing of the knobs: both walk the one table. */
#include "emul/verbs/base/knobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Names that others read: emuverbs, which library it loads; stop.c, whom it tells. */
static const char *const others[] = {"LIBRARY", "STOP_FD"};

static bool is_known(const char *name, size_t length)
{
    static const char *const knobs[] = {
#define X(field, var, def, min, max, unit, prose) #var,
        EMU_NUMBERS(X)
#undef X
#define X(field, var, unit, prose) #var,
            EMU_STRINGS(X)
#undef X
    };

    for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++)
        if (strlen(knobs[i]) == length && memcmp(knobs[i], name, length) == 0)
            return true;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strlen(others[i]) == length && memcmp(others[i], name, length) == 0)
            return true;
    return false;
}

/* Tells of variables that look like knobs and are none. */
static void warn_of_unknown(void)
{
    for (char **at = environ; at && *at; at++) {
        const char *name = *at + strlen(PREFIX);

        if (strncmp(*at, PREFIX, strlen(PREFIX)) != 0)
            continue;
        size_t length = strcspn(name, "=");
        if (!is_known(name, length))
            fprintf(stderr,
                    "emuverbs: " PREFIX "%.*s: there is no such variable; ignored; "
                    "emuverbs --help lists them\n",
                    (int)length, name);
    }
}

void emu_knobs_load(struct emu_knobs *k)
{
    warn_of_unknown();
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
