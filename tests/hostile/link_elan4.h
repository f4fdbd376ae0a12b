/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What an attacker can do over Elan4 beside messages: any bytes in a slot of a queue. */
#ifndef HOSTILE_LINK_ELAN4_H
#define HOSTILE_LINK_ELAN4_H

#include "bmi_elan4/card.h"
#include "bmi_elan4/packet.h"
#include "medium.h"

extern const struct medium medium_elan4;

/* A TCP connection to the desk of the last target, a socket; below 0: there is none. */
int elan4_visit(void);
/* The card of this process, for the target. */
int elan4_card(const struct target *target, struct bmi_elan4_card *card);
/* A packet of the kind as a good peer would send it next; `length` bytes of a body. */
void elan4_packet(struct link *link, enum elan_kind kind, size_t length, struct elan_packet *p);
/* Sends a header and a body to the peer of the link. */
int elan4_say(struct link *link, const struct elan_packet *p, const void *body);
/* The same to somebody to whom there is no link: of the packet only what is not 0 is kept. */
int elan4_tell(const struct target *target, const struct elan_packet *p, const void *body);
/* Any bytes, of a slot or fewer. */
int elan4_throw(const struct target *target, const void *bytes, size_t length);
/* Numbers that were given out for packets said by elan4_say. */
void elan4_skip(struct link *link, unsigned packets);
/* A DMA to any address of the target's process; it is not waited for. */
int elan4_poke(const struct target *target, uint64_t address, size_t length, bool read);

#endif
