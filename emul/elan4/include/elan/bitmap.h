/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN_BITMAP_H
#define ELAN_BITMAP_H

typedef unsigned int bitmap_t;

#define BT_NBIPUL          32
#define BT_BITOUL(nbits)   (((nbits) + BT_NBIPUL - 1) / BT_NBIPUL) /* words */
#define BT_TEST(map, bit)  (((map)[(bit) / BT_NBIPUL] >> ((bit) % BT_NBIPUL)) & 1u)
#define BT_SET(map, bit)   ((map)[(bit) / BT_NBIPUL] |= 1u << ((bit) % BT_NBIPUL))
#define BT_CLEAR(map, bit) ((map)[(bit) / BT_NBIPUL] &= ~(1u << ((bit) % BT_NBIPUL)))

#endif
