/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/common/knobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *value_of(const struct emul_knobs *k, const struct emul_knob *row)
{
    char var[64];

    snprintf(var, sizeof(var), "%s%s", k->prefix, row->name);
    return getenv(var);
}

static uint64_t number(const struct emul_knobs *k, const struct emul_knob *row)
{
    const char *text = value_of(k, row);
    char *end;

    if (text == NULL || !*text)
        return row->def;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-' || n < row->min || n > row->max) {
        fprintf(stderr,
                "%s: %s%s=%s is not a number from %" PRIu64 " to %" PRIu64
                "; using the default %" PRIu64 "\n",
                k->emulator, k->prefix, row->name, text, row->min, row->max, row->def);
        return row->def;
    }
    return n;
}

static const struct emul_knob *row_of(const struct emul_knobs *k, const char *name,
                                      size_t length)
{
    for (size_t i = 0; i < k->count; i++)
        if (strlen(k->row[i].name) == length && memcmp(k->row[i].name, name, length) == 0)
            return &k->row[i];
    return NULL;
}

static void warn_of_unknown(const struct emul_knobs *k)
{
    static atomic_bool told;
    size_t prefix = strlen(k->prefix);

    if (atomic_exchange(&told, true))
        return;
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        const char *name = *at + prefix;
        size_t length;

        if (strncmp(*at, k->prefix, prefix) != 0)
            continue;
        length = strcspn(name, "=");
        if (row_of(k, name, length) == NULL &&
            (k->other == NULL || strlen(k->other) != length ||
             memcmp(name, k->other, length) != 0))
            fprintf(stderr,
                    "%s: unknown variable %s%.*s ignored; %s --help lists all variables\n",
                    k->emulator, k->prefix, (int)length, name, k->emulator);
    }
}

void emul_knobs_load(const struct emul_knobs *k, void *to)
{
    warn_of_unknown(k);
    for (size_t i = 0; i < k->count; i++) {
        const struct emul_knob *row = &k->row[i];
        void *at = (char *)to + row->at;
        const char *text = row->text ? value_of(k, row) : NULL;

        if (row->text)
            *(const char **)at = text != NULL ? text : "";
        else
            *(uint64_t *)at = number(k, row);
    }
}

uint64_t emul_knob_now(const struct emul_knobs *k, const char *name)
{
    return number(k, row_of(k, name, strlen(name)));
}

void emul_knobs_help(const struct emul_knobs *k, FILE *out)
{
    for (size_t i = 0; i < k->count; i++) {
        const struct emul_knob *row = &k->row[i];
        char var[64];

        snprintf(var, sizeof(var), "%s%s", k->prefix, row->name);
        if (row->text)
            fprintf(out, "  %-24s default unset (%s)\n      %s\n", var, row->unit, row->prose);
        else
            fprintf(out, "  %-24s default %" PRIu64 "%s%s\n      %s\n", var, row->def,
                    row->unit[0] ? " " : "", row->unit, row->prose);
    }
}
