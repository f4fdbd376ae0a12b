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
rme_may_start_fn rme_eager_may_start;
rme_cancelled_fn rme_eager_cancelled;
/* Frees the unmatched messages of a peer whose link is given up. */
void rme_messages_drop(struct rme_peer *peer);

/* Do size and window allow this message to go eagerly?  Does not check credits. */
static inline bool rme_eager_fits(const struct rme_peer *peer, enum rme_stream stream,
                                  uint64_t size)
{
    return size <= peer->eager_max[stream] &&
           rme_eager_window_fits(&peer->eager_window[stream], size);
}
/* Sends a message in one piece at once; false: not possible now. */
bool rme_eager_send_now(struct rme_peer *peer, enum rme_stream stream, const void *base,
                        uint64_t size, int32_t tag);
/* Sends the message with the other messages of this round; false: no credit or buffer. */
bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag);

/* An unmatched message; also, temporarily, an RTS that matches at once. */
struct rme_message {
    struct rme_match match;     /* in the table of receives and unmatched messages */
    struct list_head of_peer;   /* in peer->messages */
    struct rme_keyed by_handle; /* of an unmatched RTS */
    struct rme_unexp *unexp;    /* of an unexpected message; NULL: expected */
    struct rme_peer *peer;
    int32_t tag;
    bool is_rts;
    uint8_t flags; /* of its header */
    /* RTS: the sender's handle; eager: the message's place (cancel.c) */
    uint32_t from;
    uint32_t shape;
    uint32_t load_ops;
    uint64_t load_bytes;
    uint64_t total;                          /* bytes of the message */
    struct rme_remote_window *remote_window; /* memory offered by the RTS; NULL: none */
    bool shortened;     /* the offer was dropped, so the message cannot be read */
    size_t rx_buffered; /* bytes in the receive-side accounting of the peer */
    uint8_t data[];     /* eager: the payload */
};

/* Makes a message of an RTS, in no table; NULL: no memory. */
struct rme_message *rme_message_from_rts(struct rme_peer *peer,
                                         const struct rme_wire_message *message);
/* Matches a new receive with the oldest message of its tag. */
void rme_recv_match(struct rme *rme, struct rme_op *op, struct rme_match *first);
/* Enters an unmatched RTS in the name table, under the sender's handle. */
void rme_message_name(struct rme_message *message);
/* Finds the unmatched message of a CANCEL by its sender, if it belongs to that stream; NULL:
 * none. */
struct rme_message *rme_message_cancelled(struct rme_peer *peer,
                                          const struct rme_wire_message *cancel,
                                          bool unexpected);
/* Removes a message that its sender has cancelled, and answers. */
void rme_message_forget(struct rme_message *message);
/* Drops the offer of an RTS that has to wait, unless the memory for offers has room. */
void rme_message_shorten(struct rme_message *message);
/* Frees a message that is in no table. */
void rme_message_free(struct rme_message *message);

/* Fails the link, because an arrived message cannot be buffered. */
static inline void rme_message_no_memory(struct rme_peer *peer)
{
    rme_peer_fail(peer, -ENOMEM, "no memory to buffer a message");
}

#endif
