/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_INTCOOKIE_H
#define ELAN4_INTCOOKIE_H
typedef E4_uint64 ELAN4_INTCOOKIE;
#endif
