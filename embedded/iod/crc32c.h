/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* crc32c.h - checksum of all stored data: CRC-32C, with processor instructions where available
 * (ISA-L). */
#ifndef IOD_CRC32C_H
#define IOD_CRC32C_H

#include <isa-l/crc.h>
#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, initially 0.  At most 2 GiB a call. */
static inline uint32_t crc32c(uint32_t crc, const void *data, size_t length)
{
    return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)length, ~crc);
}

#endif
