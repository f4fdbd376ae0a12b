/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN_CAPABILITY_H
#define ELAN_CAPABILITY_H
#include <elan/bitmap.h>
#define ELAN_MAX_RAILS              (31)
#define ELAN_MAX_VPS                (16384)
#define ELAN_BITMAPSIZE             BT_BITOUL(ELAN_MAX_VPS)
#define ELAN_INVALID_PROCESS        (0x7fffffff)
#define ELAN_INVALID_NODE           (0xFFFF)
#define ELAN_INVALID_CONTEXT        (0xFFFF)
#define ELAN_CAP_UNINITIALISED      (-1)
#define ELAN_CAP_VERSION_NUMBER     (0x00010002)
#define ELAN_CAP_TYPE_BLOCK         1
#define ELAN_CAP_TYPE_CYCLIC        2
#define ELAN_CAP_TYPE_KERNEL        3
#define ELAN_CAP_TYPE_MASK          (0xFFF)
#define ELAN_CAP_TYPE_HWTEST        (1 << 12)
#define ELAN_CAP_TYPE_MULTI_RAIL    (1 << 13)
#define ELAN_CAP_TYPE_NO_BITMAP     (1 << 14)
#define ELAN_CAP_TYPE_BROADCASTABLE (1 << 15)
typedef struct elan_location {
    unsigned short loc_node;
    unsigned short loc_context;
} ELAN_LOCATION;
typedef struct elan_userkey {
    unsigned key_values[4];
} ELAN_USERKEY;
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
extern void elan_nullcap(ELAN_CAPABILITY *cap);
extern ELAN_LOCATION elan_vp2location(unsigned process, ELAN_CAPABILITY *cap);
extern int elan_location2vp(ELAN_LOCATION location, ELAN_CAPABILITY *cap);
extern int elan_nvps(ELAN_CAPABILITY *cap);
#endif
