/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shared by the writers of seeds. */
#ifndef FUZZ_SEEDS_H
#define FUZZ_SEEDS_H

#include <stddef.h>

/* Writes a seed of that target; ends the program on failure. */
void put(const char *target, const char *name, const void *data, size_t size);

/* Seeds of target "peer": messages from post to end, rings, and excess. */
void lives(void);
void lent(void);
void too_much(void);

/* Seeds of targets "iod_message", "iod_server" and "iod_client". */
void iod_seeds(void);

/* Seeds of targets "elan_packet", "elan_desk", "elan_log" and "elan_link". */
void elan(void);

#endif
