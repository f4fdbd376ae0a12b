/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is in a slot of an input queue: a header of 32 bytes, numbers little-endian, and a body.
 * Queue DMAs keep no order and have no sender, so a packet says which link it belongs to and
 * its number on that link; those of the kinds marked so are taken in the order of their
 * numbers.
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

/* X(NAME, ordered, prose) */
#define ELAN_KINDS(X)                                                                          \
    X(HELLO, 0, "a card and hello data: request for a link; arg: the sender's link number")    \
    X(ACCEPT, 1, "a card and hello data: the link is up; arg: the sender's link number")       \
    X(REJECT, 0,                                                                               \
      "hello data: the link is refused; arg: enum bmi_elan4_verdict, 0: the host's")           \
    X(NOBODY, 0, "no such link here")                                                          \
    X(MESSAGE, 1, "a part of a message; arg: bytes of the whole message")                      \
    X(IMM, 1, "an immediate, in arg")                                                          \
    X(BYE, 1, "last packet; no DMA to the receiver's memory is outstanding")                   \
    X(DONE, 0, "to the same process: a transfer is complete; arg: its number")                 \
    X(BREAK, 0, "BYE of a link with a gap in its sequence numbers")                            \
    X(REFUSED, 0, "addresses, where DMAs were refused here; arg: enum bmi_elan4_trap_kind")    \
    X(LEFT, 0, "the sender has aborted the link; DMAs in flight may still arrive")

enum elan_kind {
#define X(NAME, ordered, prose) ELAN_##NAME,
    ELAN_KINDS(X)
#undef X
        ELAN_KIND_COUNT
};

struct elan_packet {
    uint8_t kind;
    uint16_t bytes; /* of the body here */
    uint32_t link;  /* number of the link at the receiver; 0 in HELLO */
    uint64_t to;    /* generation of the receiver; HELLO is taken with any, 0: not known */
    uint32_t seq;   /* among the ordered ones of a link, from 0 */
    uint32_t from;  /* the sender's process number */
    uint32_t arg;
    uint32_t offset; /* of the body in its message */
};

bool elan_kind_ordered(uint8_t kind);
void elan_packet_encode(const struct elan_packet *p, uint8_t out[ELAN_HEADER]);
/* 0, or -EPROTO: another version, no such kind, or numbers that cannot be. */
int elan_packet_decode(const uint8_t in[ELAN_HEADER], struct elan_packet *p);

#endif
