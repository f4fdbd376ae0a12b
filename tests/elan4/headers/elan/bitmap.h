/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN_BITMAP_H
#define ELAN_BITMAP_H
typedef unsigned int bitmap_t;
#define BT_NBIPUL        32
#define BT_BITOUL(nbits) (((nbits) + BT_NBIPUL - 1) / BT_NBIPUL)
#endif
