/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proto.c - codec of proto.h.
 *
 * All messages have the same fields, which tables list in wire order.  The same function
 * encodes and decodes them, as `struct wire` directs, so both cannot differ.  Each step checks
 * the remaining space; the first failure sets `bad`, and later steps do nothing, so no step
 * needs error handling.  Limits are checked after the walk, by the same function for both
 * directions, for the fields that the operation uses.
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

/* Handles `n` bytes; decoding returns a pointer into the message. */
static void wire_bytes(struct wire *w, const uint8_t **bytes, size_t n)
{
    if (w->bad || w->left < n) {
        w->bad = true;
        return;
    }
    w->left -= n;
    if (w->out != NULL) {
        if (n)
            memcpy(w->out, *bytes, n);
        w->out += n;
    } else {
        *bytes = w->in;
        w->in += n;
    }
}

static void wire_uint(struct wire *w, uint64_t *value, unsigned bytes)
{
    uint8_t little[8];
    const uint8_t *at = little;

    for (unsigned i = 0; i < bytes; i++)
        little[i] = (uint8_t)(*value >> (8 * i));
    wire_bytes(w, &at, bytes);
    if (w->out != NULL || w->bad)
        return;
    *value = 0;
    for (unsigned i = 0; i < bytes; i++)
        *value |= (uint64_t)at[i] << (8 * i);
}

static void wire_u32(struct wire *w, uint32_t *value)
{
    uint64_t wide = *value;

    wire_uint(w, &wide, 4);
    *value = (uint32_t)wide;
}

static void wire_string(struct wire *w, struct iod_string *string)
{
    uint64_t length = string->length;
    const uint8_t *bytes = (const uint8_t *)string->text;

    w->bad |= length > UINT16_MAX;
    wire_uint(w, &length, 2);
    wire_bytes(w, &bytes, w->bad ? 0 : (size_t)length);
    string->length = (uint32_t)length;
    string->text = (const char *)bytes;
}

/* Field of a structure, of 4 or 8 bytes. */
struct field {
    size_t at;
    unsigned bytes;
};

#define FIELD(type, name)                                                                      \
    {                                                                                          \
        offsetof(struct type, name), sizeof(((struct type *)0)->name)                          \
    }
#define LAYOUT_AND_ID(type)                                                                    \
    FIELD(type, layout.size), FIELD(type, layout.strip), FIELD(type, layout.index),            \
        FIELD(type, layout.count), FIELD(type, id.origin), FIELD(type, id.upload)

static const struct field of_message[] = {
    FIELD(iod_message, handle),       LAYOUT_AND_ID(iod_message),  FIELD(iod_message, mode),
    FIELD(iod_message, buffer_size),  FIELD(iod_message, buffers), FIELD(iod_message, data_tag),
    FIELD(iod_message, entries.count)};
static const struct field of_entry[] = {LAYOUT_AND_ID(iod_entry), FIELD(iod_entry, stored),
                                        FIELD(iod_entry, mtime)};

static void wire_fields(struct wire *w, const struct field *field, size_t n, void *record)
{
    for (size_t i = 0; i < n; i++) {
        char *at = (char *)record + field[i].at;

        if (field[i].bytes == 8)
            wire_uint(w, (uint64_t *)(void *)at, 8);
        else
            wire_u32(w, (uint32_t *)(void *)at);
    }
}

static void wire_entry(struct wire *w, struct iod_entry *entry)
{
    wire_fields(w, of_entry, sizeof of_entry / sizeof of_entry[0], entry);
    wire_string(w, &entry->name);
}

/* ---- limits ---- */

static bool name_ok(const struct iod_string *name, uint32_t least)
{
    return name->length >= least && name->length <= IOD_NAME_MAX &&
           (name->length == 0 || memchr(name->text, 0, name->length) == NULL);
}

static bool layout_ok(const struct iod_layout *l)
{
    return l->size <= IOD_SIZE_MAX && l->strip >= IOD_STRIP_MIN && l->strip <= IOD_STRIP_MAX &&
           l->count >= 1 && l->count <= IOD_STRIPE_MAX && l->index < l->count;
}

static bool buffers_ok(const struct iod_message *m)
{
    return m->buffer_size >= IOD_BUFFER_MIN && m->buffer_size <= IOD_BUFFER_MAX &&
           m->buffers >= 1 && m->buffers <= IOD_BUFFERS_MAX;
}

bool iod_entry_ok(const struct iod_entry *entry)
{
    return name_ok(&entry->name, 1) && layout_ok(&entry->layout) && entry->id.upload;
}

