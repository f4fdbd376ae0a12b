/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Transactions of a packet. Bits 15:11 contain the number of data dwords. */
#ifndef ELAN4_TRTYPE_H
#define ELAN4_TRTYPE_H

#define TR_INPUT_Q_GETINDEX  0x001f
#define TR_WAIT_FOR_EOP      0x0100
#define TR_SETEVENT_NOIDENT  0x0610
#define TR_INPUT_Q_COMMIT    0x0e1d
#define TR_SETEVENT_IDENTIFY 0x0e10
#define TR_REMOTEDMA         0x3e11

#define TR_DATA_DWORDS(type) (((type) >> 11) & 0x1f)

#endif
