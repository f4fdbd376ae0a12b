/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* --sysfs: the devices in /sys/class and /dev, for one program and its children. */
#ifndef EMUL_VERBS_VIEW_H
#define EMUL_VERBS_VIEW_H

/*
 * Moves this process to a separate mount namespace, in which /sys/class/infiniband,
 * /sys/class/infiniband_verbs and /dev/infiniband show only the devices of the library at
 * `library`. Returns 0, or -1 after one line on stderr.
 */
int view_make(const char *library);

#endif
