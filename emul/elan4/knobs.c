/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/elan4/knobs.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "emul/common/knobs.h"

int emu4_die_at = -1;
static _Atomic long die_in; /* arrivals left */

static const char *const step_names[] = {
#define X(NAME, name) #name,
    EMU4_STEPS(X)
#undef X
};

static const struct emul_knob rows[] = {
#define X(field, var, def, min, max, unit, prose)                                              \
    {#var, unit, prose, def, min, max, false, offsetof(struct emu4_knobs, field)},
    EMU4_NUMBERS(X)
#undef X
#define X(field, var, unit, prose)                                                             \
    {#var, unit, prose, 0, 0, 0, true, offsetof(struct emu4_knobs, field)},
        EMU4_STRINGS(X)
#undef X
};

static const struct emul_knobs knobs = {"emuelan4", "EMUELAN4_", rows,
                                        sizeof(rows) / sizeof(rows[0]), NULL};

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

void emu4_knobs_load(struct emu4_knobs *k)
{
    emul_knobs_load(&knobs, k);
    set_step(k->die);
}

uint64_t emu4_knobs_node(void)
{
    return emul_knob_now(&knobs, "NODE");
}

void emu4_knobs_help(FILE *out)
{
    emul_knobs_help(&knobs, out);
    fprintf(out, "\nSteps for EMUELAN4_DIE:\n ");
    for (int i = 0; i < EMU4_STEP_COUNT; i++)
        fprintf(out, " %s", step_names[i]);
    fprintf(out, "\n");
}
