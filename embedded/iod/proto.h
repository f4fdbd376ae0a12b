/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proto.h - what bmi-iod and its clients say to each other: requests, replies, and their
 * encoding.
 *
 * A request is one unexpected BMI message; its BMI tag is the tag of the replies, which are
 * expected messages.  File data moves as further expected messages with a tag that the request
 * names.  The format is described field by field in doc/iod-protocol.md.
 *
 * Encoding and decoding are pure: they touch only their arguments, allocate nothing, and never
 * read or write outside the buffer given.  What a decoder accepted is safe to use without
 * further range checks, with the limits stated here.
 */
#ifndef IOD_PROTO_H
#define IOD_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IOD_VERSION     4
#define IOD_REQUEST_MAX 16384 /* bytes of a request: BMI's unexpected maximum */
#define IOD_REPLY_MAX   65536 /* bytes of a reply */
#define IOD_NAME_MAX    240   /* bytes of an object's name */
#define IOD_SERVERS_MAX 2048  /* bytes of a recorded server list */
#define IOD_TEXT_MAX    512   /* bytes of an error text */
#define IOD_STRIPE_MAX  256   /* servers of one object */
#define IOD_STRIP_MIN   64    /* bytes of a strip */
#define IOD_STRIP_MAX   (UINT64_C(1) << 30)
#define IOD_SIZE_MAX    (UINT64_C(1) << 62) /* bytes of a file */
#define IOD_BUFFER_MIN  4096                /* bytes of a data message */
#define IOD_BUFFER_MAX  (4u << 20)
#define IOD_BUFFERS_MAX 64   /* data messages in flight of one transfer */
#define IOD_EXTENTS_MAX 1000 /* extents in one request or reply */

/* Operations: id, number on the wire, name. */
#define IOD_OPS(X)                                                                             \
    X(PUT_OPEN, 1, "put-open")                                                                 \
    X(WRITE, 2, "write")                                                                       \
    X(SEAL, 3, "seal")                                                                         \
    X(COMMIT, 4, "commit")                                                                     \
    X(GET_OPEN, 5, "get-open")                                                                 \
    X(EXTENTS, 6, "extents")                                                                   \
    X(READ, 7, "read")                                                                         \
    X(CLOSE, 8, "close")                                                                       \
    X(LIST, 9, "list")                                                                         \
    X(FORGET, 10, "forget")                                                                    \
    X(REMOVE, 11, "remove")

enum iod_op {
#define IOD_OP_ENUM(id, number, name) IOD_OP_##id = number,
    IOD_OPS(IOD_OP_ENUM)
#undef IOD_OP_ENUM
};

/* Results: id, number on the wire, errno that stands for it in this program. */
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

#define IOD_FLAG_WORKING 1u /* no answer yet: the server is alive, another reply follows */
#define IOD_FLAG_MORE    2u /* the list goes on: ask again from where this one ended */
#define IOD_FLAG_LATER                                                                         \
    4u /* with BUSY: a bound was met, nothing was done, ask the same again \
                             */

/* Above the flags: how many objects a list leaves out as they cannot be read, at most so many.
 * Programs of before do not look there. */
#define IOD_UNREAD_SHIFT 16
#define IOD_UNREAD_MOST  0xffffu

/* Bytes inside a message (or of the caller, for encoding); not terminated. */
struct iod_string {
    const char *text;
    uint32_t length;
};

/* A range of an object's bytes. */
struct iod_extent {
    uint64_t offset;
    uint64_t length;
};

/* Extents of a message.  Encoding reads `array`; decoding sets `wire`.  Read them with
 * iod_extents_at(). */
struct iod_extents {
    uint32_t count;
    const struct iod_extent *array;
    const uint8_t *wire;
};

struct iod_extent iod_extents_at(const struct iod_extents *extents, uint32_t i);

/* The sum of all lengths; cannot overflow for decoded extents, which are ascending and end
 * below 2^63. */
uint64_t iod_extents_bytes(const struct iod_extents *extents);

