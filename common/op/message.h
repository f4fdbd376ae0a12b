/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages that wait for an operation. */
#ifndef RME_MESSAGE_H
#define RME_MESSAGE_H

#include "op/match.h"
#include "plan/plan.h"
#include "transport/control.h"

/* A message that no operation has taken: an unmatched expected one; an unexpected one, which
 * the host owns once it has fetched it; also, temporarily, an RTS that matches at once. */
struct rme_message {
    /* expected: in the table of receives and unmatched messages; unexpected and fetched:
     * `keyed` in the table of fetched messages */
    struct rme_match match;
    /* expected or cancelled: in `messages` of the peer; unexpected: in `unexpected` of the
     * peer; the first complete one of a peer in rme_protocols.unexpected */
    struct list_head link;
    struct list_head waiting;   /* unexpected: in the peer's `pulls`, later in its `complete` */
    struct rme_keyed by_handle; /* of an RTS that waits */
    struct rme_control answer;  /* FIN of an RTS that was cancelled */
    struct rme_peer *peer;      /* NULL once the host has fetched the message */
    struct rme_addr *sender;    /* from then on, with a reference */
    int32_t tag;
    bool is_rts;
    bool pulled;   /* arrived as RTS and is being pulled, or was */
    bool complete; /* unexpected: `data` is the whole message */
    bool dropped;  /* the host has discarded the message, which is still being pulled */
    uint8_t flags; /* of its header */
    /* RTS: the sender's handle; expected and eager: the message's place (eager.c); unexpected
     * and eager: number of the peer's link in whose window the message counts */
    uint32_t from;
    uint32_t shape;
    struct rme_load load;                    /* of the sender */
    uint64_t total;                          /* bytes of the message */
    struct rme_remote_window *remote_window; /* memory offered by the RTS; NULL: none */
    size_t rx_buffered;          /* bytes in the receive-side accounting of the peer */
    size_t room;                 /* of `data` */
    _Alignas(16) uint8_t data[]; /* the payload, if not an RTS */
};

#endif