static bool entries_ok(const struct iod_entries *entries)
{
    struct iod_entry entry;
    uint32_t at = 0, n = 0;

    while (iod_entry_next(entries, &at, &entry)) {
        if (!iod_entry_ok(&entry))
            return false;
        n++;
    }
    return at == entries->length && n == entries->count;
}

static bool op_known(enum iod_op op)
{
    return op >= IOD_OP_PUT_OPEN && op <= IOD_OP_REMOVE;
}

static bool request_ok(const struct iod_message *m)
{
    switch (m->op) {
    case IOD_OP_PUT_OPEN:
        return layout_ok(&m->layout) && m->mode <= 0777 && buffers_ok(m) &&
               name_ok(&m->name, 1) && (m->id.upload == 0) == (m->layout.index == 0);
    case IOD_OP_GET_OPEN:
        return buffers_ok(m) && name_ok(&m->name, 1);
    case IOD_OP_WRITE:
    case IOD_OP_READ:
        return m->data_tag >= 0;
    case IOD_OP_LIST:
        return name_ok(&m->name, 0);
    case IOD_OP_REMOVE:
        return name_ok(&m->name, 1) && m->id.upload;
    default:
        return op_known(m->op);
    }
}

static bool reply_ok(const struct iod_message *m)
{
    if (m->text.length > IOD_TEXT_MAX)
        return false;
    if (m->status != IOD_OK || (m->flags & IOD_FLAG_WORKING))
        return true;
    if (m->op == IOD_OP_GET_OPEN && (!layout_ok(&m->layout) || m->mode > 0777))
        return false;
    if (m->op == IOD_OP_PUT_OPEN || m->op == IOD_OP_GET_OPEN)
        return m->handle && m->id.upload && buffers_ok(m);
    return m->op == IOD_OP_LIST ? entries_ok(&m->entries) : op_known(m->op);
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

/* ---- messages ---- */

/* Handles a message; the head has magic, version, operation, length of the message, and in a
 * reply status and flags. */
static void wire_message(struct wire *w, struct iod_message *m, uint32_t *length, bool reply)
{
    uint32_t magic = reply ? REPLY_MAGIC : REQUEST_MAGIC, seen = magic;
    uint64_t version = IOD_VERSION, op = m->op;

    wire_u32(w, &seen);
    wire_uint(w, &version, 2);
    wire_uint(w, &op, 2);
    wire_u32(w, length);
    m->op = (enum iod_op)op;
    if (reply) {
        uint32_t status = m->status;

        wire_u32(w, &status);
        wire_u32(w, &m->flags);
        m->status = (enum iod_status)status;
        w->bad |= !status_known(status);
    }
    w->bad |= seen != magic || version != IOD_VERSION;
    wire_fields(w, of_message, sizeof of_message / sizeof of_message[0], m);
    wire_string(w, reply ? &m->text : &m->name);
    if (w->out == NULL)
        m->entries.length = (uint32_t)w->left;
    wire_bytes(w, &m->entries.wire, m->entries.length);
}

static int decode(const void *buf, size_t len, struct iod_message *m, bool reply)
{
    struct wire w = {.in = buf, .left = len};
    uint32_t length = 0;

    memset(m, 0, sizeof *m);
    w.bad = len > (reply ? IOD_REPLY_MAX : IOD_REQUEST_MAX);
    wire_message(&w, m, &length, reply);
    if (w.bad || length != len || (m->entries.length && (!reply || m->op != IOD_OP_LIST)))
        return -EPROTO;
    m->unread = m->flags >> IOD_UNREAD_SHIFT;
    m->flags &= (1u << IOD_UNREAD_SHIFT) - 1;
    return (reply ? reply_ok(m) : request_ok(m)) ? 0 : -EINVAL;
}

static int64_t encode(const struct iod_message *m, void *buf, size_t size, bool reply)
{
    struct iod_message copy = *m;
    struct wire w = {.out = buf, .left = size}, patch = {.out = (uint8_t *)buf + 8, .left = 4};
    uint32_t length = 0;
    uint32_t unread = m->unread < IOD_UNREAD_MAX ? m->unread : IOD_UNREAD_MAX;

    if (!(reply ? reply_ok(m) : request_ok(m)))
        return -EINVAL;
    copy.flags |= unread << IOD_UNREAD_SHIFT;
    wire_message(&w, &copy, &length, reply);
    if (w.bad)
        return -EMSGSIZE;
    length = (uint32_t)(size - w.left);
    wire_u32(&patch, &length);
    return length;
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
    struct iod_string string = {text != NULL ? text : "",
                                text != NULL ? (uint32_t)strlen(text) : 0};

    return string;
}
