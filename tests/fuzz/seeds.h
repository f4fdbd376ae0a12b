/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the writers of seeds share. */
#ifndef FUZZ_SEEDS_H
#define FUZZ_SEEDS_H

#include <stddef.h>

/* Writes a seed of that target; ends the program when it cannot. */
void put(const char *target, const char *name, const void *data, size_t size);

/* Of the target "peer": messages from post to end, and too much of everything. */
void lives(void);
void lent(void);
void too_much(void);

/* Of the target "iod_client": copies and lists, and what servers may do to them. */
void iod_clients(void);

/* Of the targets "elan_packet", "elan_desk", "elan_log" and "elan_link". */
void elan(void);

#endif
