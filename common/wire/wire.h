/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What peers say to each other, as bytes.  doc/wire-protocol.md describes every field; this is
 * the codec.  Encoders and decoders are pure functions: no state, no allocation.  Decoders
 * believe nothing: every length is checked before a byte behind it is read.  All integers are
 * little-endian, whatever the machine.
 */
#ifndef RME_WIRE_H
#define RME_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RME_WIRE_MAGIC       0x31454d52u /* "RME1" */
#define RME_WIRE_VERSION     1u          /* what we speak */
#define RME_WIRE_VERSION_MIN 1u          /* the oldest that we understand */

/* ---- Messages ---- */

/* id, value, what it says */
#define RME_WIRE_TYPES(X)                                                                      \
    X(EAGER, 1, "a whole message")                                                             \
    X(UNEXPECTED, 2, "a whole unexpected message")                                             \
    X(RTS, 3, "a message is ready; advertises memory of the sender")                           \
    X(CTS, 4, "memory of the receiver is open for writing")                                    \
    X(OFFER, 5, "more memory of the sender is open for reading")                               \
    X(GO, 6, "the receiver reads, and needs more offers")                                      \
    X(FIN, 7, "the receiver has read up to here, or has refused")                              \
    X(CREDIT, 8, "header only: credits")                                                       \
    X(CANCEL, 9, "request to leave an operation")                                              \
    X(CANCEL_ACK, 10, "the operation was left")                                                \
    X(PING, 11, "liveness probe")                                                              \
    X(PONG, 12, "yes")                                                                         \
    X(BYE, 13, "last message; the link is about to close")                                     \
    X(REFUSED, 14, "an eager message met a receive that is too small")                         \
    X(INVITE, 15, "memory of a receive is open for writing before its RTS")                    \
    X(GRANT, 16, "an eager ring is granted: the peer may write messages there")                \
    X(WITHDRAW, 17, "request to return the eager ring")                                        \
    X(RELEASE, 18, "the eager ring is returned")

enum rme_wire_type {
#define RME_WIRE_ENUM(id, value, text) RME_WIRE_##id = (value),
    RME_WIRE_TYPES(RME_WIRE_ENUM)
#undef RME_WIRE_ENUM
};

/* bytes of every message's header; an eager message is this and its payload */
#define RME_WIRE_HEADER_SIZE 16u
#define RME_WIRE_RTS_SIZE    48u /* bytes of an RTS before its segments */
#define RME_WIRE_WINDOW_SIZE                                                                   \
    40u /* bytes of a CTS, OFFER, INVITE or GRANT before its segments */
#define RME_WIRE_SEGMENT_SIZE 24u /* bytes of a segment */
/* bytes before the payload of a message in delegated memory: header, length */
#define RME_WIRE_FAST_SIZE 32u
#define RME_WIRE_FAST_UNIT 64u /* such a message begins at a multiple of this */

/* Flags of the header. */
/* the sender had to wait for credits: more of them would be used */
#define RME_WIRE_F_STALLED     0x01u
#define RME_WIRE_F_UNEXPECTED  0x02u /* RTS, CANCEL: of an unexpected message */
#define RME_WIRE_F_READY       0x04u /* RTS: the sender's memory is registered already */
#define RME_WIRE_F_FROM_SENDER 0x08u /* CANCEL: the message's sender asks */
/* RTS: the sender had an invitation for this message, and does not take it */
#define RME_WIRE_F_DECLINED 0x10u
/* a receiver that does not know the type ignores the message */
#define RME_WIRE_F_OPTIONAL 0x80u

/* The status of FIN and REFUSED. */
enum rme_wire_status {
    RME_WIRE_OK = 0,
    RME_WIRE_TOO_LARGE = 1, /* the message is larger than the receive */
    RME_WIRE_CANCELED = 2,  /* the receive was cancelled */
    RME_WIRE_NO_MEMORY = 3, /* the receiver has no memory for it */
    RME_WIRE_BROKEN = 4,    /* the receiver's memory cannot be used (not mapped) */
};

