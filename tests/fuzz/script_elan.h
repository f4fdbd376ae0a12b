/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An Elan4 network interface that does what a script says: in place of nic.c, inbox.c, the log
 * and the library, below the fabric. Nothing happens by itself: a DMA ends when it is told to,
 * in any order, or never; a packet is in the queue when it is put there.
 */
#ifndef FUZZ_SCRIPT_ELAN_H
#define FUZZ_SCRIPT_ELAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bmi_elan4/inbox.h"

#define ELAN_OWN_QUEUE      0x40000u
#define ELAN_OWN_GENERATION 1000u

/* The machine is as new. */
void elan_script_begin(void);
/* Puts bytes into the next slot; false: the queue is full. */
bool elan_script_packet(const void *bytes, size_t length);
/* DMAs that are under way; ends the i-th of them: it is done, or refused without a word. */
unsigned elan_script_dmas(void);
void elan_script_land(unsigned i);
void elan_script_refuse(unsigned i);
/* A trap of ours. */
void elan_script_trap(unsigned kind, uint64_t at);
/* What the log says of every context: the generation of its owner, 0: nobody. */
void elan_script_owner(uint64_t generation);
/* What the library and the nic have lent and not had back; all but main memory and SDRAM. */
unsigned elan_script_lent(void);
/* The sum of all that was sent. */
uint64_t elan_script_sum(void);

#endif
