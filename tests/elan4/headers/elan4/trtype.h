/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_TRTYPE_H
#define ELAN4_TRTYPE_H
#define TR_WAIT_FOR_EOP      (1 << 8)
#define TR_SETEVENT_NOIDENT  (0x10 | (3 << 9))
#define TR_SETEVENT_IDENTIFY (0x10 | (1 << 11) | (3 << 9))
#define TR_REMOTEDMA         (0x11 | (7 << 11) | (3 << 9))
#define TR_INPUT_Q_COMMIT    (0x1d | (1 << 11) | (3 << 9))
#define TR_INPUT_Q_GETINDEX  (0x1f)
#endif
