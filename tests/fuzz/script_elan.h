/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An Elan4 network interface driven by a script, below the fabric: replaces nic.c, inbox.c, the
 * log and the library. Nothing happens by itself: DMAs complete when told to, in any order, or
 * never; packets arrive when the script puts them into the queue.
 */
#ifndef FUZZ_SCRIPT_ELAN_H
#define FUZZ_SCRIPT_ELAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bmi_elan4/inbox.h"

#define ELAN_OWN_QUEUE      0x40000u
#define ELAN_OWN_GENERATION 1000u

/* Resets the interface. */
void elan_script_begin(void);
/* Puts bytes into the next slot; returns false if the queue is full. */
bool elan_script_packet(const void *bytes, size_t length);
/* Number of DMAs in flight; completes the i-th of them, or refuses it silently. */
unsigned elan_script_dmas(void);
void elan_script_land(unsigned i);
void elan_script_refuse(unsigned i);
/* Raises a trap of this process. */
void elan_script_trap(unsigned kind, uint64_t at);
/* Sets the generation that the log has for the owner of every context; 0: none. */
void elan_script_owner(uint64_t generation);
/* Returns the number of objects that the library and the nic have allocated, without main
 * memory and SDRAM. */
unsigned elan_script_lent(void);
/* Returns a checksum of all sent packets. */
uint64_t elan_script_sum(void);

#endif
