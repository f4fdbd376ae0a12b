/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * packet.h - a slot of an input queue: a header of 32 bytes and a body.
 *
 * Queue DMAs have no order and no sender, so a packet contains its link and its sequence number
 * there; ordered kinds are delivered by sequence number.
 *
 * All functions are pure.
 */
#ifndef BMI_ELAN4_PACKET_H
#define BMI_ELAN4_PACKET_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "bmi_elan4/inbox.h"

#define ELAN_PACKET_VERSION 0xb1
#define ELAN_HEADER         32
#define ELAN_BODY           (BMI_ELAN4_SLOT - ELAN_HEADER)

enum elan_kind {
    /* connection data and hello data: request for a link; arg: the sender's link number */
    ELAN_HELLO,
    /* connection data and hello data: the link is up; arg: the sender's link number.  In
     * order */
    ELAN_ACCEPT,
    /* hello data: the link is refused; arg: enum bmi_elan4_verdict, 0: the host's.  To a link
     * that is up: no such link here */
    ELAN_REJECT,
    ELAN_MESSAGE = 4, /* a part of a message; arg: bytes of the whole message.  In order */
    ELAN_IMM,         /* an immediate, in arg.  In order */
    ELAN_BYE,     /* last packet; no DMA to the receiver's memory is outstanding.  In order */
    ELAN_DONE,    /* to the same process: a transfer is complete; arg: its number */
    ELAN_BREAK,   /* instead of a packet that must not be sent: the link ends.  In order */
    ELAN_REFUSED, /* addresses, where DMAs were refused here; arg: enum compat_trap.  None: to
                   * find out whether the receiver's interface accepts it */
    ELAN_LEFT,    /* the sender has aborted the link; DMAs in flight may still arrive */
    ELAN_KIND_COUNT
};

/* The header as sent: all hosts of Elan4 are little-endian. */
struct elan_packet {
    uint8_t version;
    uint8_t kind;
    uint16_t bytes; /* bytes of this body */
    uint32_t link;  /* number of the link at the receiver; 0 in HELLO */
    uint64_t to;    /* generation of the receiver, 0: unknown; HELLO is accepted with any */
    uint32_t seq;   /* sequence number among the ordered packets of a link, from 0 */
    uint32_t from;  /* process number of the sender */
    uint32_t arg;
    uint32_t offset; /* offset of this body in its message */
};
_Static_assert(sizeof(struct elan_packet) == ELAN_HEADER, "a header");

/* Returns true if packets of this kind are ordered; false for unknown kinds. */
static inline bool elan_kind_ordered(uint8_t kind)
{
    return kind == ELAN_ACCEPT || kind == ELAN_MESSAGE || kind == ELAN_IMM ||
           kind == ELAN_BYE || kind == ELAN_BREAK;
}

static inline void elan_packet_encode(const struct elan_packet *p, uint8_t out[ELAN_HEADER])
{
    memcpy(out, p, ELAN_HEADER);
    out[0] = ELAN_PACKET_VERSION;
}

/* Decodes a header.  Returns 0, or -EPROTO for another version, an unknown kind, or invalid
 * numbers. */
static inline int elan_packet_decode(const uint8_t in[ELAN_HEADER], struct elan_packet *p)
{
    memcpy(p, in, ELAN_HEADER);
    if (p->version != ELAN_PACKET_VERSION || p->kind >= ELAN_KIND_COUNT || p->bytes > ELAN_BODY)
        return -EPROTO;
    if (p->kind == ELAN_MESSAGE && (p->offset > p->arg || p->bytes > p->arg - p->offset))
        return -EPROTO;
    return 0;
}

#endif
