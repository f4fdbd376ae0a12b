/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Expected messages on their way to receives, and messages that came before theirs.  See
 * eager.c. */
#ifndef RME_MESSAGE_H
#define RME_MESSAGE_H

#include <errno.h>

#include "base/name.h"
#include "proto/talk.h"

struct rme_opening;

extern const struct rme_protocol rme_protocol_eager;

/* May this go eagerly (size, window)?  Credits are another matter. */
static inline bool rme_eager_fits(const struct rme_peer *peer, enum rme_stream stream,
                                  uint64_t size)
{
    return size <= peer->eager_max[stream] && rme_window_fits(&peer->window[stream], size);
}
/* Sends it, `now` or with what else goes out in this round; false: no credit or buffer. */
bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag, bool now);

/* A message that came before its receive; also, for a moment, one that meets its receive at
 * once. */
struct rme_message {
    struct rme_node link;       /* in its slot */
    struct rme_node of_peer;    /* in peer->messages */
    struct rme_control control; /* when its sender gave it up */
    struct rme_slot *slot;      /* NULL: in none */
    struct rme_name name;       /* of an RTS that no receive has met */
    struct rme_unexp *unexp;    /* of an unexpected message; NULL: expected */
    struct rme_peer *peer;
    int32_t tag;
    bool is_rts;
    uint8_t flags;        /* of its header */
    enum rme_proto proto; /* eager: how it came */
    /* RTS: the sender's handle; eager: the message's place (refuse.c) */
    uint32_t from;
    uint32_t shape;
    uint32_t load_ops;
    uint64_t load_bytes;
    uint64_t total;              /* bytes of the message */
    struct rme_opening *opening; /* what the RTS offered; may be NULL */
    bool shortened;              /* its offer was forgotten, so it cannot be read */
    size_t kept;                 /* bytes in the account of the peer */
    /* eager: the payload; in lent memory, or copied from there, or in `data` */
    struct rme_early early;
    uint8_t data[];
};

/* An RTS as a message in no slot; NULL: no memory. */
struct rme_message *rme_message_from_rts(struct rme_peer *peer,
                                         const struct rme_wire_message *message);
/* A receive was posted: gives it the message that waits for it, if any. */
void rme_recv_match(struct rme *rme, struct rme_op *op, struct rme_slot *slot);
/* An RTS that waits can be found by what its sender calls it. */
void rme_message_name(struct rme_message *message);
/* The one that a CANCEL of its sender means, if it is of that stream; NULL: there is none
 * such. */
struct rme_message *rme_message_cancelled(struct rme_peer *peer,
                                          const struct rme_wire_message *cancel,
                                          bool unexpected);
/* Its sender has given it up: it is taken out, answered, and goes.  It counts as held until it
 * is answered. */
void rme_message_forget(struct rme_message *message);
/* It has to wait: its offer is kept if there is room for it. */
void rme_message_shorten(struct rme_message *message);
/* Frees one that is in no slot. */
void rme_message_free(struct rme_message *message);

/* One that came cannot be kept: the link is given up. */
static inline void rme_message_no_memory(struct rme_peer *peer)
{
    rme_peer_fail(peer, -ENOMEM, "no memory to keep a message");
}

#endif
