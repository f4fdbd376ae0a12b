/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Matching of expected messages to receives, and messages that precede their receives.  See
 * eager.c. */
#ifndef RME_MESSAGE_H
#define RME_MESSAGE_H

#include <errno.h>

#include "base/table.h"
#include "proto/proto.h"

struct rme_remote_window;

rme_arrived_fn rme_eager_arrived, rme_rts_arrived;
rme_start_fn rme_eager_start;
/* Frees the unmatched messages of a peer whose link is given up. */
void rme_messages_drop(struct rme_peer *peer);

/* Accounts for an EAGER, in a buffer or in the ring, that was handed to the fabric. */
static inline void rme_eager_sent(struct rme_peer *peer, enum rme_stream stream, int32_t tag,
                                  uint64_t size)
{
    if (stream == RME_EXPECTED)
        rme_invite_sent(&peer->proto->invites, tag);
    else
        rme_peer_count(peer, RME_C_UNEXPECTED_SENT, 1);
    rme_window_add(&peer->eager_window[stream], size);
    rme_peer_count(peer, RME_C_SENDS_EAGER, 1);
    rme_peer_count(peer, RME_C_BYTES_SENT, size);
    rme_count_add(peer->rme, RME_C_BYTES_COPIED, size);
}
/* Do size and window allow this message to go eagerly?  Does not check credits. */
static inline bool rme_eager_fits(const struct rme_peer *peer, enum rme_stream stream,
                                  uint64_t size)
{
    return size <= peer->eager_max[stream] &&
           rme_window_fits(&peer->eager_window[stream], size);
}
/* Sends a message in one piece at once; false: not possible now. */
bool rme_eager_send_now(struct rme_peer *peer, enum rme_stream stream, const void *base,
                        uint64_t size, int32_t tag);
/* Sends the message with the other messages of this round; false: no credit or buffer. */
bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag);

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
    /* RTS: the sender's handle; expected and eager: the message's place (cancel.c); unexpected
     * and eager: number of the peer's link in whose window the message counts */
    uint32_t from;
    uint32_t shape;
    uint32_t load_ops;
    uint64_t load_bytes;
    uint64_t total;                          /* bytes of the message */
    struct rme_remote_window *remote_window; /* memory offered by the RTS; NULL: none */
    size_t rx_buffered;          /* bytes in the receive-side accounting of the peer */
    size_t room;                 /* of `data` */
    _Alignas(16) uint8_t data[]; /* the payload, if not an RTS */
};

/* Makes a message with room for `room` bytes, in no table; NULL: no memory, which ends the
 * link. */
struct rme_message *rme_message_new(struct rme_peer *peer, int32_t tag, size_t room);
/* Likewise, a copy of an eager message, or of an RTS and its offer. */
struct rme_message *rme_message_copy(struct rme_peer *peer,
                                     const struct rme_wire_message *arrived);
struct rme_message *rme_message_from_rts(struct rme_peer *peer,
                                         const struct rme_wire_message *arrived);
/* Matches a new receive with the oldest message of its tag. */
void rme_recv_match(struct rme *rme, struct rme_op *op, struct rme_match *first);
/* Makes an RTS wait: its sender's handle finds it, and its offer is accounted to the peer. */
void rme_message_wait(struct rme_message *message);
/* Finds the RTS that waits under the sender's handle; NULL: none. */
struct rme_message *rme_message_find(struct rme_peer *peer, uint32_t from);
/* Removes a message from its tables and queues, and frees it. */
void rme_message_free(struct rme_message *message);
/* Frees the memory of a message that is in no table, or keeps it for another one. */
void rme_message_recycle(struct rme *rme, struct rme_message *message);
/* Frees the memory that is kept. */
void rme_message_clear(struct rme *rme);

#endif