struct rme_wire_segment {
    uint64_t address;
    uint64_t key;
    uint64_t length;
};

/* One message, decoded.  Fields that its type does not have are 0. */
struct rme_wire_message {
    uint8_t type;
    uint8_t flags;
    uint16_t credits;          /* receive buffers given back since the last message */
    uint32_t eager_taken;      /* cost of eager messages matched so far, modulo 2^32 */
    uint32_t unexpected_taken; /* cost of unexpected messages delivered so far, modulo 2^32 */
    /* EAGER, UNEXPECTED, RTS, CANCEL, REFUSED, INVITE; CREDIT: newly promised buffers; PING,
     * PONG: buffers that are asked for, given up */
    int32_t tag;
    const void *payload; /* EAGER, UNEXPECTED */
    size_t payload_length;
    /* from here on, the body: 0 where the type has nothing else */
    /* handle of the operation on the side that receives this; REFUSED: place of the message;
     * INVITE: expected messages seen */
    uint32_t to;
    uint32_t from; /* handle of the operation on the side that sends this */
    /* CTS, OFFER, INVITE: where in the message the window begins; FIN: bytes read so far */
    uint64_t offset;
    uint64_t total;      /* RTS, REFUSED: bytes of the message */
    uint64_t room;       /* REFUSED: bytes of the receive */
    uint64_t load_bytes; /* RTS: outstanding RDMA of the sender */
    uint32_t load_ops;
    uint32_t status;   /* FIN, REFUSED */
    uint32_t shape;    /* RTS: how many pieces the message has in the sender's memory */
    uint32_t nsegment; /* RTS, CTS, OFFER, INVITE, GRANT */
    uint64_t window;   /* likewise: sum of the segments' lengths */
    /* encoded; rme_wire_segment_at.  In an encoder's input: unused */
    const uint8_t *segment;
};

/* Sets the body to 0: field by field, as gcc makes a slow string instruction of a memset of
 * this size. */
static inline void rme_wire_clear_body(struct rme_wire_message *message)
{
    message->to = message->from = 0;
    message->offset = message->total = message->room = 0;
    message->load_bytes = 0;
    message->load_ops = message->status = message->shape = message->nsegment = 0;
    message->window = 0;
    message->segment = NULL;
}

/*
 * Decodes a message of `length` bytes.  The result points into `data`.  0; -EPROTO malformed;
 * -EOPNOTSUPP of unknown type and optional (the header's fields are filled in).
 */
int rme_wire_decode(const void *data, size_t length, struct rme_wire_message *out);

/*
 * A message in delegated memory: EAGER or UNEXPECTED, with its length behind the header.  Its
 * sender may change it at any time, so what is decoded is a copy; the payload that the result
 * points to may change, its length does not.  `room` bytes are there.  -EPROTO: malformed.
 */
int rme_wire_decode_fast(const void *data, size_t room, struct rme_wire_message *out);
/* All of it but the payload: RME_WIRE_FAST_SIZE bytes. */
void rme_wire_encode_fast(const struct rme_wire_message *message, uint32_t payload,
                          void *buffer);

/* Segment `i` < message->nsegment. */
void rme_wire_segment_at(const struct rme_wire_message *message, uint32_t i,
                         struct rme_wire_segment *out);

/*
 * Encodes all but an eager payload; the caller has made sure that the buffer holds
 * rme_wire_length().  Segments are put in by rme_wire_put_segment, before it or after,
 * message->nsegment of them.
 */
void rme_wire_encode(const struct rme_wire_message *message, void *buffer);
void rme_wire_put_segment(void *buffer, uint8_t type, uint32_t i,
                          const struct rme_wire_segment *segment);
size_t rme_wire_length(uint8_t type, uint32_t nsegment);

