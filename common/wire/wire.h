/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The codec of the wire protocol; doc/wire-protocol.md describes every field.  Encoders and
 * decoders are pure functions: no state, no allocation.  Decoders check every length before
 * they read the bytes behind it.  All integers are little-endian.
 */
#ifndef RME_WIRE_H
#define RME_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RME_WIRE_MAGIC       0x31454d52u /* "RME1" */
#define RME_WIRE_VERSION     4u          /* the version we send */
#define RME_WIRE_VERSION_MIN 4u          /* the oldest version we accept */

/* ---- Messages ---- */

/* id, value, name */
#define RME_WIRE_TYPES(X)                                                                      \
    X(EAGER, 1, "a whole message")                                                             \
    X(RTS, 2, "a message is ready; advertises memory of the sender")                           \
    X(CTS, 3, "memory of the receiver is open for a message")                                  \
    X(FIN, 4, "read, or refused, or a cancelled operation was left")                           \
    X(CANCEL, 5, "request to leave an operation")                                              \
    X(CREDIT, 6, "credits; a ring is granted, withdrawn or released")                          \
    X(BYE, 7, "last message; the link is about to close")                                      \
    X(PING, 8, "liveness probe")                                                               \
    X(PONG, 9, "yes")

enum rme_wire_type {
#define RME_WIRE_ENUM(id, value, text) RME_WIRE_##id = (value),
    RME_WIRE_TYPES(RME_WIRE_ENUM)
#undef RME_WIRE_ENUM
};

/* bytes of the header of every message; an eager message is header and payload */
#define RME_WIRE_HEADER_SIZE 16u
#define RME_WIRE_BODY_SIZE   48u /* bytes of the body of RTS, CTS, FIN and CANCEL */
/* bytes before the payload of a message in a ring: header, length */
#define RME_WIRE_RING_SIZE  32u
#define RME_WIRE_RING_ALIGN 64u /* alignment of such a message */
/* immediates from here on name the places for such messages; no operation has such a handle */
#define RME_WIRE_RING_NAME 0xffff0000u

/* Flags of the header; most belong to the types that their comment names. */
/* the sender had to wait for credits, and would use more of them */
#define RME_WIRE_F_STALLED     0x01u
#define RME_WIRE_F_UNEXPECTED  0x02u /* EAGER, RTS, CANCEL: of an unexpected message */
#define RME_WIRE_F_FROM_SENDER 0x08u /* CANCEL: sent by the sender of the message */
#define RME_WIRE_F_UNSOLICITED 0x10u /* CTS: precedes the RTS of its message */
#define RME_WIRE_F_EAGER       0x02u /* FIN: refuses an eager message */
#define RME_WIRE_F_GRANT       0x04u /* CREDIT: a ring is granted */
#define RME_WIRE_F_WITHDRAW    0x08u /* CREDIT: request to release the granted ring */
#define RME_WIRE_F_RELEASE     0x10u /* CREDIT: the granted ring is released */
/* a receiver ignores the message if the type is unknown */
#define RME_WIRE_F_OPTIONAL 0x80u

/* Status of FIN. */
enum rme_wire_status {
    RME_WIRE_OK = 0,
    RME_WIRE_TOO_LARGE = 1, /* the message is larger than the receive */
    RME_WIRE_CANCELED = 2,  /* the operation was cancelled */
    RME_WIRE_NO_MEMORY = 3, /* the receiver has no memory for it */
    RME_WIRE_BROKEN = 4,    /* the receiver's memory is unusable (not mapped) */
};

/* An encoded segment has the same layout. */
struct rme_wire_segment {
    uint64_t address;
    uint64_t key;
    uint64_t length;
};

/* A decoded message.  Fields that its type lacks are 0.  The header, from `type` to `tag`, and
 * the body, from `to` to `nsegment`, have the layout of the encoded ones. */
