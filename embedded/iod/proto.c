/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proto.c - codec of proto.h.
 *
 * One function handles the fields of all messages, in wire order, and a table has those of each
 * operation.  The same function encodes and decodes, as `struct wire` directs, so both cannot
 * differ.  Each step checks the remaining space; the first failure sets `bad`, and later steps
 * do nothing, so no step needs error handling.  Limits are checked after the walk, by the same
 * function for both directions.
 */
#include "config.h"
#include "embedded/iod/proto.h"

#include <errno.h>
#include <string.h>

#define REQUEST_MAGIC 0x51444f49u /* "IODQ" in memory order */
#define REPLY_MAGIC   0x52444f49u /* "IODR" */

struct wire {
    uint8_t *out;      /* encoding: destination; NULL when decoding */
    const uint8_t *in; /* decoding: source */
    size_t left;
    bool bad;
};

/* Consumes `n` bytes.  Returns false if fewer are left. */
static bool wire_take(struct wire *w, size_t n)
{
    if (w->bad || w->left < n) {
        w->bad = true;
        return false;
    }
    w->left -= n;
    return true;
}

static void wire_uint(struct wire *w, uint64_t *value, unsigned bytes)
{
    if (!wire_take(w, bytes))
        return;
    if (w->out) {
        for (unsigned i = 0; i < bytes; i++)
            *w->out++ = (uint8_t)(*value >> (8 * i));
    } else {
        *value = 0;
        for (unsigned i = 0; i < bytes; i++)
            *value |= (uint64_t)*w->in++ << (8 * i);
    }
}

static void wire_u64(struct wire *w, uint64_t *value)
{
    wire_uint(w, value, 8);
}

static void wire_u32(struct wire *w, uint32_t *value)
{
    uint64_t wide = *value;

    wire_uint(w, &wide, 4);
    *value = (uint32_t)wide;
}

static void wire_i32(struct wire *w, int32_t *value)
{
    uint32_t bits = (uint32_t)*value;

    wire_u32(w, &bits);
    memcpy(value, &bits, sizeof bits);
}

/* Handles `n` bytes; decoding returns a pointer into the message. */
static void wire_bytes(struct wire *w, const uint8_t **bytes, size_t n)
{
    if (!wire_take(w, n))
        return;
    if (w->out) {
        if (n)
            memcpy(w->out, *bytes, n);
        w->out += n;
    } else {
        *bytes = w->in;
        w->in += n;
    }
}

static void wire_string(struct wire *w, struct iod_string *string)
{
    uint64_t length = string->length;
    const uint8_t *bytes = (const uint8_t *)string->text;

    if (length > UINT16_MAX) {
        w->bad = true;
        return;
    }
    wire_uint(w, &length, 2);
    wire_bytes(w, &bytes, (size_t)length);
    string->length = (uint32_t)length;
    string->text = (const char *)bytes;
}

static void wire_layout(struct wire *w, struct iod_layout *layout)
{
    wire_u64(w, &layout->size);
    wire_u64(w, &layout->strip);
    wire_u32(w, &layout->index);
    wire_u32(w, &layout->count);
}

static void wire_id(struct wire *w, struct iod_id *id)
{
    wire_u64(w, &id->origin);
    wire_u64(w, &id->upload);
}

static void wire_entry(struct wire *w, struct iod_entry *entry)
{
    wire_layout(w, &entry->layout);
    wire_id(w, &entry->id);
    wire_u64(w, &entry->stored);
    wire_u64(w, &entry->mtime);
    wire_string(w, &entry->name);
}

static void wire_entries(struct wire *w, struct iod_entries *entries)
{
    wire_u32(w, &entries->count);
    wire_u32(w, &entries->length);
    wire_bytes(w, &entries->wire, entries->length);
}

/* ---- bodies ---- */

/* Fields of a body, in the order of the wire. */
enum field {
    HANDLE = 1,
    ID = 2,
    LAYOUT = 4,
    MODE = 8,
    GRANT = 16, /* size and number of buffers */
    NAME = 32,
    TAG = 64,
    ENTRIES = 128,
    TEXT = 256,
    UNKNOWN = 512
};

static const struct {
    unsigned request, reply;
} fields[] = {
    [IOD_OP_PUT_OPEN] = {ID | LAYOUT | MODE | GRANT | NAME, HANDLE | ID | GRANT},
    [IOD_OP_WRITE] = {HANDLE | TAG, 0},
    [IOD_OP_SEAL] = {HANDLE, 0},
    [IOD_OP_COMMIT] = {HANDLE, 0},
    [IOD_OP_GET_OPEN] = {ID | GRANT | NAME, HANDLE | ID | LAYOUT | MODE | GRANT},
    [IOD_OP_KEEP] = {HANDLE, 0},
    [IOD_OP_READ] = {HANDLE | TAG, 0},
    [IOD_OP_CLOSE] = {HANDLE, 0},
    [IOD_OP_LIST] = {ID | NAME, ENTRIES},
    [IOD_OP_REMOVE] = {ID | NAME, 0},
};

