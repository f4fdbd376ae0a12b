/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* emul/knobs.h - environment variables of both emulators; each has its own table. */
#ifndef EMUL_KNOBS_H
#define EMUL_KNOBS_H

#include <stddef.h>
#include <stdint.h>

/* Variables <PREFIX><NAME> of an emulator. */
struct emul_variables {
    const char *emulator, *prefix;
    const char *const *names;
    size_t count;
};

/* Returns the value of the variable <PREFIX><NAME>. If the value is not a number from `min` to
 * `max`, writes a line to stderr and returns `def`. */
uint64_t emul_number(const struct emul_variables *v, const char *name, uint64_t def,
                     uint64_t min, uint64_t max);

/* Reports unknown variables that begin with the prefix. */
void emul_warn_of_unknown(const struct emul_variables *v);

#endif