struct rme_wire_message {
    uint8_t type;
    uint8_t flags;
    uint16_t credits;        /* receive buffers returned since the last message */
    uint32_t eager_consumed; /* cost of all eager messages matched so far, modulo 2^32 */
    /* cost of all unexpected messages delivered so far, modulo 2^32 */
    uint32_t unexpected_consumed;
    /* EAGER, RTS, CANCEL, unsolicited CTS, FIN of an eager message; CREDIT: newly advertised
     * buffers; PING: buffers requested; PONG: buffers given up */
    int32_t tag;
    /* handle of the operation at the receiver of this message; FIN of an eager message: its
     * place; unsolicited CTS: expected messages seen */
    uint32_t to;
    uint32_t from; /* handle of the operation at the sender of this message */
    /* CTS: offset of the window in the message; FIN: bytes read, or bytes of the receive that
     * an eager message has met */
    uint64_t offset;
    uint64_t total;      /* RTS, FIN of an eager message: bytes of the message */
    uint64_t load_bytes; /* RTS: outstanding RDMA bytes of the sender */
    uint32_t load_ops;
    uint32_t status; /* FIN */
    /* number of pieces of the message in the memory of the side that sends RTS, CTS or FIN; of
     * CTS and FIN 0 if unknown */
    uint32_t shape;
    uint32_t nsegment;    /* RTS, CTS; CREDIT: 1 with the flag GRANT */
    uint64_t rndv_window; /* sum of the lengths of the segments */
    /* encoded, see rme_wire_segment_at; unused by encoders */
    const uint8_t *segment;
    const void *payload; /* EAGER */
    size_t payload_length;
};

/* Clears all fields behind the header, in pieces that gcc compiles to single stores. */
static inline void rme_wire_clear(struct rme_wire_message *message)
{
    memset((char *)message + RME_WIRE_HEADER_SIZE, 0, RME_WIRE_BODY_SIZE);
    message->rndv_window = 0;
    message->segment = NULL;
    message->payload = NULL;
    message->payload_length = 0;
}

/* sizes of the members of encoded structures, a digit for each */
#define RME_WIRE_HEADER  "112444"
#define RME_WIRE_BODY    "448884444"
#define RME_WIRE_SEGMENT "888"
#define RME_WIRE_HELLO   "4111184224444"
#define RME_WIRE_REJECT  "4111144"

/* Reverses the bytes of each member of a structure, in place. */
static inline void rme_wire_swap(void *at, const char *members)
{
    for (char *byte = (char *)at; *members != '\0'; byte += *members++ - '0')
        for (int low = 0, high = *members - '1'; low < high; low++, high--) {
            char moved = byte[low];

            byte[low] = byte[high];
            byte[high] = moved;
        }
}
/* Converts an encoded structure between the byte order of this host and little-endian, in
 * place. */
static inline void rme_wire_order(void *at, const char *members)
{
    if (BYTE_ORDER != LITTLE_ENDIAN)
        rme_wire_swap(at, members);
}

/* Copies a header, all of an eager message but its payload, between a message and its encoded
 * form; in pieces, which compilers keep in registers. */
static inline void rme_wire_copy_head(void *to, const void *from)
{
    char *out = (char *)to;
    const char *in = (const char *)from;

    memcpy(out, in, 1);
    memcpy(out + 1, in + 1, 1);
    memcpy(out + 2, in + 2, 2);
    memcpy(out + 4, in + 4, 4);
    memcpy(out + 8, in + 8, 4);
    memcpy(out + 12, in + 12, 4);
    rme_wire_order(to, RME_WIRE_HEADER);
}

/* Decodes a message of `length` bytes.  The result points into `data`.  Returns 0; -EPROTO:
 * malformed; -EOPNOTSUPP: unknown type and optional (the header's fields are set). */
int rme_wire_decode(const void *data, size_t length, struct rme_wire_message *out);

/*
 * Decodes a message in a ring of `room` bytes: EAGER, with its length behind the
 * header.  The sender may change the buffer at any time, so the header is copied
 * before it is decoded; the payload may change, its length does not.  -EPROTO: malformed.
 */
int rme_wire_decode_ring(const void *data, size_t room, struct rme_wire_message *out);
/* Encodes all but the payload: RME_WIRE_RING_SIZE bytes. */
void rme_wire_encode_ring(const struct rme_wire_message *message, uint32_t payload,
                          void *buffer);

/* Returns segment `i` < message->nsegment. */
void rme_wire_segment_at(const struct rme_wire_message *message, uint32_t i,
                         struct rme_wire_segment *out);

/* Encodes all but an eager payload, into a buffer of at least rme_wire_length() bytes.
 * rme_wire_put_segment adds the message->nsegment segments, before or after. */
