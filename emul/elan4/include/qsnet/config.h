/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Properties of the processor, as queried by the network's headers. */
#ifndef QSNET_CONFIG_H
#define QSNET_CONFIG_H

#include <endian.h>

#if __BYTE_ORDER != __LITTLE_ENDIAN
#error "the emulated Elan4 is little endian"
#endif

#endif