/* How a file lies on its servers, as recorded with each of its objects. */
struct iod_layout {
    uint64_t size;  /* bytes of the whole file */
    uint64_t strip; /* bytes that lie on one server before the next one follows */
    uint32_t index; /* which server of the stripe this object belongs to */
    uint32_t count; /* servers of the stripe */
};

/*
 * A request.  `op` says which fields count:
 *
 *   PUT_OPEN             upload layout mode buffer_size buffers name servers
 *   GET_OPEN             upload (0: whatever has the name) buffer_size buffers name
 *   READ, WRITE          handle data_tag extents
 *   EXTENTS              handle from
 *   SEAL                 handle version
 *   COMMIT, CLOSE        handle
 *   FORGET, REMOVE       upload name
 *   LIST                 name (list what sorts behind it)
 */
struct iod_request {
    enum iod_op op;
    uint64_t handle;
    uint64_t upload;
    uint64_t version;
    uint64_t from;
    struct iod_layout layout;
    uint32_t mode;
    uint32_t buffer_size; /* bytes of a data message that the client would like */
    uint32_t buffers;     /* how many of them in flight */
    int32_t data_tag;
    struct iod_extents extents;
    struct iod_string name;
    struct iod_string servers;
};

/* List entries, packed one behind the other; see iod_entry_append() and iod_entry_next(). */
struct iod_entries {
    uint32_t count;
    uint32_t length;
    const uint8_t *wire;
};

struct iod_entry {
    struct iod_string name;
    struct iod_layout layout;
    uint64_t upload;
    uint64_t stored; /* bytes of the object on this server */
    uint64_t mtime;  /* seconds since 1970 */
};

/*
 * A reply.  With a status other than IOD_OK only `text` counts; with IOD_FLAG_WORKING nothing
 * else does.  Otherwise:
 *
 *   PUT_OPEN  handle buffer_size buffers version (the highest that the name has there)
 *   COMMIT    upload (which one has the name now; 0: none, seal above version, which was
 *             removed meanwhile, and commit again) version
 *   GET_OPEN  handle buffer_size buffers layout upload version mode servers pending
 *             pending_servers; handle 0: nothing has the name, see pending
 *   EXTENTS   from (where to go on) extents
 *   LIST      entries unread (objects that cannot be read, at most IOD_UNREAD_MOST)
 *   others    nothing
 */
struct iod_reply {
    enum iod_op op;
    enum iod_status status;
    uint32_t flags;
    uint32_t unread;
    uint64_t handle;
    uint64_t upload;
    uint64_t version;
    uint64_t pending; /* an upload that is prepared there, above this one; 0: none */
    uint64_t from;
    struct iod_layout layout;
    uint32_t mode;
    uint32_t buffer_size;
    uint32_t buffers;
    struct iod_extents extents;
    struct iod_entries entries;
    struct iod_string text;
    struct iod_string servers;
    struct iod_string pending_servers;
};

/*
 * Decode a message of `len` bytes.  0, or -EPROTO (not of this protocol or version, or its
 * length is wrong), -EINVAL (a value outside its limits); then the output is undefined.
 * Strings, extents and entries point into `buf`.
 */
int iod_request_decode(const void *buf, size_t len, struct iod_request *request);
int iod_reply_decode(const void *buf, size_t len, struct iod_reply *reply);

/* Encode into at most `size` bytes.  Returns the length, or -EMSGSIZE (no room), -EINVAL (a
 * decoder would refuse it). */
int64_t iod_request_encode(const struct iod_request *request, void *buf, size_t size);
int64_t iod_reply_encode(const struct iod_reply *reply, void *buf, size_t size);

/* Append an entry at *length of `buf`; false and nothing done when it does not fit into `size`
 * bytes. */
bool iod_entry_append(const struct iod_entry *entry, uint8_t *buf, size_t size,
                      uint32_t *length);

/* The entry at *at of decoded entries, stepping *at (start with 0); false behind the last. */
bool iod_entry_next(const struct iod_entries *entries, uint32_t *at, struct iod_entry *entry);

const char *iod_op_name(enum iod_op op);
enum iod_status iod_status_from_errno(
    int error); /* positive or negative errno; IOD_IO for strangers */
struct iod_string iod_string_of(const char *text); /* NULL gives the empty string */

#endif
