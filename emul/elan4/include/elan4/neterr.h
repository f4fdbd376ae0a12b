/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN4_NETERR_H
#define ELAN4_NETERR_H

#include <elan/capability.h>
#include <elan4/types.h>

typedef struct elan4_neterr_msg {
    E4_uint8 msg_type;
    E4_uint8 msg_waitforeop;
    E4_uint16 msg_context;
    E4_int16 msg_found;
    ELAN_LOCATION msg_sender;
    E4_uint32 msg_pad;
    E4_uint64 msg_cookies[6];
} ELAN4_NETERR_MSG;

#endif
