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
/* Writes the capability as text into `str`, of 256 characters at least. Returns `str`. */
char *elan_capability_string(ELAN_CAPABILITY *cap, char *str);
/* Returns an invalid location if the capability has no such process. */
ELAN_LOCATION elan_vp2location(unsigned vp, ELAN_CAPABILITY *cap);
/* Returns -1 if the capability has no process there. */
int elan_location2vp(ELAN_LOCATION location, ELAN_CAPABILITY *cap);
int elan_nvps(ELAN_CAPABILITY *cap);
/* Returns the number of processes on one node, given by its number in the network. */
int elan_nlocal(int node, ELAN_CAPABILITY *cap);
int elan_maxlocal(ELAN_CAPABILITY *cap);
/* Writes up to `size` virtual process numbers; returns the number of processes. */
int elan_localvps(int node, ELAN_CAPABILITY *cap, int *vps, int size);
int elan_nrails(ELAN_CAPABILITY *cap);
int elan_rails(ELAN_CAPABILITY *cap, int *rails);
/* Returns whether two capabilities share a context of a node. */
int elan_cap_overlap(ELAN_CAPABILITY *a, ELAN_CAPABILITY *b);
/* Reads LIBELAN_ECAP<index> from the environment; 0 or -1. */
int elan_getenvCap(ELAN_CAPABILITY *cap, int index);

#ifdef __cplusplus
}
#endif

#endif