/* How many segments fit into a message of at most `size` bytes. */
uint32_t rme_wire_segments_max(uint8_t type, size_t size);

const char *rme_wire_type_name(uint8_t type);

/* FIN's status from and to a negative errno; an unknown status is -EPROTO. */
uint32_t rme_wire_status_of(int error);
int rme_wire_status_error(uint32_t status);

/* ---- Connection data ---- */

#define RME_HELLO_SIZE 40u /* bytes of a hello; some networks take 56 */
#define RME_HELLO_MAX  56u /* what a later version may grow to */

#define RME_HELLO_F_SERVER 0x01u /* listens for peers */
#define RME_HELLO_F_READ   0x02u /* its device can read remote memory */
#define RME_HELLO_F_INVITE 0x04u /* understands INVITE */
/* returns credits for what it took alone, and understands CREDIT's tag */
#define RME_HELLO_F_EXACT 0x08u
/* an answer to it may promise fewer than RME_HELLO_CREDITS_MIN; this one may */
#define RME_HELLO_F_LEAN 0x10u
#define RME_HELLO_F_FAST 0x20u /* understands GRANT, WITHDRAW, RELEASE */

/* What each side says when a link is made. */
struct rme_hello {
    uint8_t version;
    uint8_t version_min;
    uint8_t flags;
    uint64_t incarnation; /* another number at each start of a process's engine */
    uint32_t rx_size;     /* bytes of its receive buffers: the largest message to it */
    uint16_t credits;     /* how many of them are ours at first */
    /* cost of eager messages that it holds for us without a receive */
    uint32_t eager_window;
    uint32_t unexpected_window; /* the same for unexpected messages not delivered yet */
    /* unmatched RTS that it holds for us; the same number for unexpected ones */
    uint32_t rts_max;
};

void rme_hello_encode(const struct rme_hello *hello, uint8_t out[RME_HELLO_SIZE]);

/* id, value, what the log says */
#define RME_REJECT_REASONS(X)                                                                  \
    X(NONE, 0, "no reason given")                                                              \
    X(MAGIC, 1, "connection data of another protocol")                                         \
    X(VERSION, 2, "no common protocol version")                                                \
    X(RX_SIZE, 3, "receive buffers too small")                                                 \
    X(CREDITS, 4, "too few credits")                                                           \
    X(MEMORY, 5, "no memory")                                                                  \
    X(CLOSING, 6, "shutting down")                                                             \
    X(LIMITS, 7, "zero window or limit")

enum rme_reject_reason {
#define RME_REJECT_ENUM(id, value, text) RME_REJECT_##id = (value),
    RME_REJECT_REASONS(RME_REJECT_ENUM)
#undef RME_REJECT_ENUM
};

#define RME_REJECT_SIZE       16u
#define RME_HELLO_RX_MIN      512u /* smaller receive buffers are refused */
#define RME_HELLO_CREDITS_MIN 4u   /* of a request, and of an answer that is not lean */

/* Why a link was refused, and what would be accepted. */
struct rme_reject {
    uint8_t version;
    uint8_t version_min;
    uint8_t reason;
    /* VERSION: oldest version; RX_SIZE, CREDITS, LIMITS: smallest value; else 0 */
    uint32_t acceptable;
};

/*
 * Decodes and judges a hello; bytes behind the length it names are padding.  0, or -EPROTO with
 * *reject filled in.  Whether few credits are too few depends on what it answers: that is for
 * the caller to say, see RME_HELLO_F_LEAN.
 */
int rme_hello_decode(const void *data, size_t length, struct rme_hello *out,
                     struct rme_reject *reject);

void rme_reject_encode(const struct rme_reject *reject, uint8_t out[RME_REJECT_SIZE]);
int rme_reject_decode(const void *data, size_t length, struct rme_reject *out);
const char *rme_reject_text(uint8_t reason);

#endif
