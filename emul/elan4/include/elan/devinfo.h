/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Position of this node in the network, and properties of its network interface. */
#ifndef ELAN_DEVINFO_H
#define ELAN_DEVINFO_H

#define ELAN_MAX_LEVELS 8

typedef struct elan_position {
    unsigned pos_mode;
    unsigned pos_nodeid;
    unsigned pos_levels;
    unsigned pos_nodes;
    unsigned pos_random_disabled;
    unsigned char pos_arity[ELAN_MAX_LEVELS];
} ELAN_POSITION;

#define ELAN_POS_UNKNOWN       0
#define ELAN_POS_MODE_SWITCHED 1

typedef struct elan_devinfo {
    unsigned short dev_vendor_id;
    unsigned short dev_device_id;
    unsigned char dev_revision_id;
    unsigned char dev_instance_number;
    unsigned dev_rail;
    unsigned dev_num_down_links_value;
} ELAN_DEVINFO;

#endif
