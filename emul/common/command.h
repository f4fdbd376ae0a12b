/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parts of the commands emuverbs and emuelan4. `emulator` is the command's name. */
#ifndef EMUL_COMMON_COMMAND_H
#define EMUL_COMMON_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* Flushes standard output; reports a failure. Returns the exit status. */
int emul_printed(const char *emulator);
/* Maps the first `size` bytes of the segment of the process, which `is_of` recognizes by them
 * and by the process's own number; NULL, with a line on stderr. */
void *emul_segment_of(const char *emulator, const char *process, size_t size,
                      bool (*is_of)(const void *segment, int pid));
/* Creates a folder and sets a variable to its full name. */
bool emul_set_folder(const char *emulator, const char *variable, const char *name);
/* Reports an option that is unknown, or lacks its value. Returns the exit status. */
int emul_bad_option(const char *emulator, const char *option, bool known);
/* Runs the program; returns the exit status if this fails. */
int emul_run(const char *emulator, char **argv);

#endif
