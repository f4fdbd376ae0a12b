/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parsing and printing of the knobs; both iterate over the tables. */
#include "emul/elan4/knobs.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "emul/knobs.h"

#define PREFIX "EMUELAN4_"

int emu4_die_at = -1;
static _Atomic long die_in; /* arrivals left */

static const char *const step_names[] = {
#define X(NAME, name) #name,
    EMU4_STEPS(X)
#undef X
};

static const char *const names[] = {
#define X(field, var, def, min, max, unit, prose) #var,
    EMU4_NUMBERS(X)
#undef X
#define X(field, var, unit, prose) #var,
        EMU4_STRINGS(X)
#undef X
};

static const struct emul_variables variables = {"emuelan4", PREFIX, names,
                                                sizeof(names) / sizeof(names[0])};

/* Returns the step named by `len` characters, or -1 after a line on stderr. */
static int find_step(const char *word, size_t len)
{
    for (int i = 0; i < EMU4_STEP_COUNT; i++)
        if (strlen(step_names[i]) == len && memcmp(step_names[i], word, len) == 0)
            return i;
    fprintf(stderr, "emuelan4: unknown step %.*s; emuelan4 --help lists the steps\n", (int)len,
            word);
    return -1;
}

static void set_step(const char *text)
{
    size_t len = strcspn(text, ":");
    long n = text[len] ? atol(text + len + 1) : 1;

    atomic_store(&die_in, n > 0 ? n : 1);
    emu4_die_at = len ? find_step(text, len) : -1;
}

void emu4_die(void)
{
    if (atomic_fetch_sub(&die_in, 1) == 1)
        raise(SIGKILL);
}

static void warn_of_unknown_once(void)
{
    static atomic_bool told;

    if (!atomic_exchange(&told, true))
        emul_warn_of_unknown(&variables);
}

void emu4_knobs_load(struct emu4_knobs *k)
{
    warn_of_unknown_once();
    memset(k, 0, sizeof(*k));
#define X(field, var, def, min, max, unit, prose)                                              \
    k->field = emul_number(&variables, #var, def, min, max);
    EMU4_NUMBERS(X)
#undef X
#define X(field, var, unit, prose)                                                             \
    k->field = getenv(PREFIX #var);                                                            \
    if (!k->field)                                                                             \
        k->field = "";
    EMU4_STRINGS(X)
#undef X
    set_step(k->die);
}

uint64_t emu4_knobs_node(void)
{
    struct emu4_knobs k;

#define X(field, var, def, min, max, unit, prose)                                              \
    k.field = strcmp(#var, "NODE") == 0 ? emul_number(&variables, #var, def, min, max) : 0;
    EMU4_NUMBERS(X)
#undef X
    return k.node;
}

void emu4_knobs_help(FILE *out)
{
#define X(field, var, def, min, max, unit, prose)                                              \
    fprintf(out, "  %-24s default %" PRIu64 "%s%s\n      %s\n", PREFIX #var, (uint64_t)(def),  \
            unit[0] ? " " : "", unit, prose);
    EMU4_NUMBERS(X)
#undef X
#define X(field, var, unit, prose)                                                             \
    fprintf(out, "  %-24s default unset (%s)\n      %s\n", PREFIX #var, unit, prose);
    EMU4_STRINGS(X)
#undef X
    fprintf(out, "\nSteps for EMUELAN4_DIE:\n ");
    for (int i = 0; i < EMU4_STEP_COUNT; i++)
        fprintf(out, " %s", step_names[i]);
    fprintf(out, "\n");
}
