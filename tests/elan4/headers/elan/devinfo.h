/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN_DEVINFO_H
#define ELAN_DEVINFO_H
typedef struct elan_position {
    unsigned pos_mode;
    unsigned pos_nodeid;
    unsigned pos_levels;
    unsigned pos_nodes;
    unsigned pos_random_disabled;
    unsigned char pos_arity[8];
} ELAN_POSITION;
#endif
