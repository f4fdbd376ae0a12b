/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* port.h - rate of a port and NUMA node of a device, for the path of a connection and for
 * bmi-perf doctor. */
#ifndef BMI_IB_PORT_H
#define BMI_IB_PORT_H

#include <stdio.h>
#include <infiniband/verbs.h>

/* Returns the nominal Gb/s of a port; 0 for codes that no specification of today has. */
static inline double ib_port_rate(const struct ibv_port_attr *port)
{
    static const double rates[] = {2.5, 5, 10, 10, 14, 25, 50, 100}; /* by bit of the code */
    static const double lanes[] = {1, 4, 8, 12, 2};
    unsigned speed = (unsigned)port->active_speed, width = (unsigned)port->active_width;

    for (unsigned s = 0; s < sizeof(rates) / sizeof(*rates); s++)
        for (unsigned w = 0; w < sizeof(lanes) / sizeof(*lanes); w++)
            if (speed == 1u << s && width == 1u << w)
                return rates[s] * lanes[w];
    return 0;
}

/* Returns the node that the device's slot belongs to; -1: none, or unknown. */
static inline int ib_numa_node(const struct ibv_device *device)
{
    char path[IBV_SYSFS_PATH_MAX + sizeof("/device/numa_node")];
    int node;
    FILE *file;

    snprintf(path, sizeof(path), "%s/device/numa_node", device->ibdev_path);
    file = fopen(path, "re");
    if (file == NULL)
        return -1;
    if (fscanf(file, "%d", &node) != 1)
        node = -1;
    fclose(file);
    return node;
}

#endif
