/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Knobs of both emulators: settings by environment variables <PREFIX><NAME>. Each has a table
 * of rows, from which parsing, `--help` and the manual are generated. */
#ifndef EMUL_COMMON_KNOBS_H
#define EMUL_COMMON_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct emul_knob {
    const char *name, *unit, *prose;
    uint64_t def, min, max; /* of a number */
    bool text;              /* a string, empty by default */
    size_t at;              /* offset in the emulator's structure: uint64_t or const char * */
};

struct emul_knobs {
    const char *emulator, *prefix;
    const struct emul_knob *row;
    size_t count;
    const char *other; /* name of a variable that is read elsewhere; NULL: none */
};

/* Fills the structure from the environment. Reports unknown variables, at the first call, and
 * invalid or out-of-range values, whose default is used, in one line each on stderr. The
 * strings point into the environment. */
void emul_knobs_load(const struct emul_knobs *knobs, void *to);
/* Returns the number of one variable, from the current environment. */
uint64_t emul_knob_now(const struct emul_knobs *knobs, const char *name);
/* Prints the table: variable, default, unit, meaning. */
void emul_knobs_help(const struct emul_knobs *knobs, FILE *out);

#endif
