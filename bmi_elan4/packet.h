/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * packet.h - a slot of an input queue: a header of 32 bytes and a body.
 *
 * Queue DMAs have no order and no sender, so a packet contains its link and its sequence number
 * there; kinds marked as ordered are delivered by sequence number.
 *
 * All functions are pure.
 */
#ifndef BMI_ELAN4_PACKET_H
#define BMI_ELAN4_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "bmi_elan4/inbox.h"

#define ELAN_HEADER 32
#define ELAN_BODY   (BMI_ELAN4_SLOT - ELAN_HEADER)

/* X(NAME, ordered, text) */
#define ELAN_KINDS(X)                                                                          \
    X(HELLO, 0,                                                                                \
      "connection data and hello data: request for a link; arg: the sender's link number")     \
    X(ACCEPT, 1,                                                                               \
      "connection data and hello data: the link is up; arg: the sender's link number")         \
    X(REJECT, 0,                                                                               \
      "hello data: the link is refused; arg: enum bmi_elan4_verdict, 0: the host's")           \
    X(NOBODY, 0, "no such link here")                                                          \
    X(MESSAGE, 1, "a part of a message; arg: bytes of the whole message")                      \
    X(IMM, 1, "an immediate, in arg")                                                          \
    X(BYE, 1, "last packet; no DMA to the receiver's memory is outstanding")                   \
    X(DONE, 0, "to the same process: a transfer is complete; arg: its number")                 \
    X(BREAK, 0, "BYE of a link with a gap in its sequence numbers")                            \
    X(REFUSED, 0, "addresses, where DMAs were refused here; arg: enum compat_trap")            \
    X(LEFT, 0, "the sender has aborted the link; DMAs in flight may still arrive")

enum elan_kind {
#define X(NAME, ordered, prose) ELAN_##NAME,
    ELAN_KINDS(X)
#undef X
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
bool elan_kind_ordered(uint8_t kind);
void elan_packet_encode(const struct elan_packet *p, uint8_t out[ELAN_HEADER]);
/* Decodes a header.  Returns 0, or -EPROTO for another version, an unknown kind, or invalid
 * numbers. */
int elan_packet_decode(const uint8_t in[ELAN_HEADER], struct elan_packet *p);

#endif
