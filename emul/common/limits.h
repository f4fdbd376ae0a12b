/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Explanations of limits that prevent the segment of a process. */
#ifndef EMUL_COMMON_LIMITS_H
#define EMUL_COMMON_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/* Checks RLIMIT_FSIZE: exceeding the limit would raise SIGXFSZ. `remedy`: variable and its
 * least value. */
bool emul_may_be_so_large(const char *emulator, const char *remedy, uint64_t size);
/* Explains a failed mmap() of the segment. */
void emul_print_no_room(const char *emulator, const char *remedy, uint64_t size);

#endif
