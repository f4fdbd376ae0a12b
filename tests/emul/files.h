/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The program's own files, of each kind that a library with descriptors of its own would change
 * by mistake, and its mappings. */
#ifndef TESTS_EMUL_FILES_H
#define TESTS_EMUL_FILES_H

#include <stdbool.h>

enum file_kind { FILE_DATA, FILE_COUNT, FILE_TIMER, FILE_SET, FILE_KINDS };

/* Returns a new file, or -1. `readable_fd`, which is not to be read, is in a FILE_SET. */
int program_file(enum file_kind kind, int readable_fd);
/* Returns whether nobody has changed it. Once per file. */
bool file_is_untouched(enum file_kind kind, int fd);

/* Counts the mapped segments, memfds of this name, and those that a core dump contains. */
void segments_mapped(const char *name, unsigned *all, unsigned *dumped);

#endif
