/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_TYPES_H
#define ELAN4_TYPES_H
#include <qsnet/config.h>
typedef signed char E4_int8;
typedef unsigned char E4_uint8;
typedef signed short E4_int16;
typedef unsigned short E4_uint16;
typedef signed int E4_int32;
typedef unsigned int E4_uint32;
#ifdef _LP64
typedef signed long E4_int64;
typedef unsigned long E4_uint64;
#else
typedef signed long long E4_int64;
typedef unsigned long long E4_uint64;
#endif
typedef E4_uint64 E4_Addr;
#define E4_DATATYPE_BYTE  0
#define E4_DATATYPE_SHORT 1
#define E4_DATATYPE_WORD  2
#define E4_DATATYPE_DWORD 3
#endif
