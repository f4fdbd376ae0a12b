/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Capabilities: the nodes of a program, the contexts on each node, and the numbers of its
 * processes. */
#ifndef ELAN_CAPABILITY_H
#define ELAN_CAPABILITY_H

#include <elan/bitmap.h>
#include <qsnet/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ELAN_CAP_UNINITIALISED  (-1)
#define ELAN_CAP_VERSION_NUMBER 0x00010002

#define ELAN_CAP_TYPE_BLOCK         1
#define ELAN_CAP_TYPE_CYCLIC        2
#define ELAN_CAP_TYPE_KERNEL        3
#define ELAN_CAP_TYPE_MASK          0x0fff
#define ELAN_CAP_TYPE_HWTEST        (1 << 12)
#define ELAN_CAP_TYPE_MULTI_RAIL    (1 << 13)
#define ELAN_CAP_TYPE_NO_BITMAP     (1 << 14)
#define ELAN_CAP_TYPE_BROADCASTABLE (1 << 15)

#define ELAN_MAX_VPS         16384
#define ELAN_MAX_RAILS       31
#define ELAN_INVALID_PROCESS 0x7fffffff
#define ELAN_INVALID_NODE    0xffff
#define ELAN_INVALID_CONTEXT 0xffff
#define ELAN_BITMAPSIZE      BT_BITOUL(ELAN_MAX_VPS)

/* Contexts of user processes; the upper half is assigned by a resource manager. */
#define ELAN_USER_BASE_CONTEXT_NUM 0x000
#define ELAN_USER_TOP_CONTEXT_NUM  0x7ff
#define ELAN_RMS_BASE_CONTEXT_NUM  0x400
#define ELAN_RMS_TOP_CONTEXT_NUM   0x7ff

typedef struct elan_userkey {
    unsigned key_values[4];
} ELAN_USERKEY;

typedef struct elan_location {
    unsigned short loc_node;    /* counted from cap_lownode */
    unsigned short loc_context; /* counted from cap_lowcontext */
} ELAN_LOCATION;

typedef struct elan_capability {
    ELAN_USERKEY cap_userkey;
    int cap_version;
    unsigned short cap_type;
    unsigned short cap_spare;
    int cap_lowcontext;
    int cap_highcontext;
    int cap_mycontext;
    int cap_lownode;
    int cap_highnode;
    unsigned int cap_railmask;
    bitmap_t cap_bitmap[ELAN_BITMAPSIZE];
} ELAN_CAPABILITY;

/* Sets every number to ELAN_CAP_UNINITIALISED. */
void elan_nullcap(ELAN_CAPABILITY *cap);
#ifdef __cplusplus
}
#endif

#endif
