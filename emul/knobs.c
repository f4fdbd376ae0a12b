/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Numeric environment variables, and warnings for unknown ones. */
#include "emul/knobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t emul_number(const struct emul_variables *v, const char *name, uint64_t def,
                     uint64_t min, uint64_t max)
{
    char var[64], *end;
    const char *text;

    snprintf(var, sizeof(var), "%s%s", v->prefix, name);
    text = getenv(var);
    if (!text || !*text)
        return def;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-' || n < min || n > max) {
        fprintf(stderr,
                "%s: %s=%s is not a number from %" PRIu64 " to %" PRIu64
                "; using the default %" PRIu64 "\n",
                v->emulator, var, text, min, max, def);
        return def;
    }
    return n;
}

static bool is_known(const struct emul_variables *v, const char *name, size_t length)
{
    for (size_t i = 0; i < v->count; i++)
        if (strlen(v->names[i]) == length && memcmp(v->names[i], name, length) == 0)
            return true;
    return false;
}

void emul_warn_of_unknown(const struct emul_variables *v)
{
    size_t prefix = strlen(v->prefix);

    for (char **at = environ; at && *at; at++) {
        const char *name = *at + prefix;

        if (strncmp(*at, v->prefix, prefix) != 0)
            continue;
        size_t length = strcspn(name, "=");
        if (!is_known(v, name, length))
            fprintf(stderr,
                    "%s: unknown variable %s%.*s ignored; %s --help lists all variables\n",
                    v->emulator, v->prefix, (int)length, name, v->emulator);
    }
}
