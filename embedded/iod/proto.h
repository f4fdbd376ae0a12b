/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proto.h - protocol of bmi-iod and its clients: requests, replies and their encoding.
 *
 * A request is one unexpected BMI message; its BMI tag is the tag of the replies, which are
 * expected messages.  File data travels in further expected messages, with a tag named in the
 * request.  doc/iod-protocol.md describes the format field by field.
 *
 * Encoding and decoding are pure: they access only their arguments, allocate nothing, and stay
 * inside the given buffer.  Decoded values are within the limits stated here and need no
 * further range checks.
 */
#ifndef IOD_PROTO_H
#define IOD_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IOD_VERSION     6
#define IOD_REQUEST_MAX 16384 /* bytes of a request: BMI's maximum for unexpected messages */
#define IOD_REPLY_MAX   65536 /* bytes of a reply */
#define IOD_KEEP_MAX    128   /* bytes of a message without name, text and entries */
#define IOD_NAME_MAX    240   /* bytes of an object's name */
#define IOD_TEXT_MAX    512   /* bytes of an error text */
#define IOD_STRIPE_MAX  256   /* servers of one object */
#define IOD_STRIP_MIN   64    /* bytes of a strip */
#define IOD_STRIP_MAX   (UINT64_C(1) << 30)
#define IOD_SIZE_MAX    (UINT64_C(1) << 62) /* bytes of a file */
#define IOD_BUFFER_MIN  4096                /* bytes of a data message */
#define IOD_BUFFER_MAX  (4u << 20)
#define IOD_BUFFERS_MAX 64 /* data messages in flight per transfer */

/* Operations: id, number on the wire, name. */
#define IOD_OPS(X)                                                                             \
    X(PUT_OPEN, 1, "put-open")                                                                 \
    X(WRITE, 2, "write")                                                                       \
    X(SEAL, 3, "seal")                                                                         \
    X(COMMIT, 4, "commit")                                                                     \
    X(GET_OPEN, 5, "get-open")                                                                 \
    X(KEEP, 6, "keep")                                                                         \
    X(READ, 7, "read")                                                                         \
    X(CLOSE, 8, "close")                                                                       \
    X(LIST, 9, "list")                                                                         \
    X(REMOVE, 10, "remove")

enum iod_op {
#define IOD_OP_ENUM(id, number, name) IOD_OP_##id = number,
    IOD_OPS(IOD_OP_ENUM)
#undef IOD_OP_ENUM
};

/* Results: id, number on the wire, equivalent errno. */
#define IOD_STATUSES(X)                                                                        \
    X(OK, 0, 0)                                                                                \
    X(NOT_FOUND, 1, ENOENT)                                                                    \
    X(NO_SPACE, 2, ENOSPC)                                                                     \
    X(DENIED, 3, EACCES)                                                                       \
    X(IO, 4, EIO)                                                                              \
    X(INVALID, 5, EINVAL)                                                                      \
    X(BUSY, 6, EBUSY)                                                                          \
    X(NO_MEMORY, 7, ENOMEM)                                                                    \
    X(TOO_LARGE, 8, EFBIG)                                                                     \
    X(READ_ONLY, 9, EROFS)                                                                     \
    X(NO_HANDLE, 10, EBADF)                                                                    \
    X(TIMED_OUT, 11, ETIMEDOUT)                                                                \
    X(NAME_TOO_LONG, 12, ENAMETOOLONG)                                                         \
    X(QUOTA, 13, EDQUOT)                                                                       \
    X(DAMAGED, 14, EUCLEAN)                                                                    \
    X(PROTOCOL, 15, EPROTO)                                                                    \
    X(FILES, 16, EMFILE)                                                                       \
    X(STOPPING, 17, ESHUTDOWN)                                                                 \
    X(STALE, 18, ESTALE)

enum iod_status {
#define IOD_STATUS_ENUM(id, number, error) IOD_##id = number,
    IOD_STATUSES(IOD_STATUS_ENUM)
#undef IOD_STATUS_ENUM
};

#define IOD_FLAG_WORKING  1u /* keep-alive: the server works, another reply follows */
#define IOD_FLAG_MORE     2u /* the list continues: request again from its end */
#define IOD_FLAG_REPLACED 4u /* COMMIT: a later copy has replaced this one already */