static bool op_known(enum iod_op op)
{
    return op >= 1 && op < sizeof fields / sizeof fields[0];
}

static unsigned fields_of(const struct iod_message *m, bool reply)
{
    if (reply && (m->flags & IOD_FLAG_WORKING))
        return 0;
    if (reply && m->status != IOD_OK)
        return TEXT;
    if (!op_known(m->op))
        return UNKNOWN;
    return reply ? fields[m->op].reply : fields[m->op].request;
}

static void body(struct wire *w, struct iod_message *m, unsigned has)
{
    if (has & HANDLE)
        wire_u64(w, &m->handle);
    if (has & ID)
        wire_id(w, &m->id);
    if (has & LAYOUT)
        wire_layout(w, &m->layout);
    if (has & MODE)
        wire_u32(w, &m->mode);
    if (has & GRANT) {
        wire_u32(w, &m->buffer_size);
        wire_u32(w, &m->buffers);
    }
    if (has & NAME)
        wire_string(w, &m->name);
    if (has & TAG)
        wire_i32(w, &m->data_tag);
    if (has & ENTRIES)
        wire_entries(w, &m->entries);
    if (has & TEXT)
        wire_string(w, &m->text);
    w->bad |= has == UNKNOWN;
}

/* ---- limits ---- */

static bool name_ok(const struct iod_string *name, uint32_t least)
{
    return name->length >= least && name->length <= IOD_NAME_MAX &&
           (name->length == 0 || !memchr(name->text, 0, name->length));
}

static bool layout_ok(const struct iod_layout *l)
{
    return l->size <= IOD_SIZE_MAX && l->strip >= IOD_STRIP_MIN && l->strip <= IOD_STRIP_MAX &&
           l->count >= 1 && l->count <= IOD_STRIPE_MAX && l->index < l->count;
}

static bool buffers_ok(uint32_t size, uint32_t count)
{
    return size >= IOD_BUFFER_MIN && size <= IOD_BUFFER_MAX && count >= 1 &&
           count <= IOD_BUFFERS_MAX;
}

static bool entries_ok(const struct iod_entries *entries)
{
    struct iod_entry entry;
    uint32_t at = 0, n = 0;

    while (iod_entry_next(entries, &at, &entry)) {
        if (!name_ok(&entry.name, 1) || !layout_ok(&entry.layout) || !entry.id.upload)
            return false;
        n++;
    }
    return at == entries->length && n == entries->count;
}

/* Checks what depends on the operation. */
static bool op_ok(const struct iod_message *m, bool reply)
{
    if (reply)
        return (m->op != IOD_OP_PUT_OPEN && m->op != IOD_OP_GET_OPEN) ||
               (m->handle && m->id.upload);
    switch (m->op) {
    case IOD_OP_PUT_OPEN:
        return (m->id.upload == 0) == (m->layout.index == 0);
    case IOD_OP_WRITE:
    case IOD_OP_READ:
        return m->data_tag >= 0;
    case IOD_OP_REMOVE:
        return m->id.upload != 0;
    default:
        return true;
    }
}

static bool message_ok(const struct iod_message *m, bool reply)
{
    unsigned has = fields_of(m, reply);

    return has != UNKNOWN && (!(has & LAYOUT) || layout_ok(&m->layout)) &&
           (!(has & MODE) || m->mode <= 0777) &&
           (!(has & GRANT) || buffers_ok(m->buffer_size, m->buffers)) &&
           (!(has & NAME) || name_ok(&m->name, m->op != IOD_OP_LIST)) &&
           (!(has & ENTRIES) || entries_ok(&m->entries)) &&
           (has & TEXT ? m->text.length <= IOD_TEXT_MAX : has == 0 || op_ok(m, reply));
}

/* ---- messages: head, body, limits ---- */

/* Handles the head: magic, version, operation, length of the message. */
static void wire_head(struct wire *w, uint32_t magic, uint32_t *op, uint32_t *length)
{
    uint32_t seen = magic;
    uint64_t version = IOD_VERSION, number = *op;

    wire_u32(w, &seen);
    wire_uint(w, &version, 2);
    wire_uint(w, &number, 2);
    wire_u32(w, length);
    if (seen != magic || version != IOD_VERSION)
        w->bad = true;
    *op = (uint32_t)number;
}

/* Writes the final length into the head. */
static int64_t wire_finish(const struct wire *w, uint8_t *buf, size_t size)
{
    size_t length = size - w->left;
    struct wire patch = {.out = buf + 8, .left = 4};
    uint32_t value = (uint32_t)length;

    if (w->bad)
        return -EMSGSIZE;
    wire_u32(&patch, &value);
    return (int64_t)length;
}

static bool status_known(uint32_t status)
{
    switch (status) {
#define IOD_STATUS_CASE(id, number, error) case number:
        IOD_STATUSES(IOD_STATUS_CASE)
#undef IOD_STATUS_CASE
        return true;
    }
    return false;
}

