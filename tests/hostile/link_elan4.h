/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attacks over Elan4 beside messages. */
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
/* Sends a header and a body to a target without a link; only the packet's fields that are not 0
 * are kept. */
int elan4_tell(const struct target *target, const struct elan_packet *p, const void *body);
/* Starts a DMA to any address of the target's process without waiting for it. */
int elan4_poke(const struct target *target, uint64_t address, size_t length, bool read);

#endif