/* Above the flags: number of unreadable objects omitted from a list, up to this maximum. */
#define IOD_UNREAD_SHIFT 16
#define IOD_UNREAD_MAX   0xffffu

/* Copy of a file: the store of its part 0, and that store's number of the upload. */
struct iod_id {
    uint64_t origin, upload; /* upload 0: none */
};

/* Returns -1, 0 or 1 as a is below, equal to, or above b. */
int iod_id_compare(struct iod_id a, struct iod_id b);

/* Bytes inside a message (or of the caller, when encoding); not terminated. */
struct iod_string {
    const char *text;
    uint32_t length;
};

/* Striping of a file, recorded with each of its objects. */
struct iod_layout {
    uint64_t size;  /* bytes of the whole file */
    uint64_t strip; /* contiguous bytes on one server */
    uint32_t index; /* server of the stripe with this object */
    uint32_t count; /* servers of the stripe */
};

/* Packed list entries; see iod_entry_append() and iod_entry_next(). */
struct iod_entries {
    uint32_t count;
    uint32_t length;
    const uint8_t *wire;
};

struct iod_entry {
    struct iod_string name;
    struct iod_layout layout;
    struct iod_id id;
    uint64_t stored; /* bytes of the object on this server */
    uint64_t mtime;  /* seconds since 1970 */
};

/*
 * Request or reply.  Fields in use by `op`, others are ignored:
 *
 *             request                                         reply
 *   PUT_OPEN  id (none for part 0, which gets one) layout     handle id buffer_size buffers
 *             mode buffer_size buffers name
 *   GET_OPEN  id (none: the object of this name)              handle id layout mode buffer_size
 *             buffer_size buffers name                        buffers
 *   READ      handle data_tag
 *   WRITE     as READ
 *   REMOVE    id name
 *   LIST      id name (lists what follows in the order of     entries unread (unreadable
 *             lists)                                          objects, at most IOD_UNREAD_MAX)
 *   others    handle
 *
 * A reply with a status other than IOD_OK uses only `text`, and nothing with IOD_FLAG_WORKING.
 */
struct iod_message {
    enum iod_op op;
    enum iod_status status; /* of a reply, */
    uint32_t flags;         /* and its flags */
    uint32_t unread;
    uint64_t handle;
    struct iod_id id;
    struct iod_layout layout;
    uint32_t mode;
    uint32_t buffer_size; /* bytes of a data message, as requested or granted */
    uint32_t buffers;     /* data messages in flight, likewise */
    int32_t data_tag;
    struct iod_entries entries;
    struct iod_string name, text;
};

/*
 * Decode a message of `len` bytes.  Return 0, -EPROTO (another protocol or version, or a wrong
 * length) or -EINVAL (a value out of range); the output is undefined after an error.  Strings
 * and entries point into `buf`.
 */
int iod_request_decode(const void *buf, size_t len, struct iod_message *request);
int iod_reply_decode(const void *buf, size_t len, struct iod_message *reply);

/* Encode into at most `size` bytes.  Return the length, -EMSGSIZE (no room) or -EINVAL (a value
 * out of range). */
int64_t iod_request_encode(const struct iod_message *request, void *buf, size_t size);
int64_t iod_reply_encode(const struct iod_message *reply, void *buf, size_t size);

/* Appends an entry at *length of `buf`.  Returns false, without effect, if it does not fit into
 * `size` bytes. */
bool iod_entry_append(const struct iod_entry *entry, uint8_t *buf, size_t size,
                      uint32_t *length);

/* Returns the decoded entry at *at, initially 0, and advances *at; false behind the last
 * entry. */
bool iod_entry_next(const struct iod_entries *entries, uint32_t *at, struct iod_entry *entry);

/* Returns true if the values of a decoded entry are within the limits. */
bool iod_entry_ok(const struct iod_entry *entry);

/* Returns the place of an entry in lists, which are ordered by name, then by this: that of the
 * object which has the name is zero, that of another part its id. */
struct iod_id iod_entry_place(const struct iod_entry *entry);

const char *iod_op_name(enum iod_op op);
/* Converts a positive or negative errno; IOD_IO if unknown. */
enum iod_status iod_status_from_errno(int error);
struct iod_string iod_string_of(const char *text); /* NULL: the empty string */

#endif