void rme_wire_encode(const struct rme_wire_message *message, void *buffer);
void rme_wire_put_segment(void *buffer, uint8_t type, uint32_t i,
                          const struct rme_wire_segment *segment);
size_t rme_wire_length(uint8_t type, uint32_t nsegment);

/* Returns how many segments fit into a message of at most `size` bytes. */
uint32_t rme_wire_segments_max(uint8_t type, size_t size);

const char *rme_wire_type_name(uint8_t type);

/* Convert the status of FIN from and to a negative errno; an unknown status is -EPROTO. */
uint32_t rme_wire_status_of(int error);
int rme_wire_status_error(uint32_t status);

/* ---- Connection data ---- */

#define RME_HELLO_SIZE 40u /* bytes of a hello; some networks carry at most 56 */
#define RME_HELLO_MAX  56u /* limit of later versions */

#define RME_HELLO_F_SERVER    0x01u /* listens for connections */
#define RME_HELLO_F_READ      0x02u /* the device can read remote memory */
#define RME_HELLO_F_EARLY_CTS 0x04u /* understands unsolicited CTS */
/* keys are those of windows that messages may close, and FIN may report writes */
#define RME_HELLO_F_CLOSES 0x08u
#define RME_HELLO_F_RING   0x20u /* uses rings */
#define RME_HELLO_F_SHAPE  0x40u /* accepts `shape` in CTS and FIN */

/* Connection data of each side; the encoded layout.  The encoder sets `magic` and `length`. */
struct rme_hello {
    uint32_t magic;
    uint8_t version;
    uint8_t version_min;
    uint8_t length;
    uint8_t flags;
    uint64_t incarnation; /* random number of the engine, different after each start */
    uint32_t rx_size;     /* bytes of the receive buffers: the largest message */
    uint16_t credits;     /* receive buffers posted for the peer at first */
    uint16_t reserved;
    /* limit of the cost of unmatched eager messages that are kept for the peer */
    uint32_t eager_window;
    /* the same for unexpected messages that are not delivered yet */
    uint32_t unexpected_window;
    /* limit of unmatched RTS kept for the peer; the same number for unexpected ones */
    uint32_t rts_max;
    uint32_t reserved_too;
};

void rme_hello_encode(const struct rme_hello *hello, uint8_t out[RME_HELLO_SIZE]);

/* id, value, text of the log */
#define RME_REJECT_REASONS(X)                                                                  \
    X(NONE, 0, "no reason given")                                                              \
    X(MAGIC, 1, "connection data of another protocol")                                         \
    X(VERSION, 2, "no common protocol version")                                                \
    X(RX_SIZE, 3, "receive buffers too small")                                                 \
    X(CREDITS, 4, "too few credits")                                                           \
    X(MEMORY, 5, "no memory, or the host holds its share (rx_buffered_bytes)")                 \
    X(CLOSING, 6, "shutting down")                                                             \
    X(LIMITS, 7, "zero window or limit")

enum rme_reject_reason {
#define RME_REJECT_ENUM(id, value, text) RME_REJECT_##id = (value),
    RME_REJECT_REASONS(RME_REJECT_ENUM)
#undef RME_REJECT_ENUM
};

#define RME_REJECT_SIZE       16u
#define RME_HELLO_RX_MIN      512u /* smaller receive buffers are refused */
#define RME_HELLO_CREDITS_MIN 4u   /* minimum of a request; the minimum of an answer is 1 */

/* Reason of a rejected connection, and an acceptable value; the encoded layout.  The encoder
 * sets the fields up to `length`. */
struct rme_reject {
    uint32_t magic;
    uint8_t version;
    uint8_t version_min;
    uint8_t length;
    uint8_t reason;
    /* VERSION: oldest version; RX_SIZE, CREDITS, LIMITS: minimum; else 0 */
    uint32_t acceptable;
    uint32_t reserved;
};

/* Decodes and validates a hello; bytes behind the length that it names are padding.  Returns
 * 0, or -EPROTO with *reject set.  The caller checks the minimum of credits of a request. */
int rme_hello_decode(const void *data, size_t length, struct rme_hello *out,
                     struct rme_reject *reject);

void rme_reject_encode(const struct rme_reject *reject, uint8_t out[RME_REJECT_SIZE]);
int rme_reject_decode(const void *data, size_t length, struct rme_reject *out);
const char *rme_reject_text(uint8_t reason);

#endif
