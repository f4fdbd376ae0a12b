/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The processes of a file system on Elan4: which nodes, which contexts on each, and the number
 * that the network has for each of them. There is no resource manager: the range is the same
 * for all, the first context of a node is the server's, the others are for clients, which take
 * one from the node's log (context_log.h).
 *
 * All functions are pure.
 */
#ifndef BMI_ELAN4_PROCESS_H
#define BMI_ELAN4_PROCESS_H

#include <elan/capability.h>
#include <stddef.h>

/* Inclusive at both ends. */
struct bmi_elan4_range {
    int low_node, high_node;
    int low_context, high_context;
};

#define BMI_ELAN4_FIRST_CONTEXT 2     /* those before are the kernel's */
#define BMI_ELAN4_LAST_CONTEXT  0x3ff /* those behind need a resource manager */
#define BMI_ELAN4_MOST_VPS      8192  /* of a context's route table */

/*
 * Whether the network allows this range: 0, or -EINVAL with the reason and what would do in
 * `why`, of `size` bytes.
 */
int bmi_elan4_range_check(const struct bmi_elan4_range *r, char *why, size_t size);

/* The number of the process at a place: node by node, context by context; -1 outside. */
int bmi_elan4_vp(const struct bmi_elan4_range *r, int node, int context);

/* The place of a process: 0, or -EINVAL when the range has no such number. */
int bmi_elan4_place(const struct bmi_elan4_range *r, int vp, int *node, int *context);

/* The capability of the process at `context`; `key` is a secret that all of them share. */
void bmi_elan4_capability(const struct bmi_elan4_range *r, const unsigned key[4], int context,
                          ELAN_CAPABILITY *cap);

/*
 * Reads an address elan4://NODE:CONTEXT or elan4://NODE:CONTEXT/NAME. 0, or -EINVAL when it is
 * none. `*name` points behind the slash, into `text`, or is NULL when there is none; it may be
 * NULL itself.
 */
int bmi_elan4_address(const char *text, int *node, int *context, const char **name);

#endif