static int decode(const void *buf, size_t len, struct iod_message *m, bool reply)
{
    struct wire w = {.in = buf, .left = len};
    uint32_t op = 0, length = 0, status = 0;

    memset(m, 0, sizeof *m);
    if (len > (reply ? IOD_REPLY_MAX : IOD_REQUEST_MAX))
        return -EPROTO;
    wire_head(&w, reply ? REPLY_MAGIC : REQUEST_MAGIC, &op, &length);
    if (reply) {
        wire_u32(&w, &status);
        wire_u32(&w, &m->flags);
    }
    if (w.bad || length != len || !status_known(status))
        return -EPROTO;
    m->op = (enum iod_op)op;
    m->status = (enum iod_status)status;
    m->unread = m->flags >> IOD_UNREAD_SHIFT;
    m->flags &= (1u << IOD_UNREAD_SHIFT) - 1;
    body(&w, m, fields_of(m, reply));
    if (w.bad || w.left)
        return -EPROTO;
    return message_ok(m, reply) ? 0 : -EINVAL;
}

static int64_t encode(const struct iod_message *m, void *buf, size_t size, bool reply)
{
    struct iod_message copy = *m;
    struct wire w = {.out = buf, .left = size};
    uint32_t op = m->op, length = 0, status = m->status;
    uint32_t unread = m->unread < IOD_UNREAD_MAX ? m->unread : IOD_UNREAD_MAX;

    if (!message_ok(m, reply))
        return -EINVAL;
    wire_head(&w, reply ? REPLY_MAGIC : REQUEST_MAGIC, &op, &length);
    if (reply) {
        copy.flags |= unread << IOD_UNREAD_SHIFT;
        wire_u32(&w, &status);
        wire_u32(&w, &copy.flags);
    }
    body(&w, &copy, fields_of(m, reply));
    return wire_finish(&w, buf, size);
}

int iod_request_decode(const void *buf, size_t len, struct iod_message *request)
{
    return decode(buf, len, request, false);
}

int64_t iod_request_encode(const struct iod_message *request, void *buf, size_t size)
{
    return encode(request, buf, size, false);
}

int iod_reply_decode(const void *buf, size_t len, struct iod_message *reply)
{
    return decode(buf, len, reply, true);
}

int64_t iod_reply_encode(const struct iod_message *reply, void *buf, size_t size)
{
    return encode(reply, buf, size, true);
}

/* ---- entries, names ---- */

bool iod_entry_append(const struct iod_entry *entry, uint8_t *buf, size_t size,
                      uint32_t *length)
{
    struct iod_entry copy = *entry;
    struct wire w = {.out = buf + *length, .left = size - *length};

    wire_entry(&w, &copy);
    if (w.bad)
        return false;
    *length = (uint32_t)(size - w.left);
    return true;
}

bool iod_entry_next(const struct iod_entries *entries, uint32_t *at, struct iod_entry *entry)
{
    if (*at >= entries->length)
        return false;
    struct wire w = {.in = entries->wire + *at, .left = entries->length - *at};
    memset(entry, 0, sizeof *entry);
    wire_entry(&w, entry);
    if (w.bad)
        return false;
    *at = (uint32_t)(entries->length - w.left);
    return true;
}

int iod_id_compare(struct iod_id a, struct iod_id b)
{
    if (a.origin != b.origin)
        return a.origin < b.origin ? -1 : 1;
    return (a.upload > b.upload) - (a.upload < b.upload);
}

struct iod_id iod_entry_place(const struct iod_entry *entry)
{
    struct iod_id place = {0, 0};

    return entry->layout.index ? entry->id : place;
}

const char *iod_op_name(enum iod_op op)
{
    switch (op) {
#define IOD_OP_CASE(id, number, name)                                                          \
    case IOD_OP_##id:                                                                          \
        return name;
        IOD_OPS(IOD_OP_CASE)
#undef IOD_OP_CASE
    }
    return "unknown";
}

enum iod_status iod_status_from_errno(int error)
{
    if (error < 0)
        error = -error;
    switch (error) {
#define IOD_STATUS_CASE(id, number, from)                                                      \
    case from:                                                                                 \
        return IOD_##id;
        IOD_STATUSES(IOD_STATUS_CASE)
#undef IOD_STATUS_CASE
    case EPERM:
        return IOD_DENIED;
    case EEXIST: /* two parts of one copy */
        return IOD_INVALID;
    case ENFILE:
        return IOD_FILES;
    case EXFULL: /* memory of a store in memory */
        return IOD_NO_SPACE;
    case ENODATA: /* truncated file of an object */
        return IOD_DAMAGED;
    }
    return IOD_IO;
}

struct iod_string iod_string_of(const char *text)
{
    struct iod_string string = {text ? text : "", text ? (uint32_t)strlen(text) : 0};

    return string;
}
