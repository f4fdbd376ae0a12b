/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * process.h - processes of a file system on Elan4: nodes, contexts of each node, and the
 * network's number of each process.  There is no resource manager: the range is the same for
 * all processes, the first context of a node is the server's, and clients take the others from
 * the node's log (context_log.h).
 *
 * All functions are pure.
 */
#ifndef BMI_ELAN4_PROCESS_H
#define BMI_ELAN4_PROCESS_H

#include <elan/capability.h>
#include <stddef.h>

/* Range of nodes and contexts, inclusive at both ends. */
struct bmi_elan4_range {
    int low_node, high_node;
    int low_context, high_context;
};

#define BMI_ELAN4_FIRST_CONTEXT 2     /* lower ones are the kernel's */
#define BMI_ELAN4_LAST_CONTEXT  0x3ff /* higher ones need a resource manager */
#define BMI_ELAN4_MAX_VPS       8192  /* size of a context's route table */

/* Stores a reason in `why`, of `size` bytes.  Returns rc. */
#define BMI_ELAN4_WHY(rc, ...) (snprintf(why, size, __VA_ARGS__), (rc))

/*
 * Checks a range.  Returns 0, or -EINVAL with the reason and a permitted value in `why`, of
 * `size` bytes.
 */
int bmi_elan4_range_check(const struct bmi_elan4_range *r, char *why, size_t size);

/* Returns the number of the process at a place, node by node, context by context; -1:
 * outside. */
int bmi_elan4_vp(const struct bmi_elan4_range *r, int node, int context);

/* Gets the place of a process.  Returns 0, or -EINVAL for a number outside the range. */
int bmi_elan4_place(const struct bmi_elan4_range *r, int vp, int *node, int *context);

/* Returns the number of up to five digits at the beginning of a text, or -1.  *end is set to
 * the rest of the text; without `end` the text must end there. */
int bmi_elan4_decimal(const char *text, char **end);

/* Fills in the capability of the process at `context`; `key` is the shared secret. */
void bmi_elan4_capability(const struct bmi_elan4_range *r, const unsigned key[4], int context,
                          ELAN_CAPABILITY *cap);

#endif
