/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_TYPES_H
#define ELAN4_TYPES_H

#include <qsnet/types.h>

typedef int8_t E4_int8;
typedef uint8_t E4_uint8;
typedef int16_t E4_int16;
typedef uint16_t E4_uint16;
typedef int32_t E4_int32;
typedef uint32_t E4_uint32;
#ifdef __LP64__
typedef long E4_int64;
typedef unsigned long E4_uint64;
#else
typedef long long E4_int64;
typedef unsigned long long E4_uint64;
#endif

/* Address of memory of one context as used by the network interface. */
typedef E4_uint64 E4_Addr;

#define E4_DATATYPE_BYTE  0
#define E4_DATATYPE_SHORT 1
#define E4_DATATYPE_WORD  2
#define E4_DATATYPE_DWORD 3

#endif
