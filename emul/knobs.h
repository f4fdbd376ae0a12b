/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* emul/knobs.h - what both emulators do with the environment; each has a table of its own. */
#ifndef EMUL_KNOBS_H
#define EMUL_KNOBS_H

#include <stddef.h>
#include <stdint.h>

/* The variables <PREFIX><NAME> of an emulator. */
struct emul_variables {
    const char *emulator, *prefix;
    const char *const *names;
    size_t count;
};

/* The value of the variable <PREFIX><NAME>, or `def`, with a line on stderr when the variable
 * has something else than a number from `min` to `max`. */
uint64_t emul_number(const struct emul_variables *v, const char *name, uint64_t def,
                     uint64_t min, uint64_t max);

/* Tells of variables that look like knobs and are none. */
void emul_warn_of_unknown(const struct emul_variables *v);

#endif
