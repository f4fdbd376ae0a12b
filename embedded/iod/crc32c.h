/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* crc32c.h - the check sum of everything that is stored: CRC-32C, by the processor's own
 * instructions where it has them (ISA-L). */
#ifndef IOD_CRC32C_H
#define IOD_CRC32C_H

#include <isa-l/crc.h>
#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, which is 0 at first.  At most 2 GiB at once. */
static inline uint32_t crc32c(uint32_t crc, const void *data, size_t length)
{
    return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)length, ~crc);
}

#endif
