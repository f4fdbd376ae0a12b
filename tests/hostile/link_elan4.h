/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attacks over Elan4 beside messages: arbitrary bytes in a queue slot. */
#ifndef HOSTILE_LINK_ELAN4_H
#define HOSTILE_LINK_ELAN4_H

#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/packet.h"
#include "medium.h"

/* Opens a TCP connection to the bootstrap server of the last target; returns a socket, or a
 * negative value. */
int elan4_visit(void);
/* Makes this process's connection information for the target. */
int elan4_card(const struct target *target, struct bmi_elan4_conn_info *card);
/* Makes the next packet of the kind as a good peer would; `length` bytes of a body. */
void elan4_packet(struct link *link, enum elan_kind kind, size_t length, struct elan_packet *p);
/* Sends a header and a body to the link's peer. */
int elan4_say(struct link *link, const struct elan_packet *p, const void *body);
/* Sends the same to a target without a link; only the packet's fields that are not 0 are
 * kept. */
int elan4_tell(const struct target *target, const struct elan_packet *p, const void *body);
/* Sends arbitrary bytes, at most a slot. */
int elan4_throw(const struct target *target, const void *bytes, size_t length);
/* Skips numbers that were used by packets of elan4_say(). */
void elan4_skip(struct link *link, unsigned packets);
/* Starts a DMA to any address of the target's process without waiting for it. */
int elan4_poke(const struct target *target, uint64_t address, size_t length, bool read);

#endif
