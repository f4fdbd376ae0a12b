/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * proto.c - codec of proto.h.
 *
 * One visitor per message handles its fields in wire order.  The same visitor encodes and
 * decodes, as `struct wire` directs, so both cannot differ.  Each step checks the remaining
 * space; the first failure sets `bad`, and later steps do nothing, so visitors need no error
 * handling.  Limits are checked after the walk, by the same function for both directions.
 */
#include "config.h"
#include "embedded/iod/proto.h"

#include <errno.h>
#include <string.h>

#define REQUEST_MAGIC 0x51444f49u /* "IODQ" in memory order */
#define REPLY_MAGIC   0x52444f49u /* "IODR" */
#define EXTENT_BYTES  16u

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

static void wire_extents(struct wire *w, struct iod_extents *extents)
{
    wire_u32(w, &extents->count);
    if (w->bad || extents->count > IOD_EXTENTS_MAX) {
        w->bad = true;
        return;
    }
    if (!w->out) {
        extents->array = NULL;
        wire_bytes(w, &extents->wire, (size_t)extents->count * EXTENT_BYTES);
        return;
    }
    for (uint32_t i = 0; i < extents->count; i++) {
        struct iod_extent extent = iod_extents_at(extents, i);
        wire_u64(w, &extent.offset);
        wire_u64(w, &extent.length);
    }
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

/* ---- the visitors ---- */

static void request_body(struct wire *w, struct iod_request *r)
{
    switch (r->op) {
    case IOD_OP_PUT_OPEN:
        wire_id(w, &r->id);
        wire_layout(w, &r->layout);
        wire_u32(w, &r->mode);
        wire_u32(w, &r->buffer_size);
        wire_u32(w, &r->buffers);
        wire_string(w, &r->name);
        wire_string(w, &r->servers);
        return;
    case IOD_OP_GET_OPEN:
        wire_id(w, &r->id);
        wire_u32(w, &r->buffer_size);
        wire_u32(w, &r->buffers);
        wire_string(w, &r->name);
        return;
    case IOD_OP_WRITE:
    case IOD_OP_READ:
        wire_u64(w, &r->handle);
        wire_i32(w, &r->data_tag);
        wire_extents(w, &r->extents);
        return;
    case IOD_OP_EXTENTS:
        wire_u64(w, &r->handle);
        wire_u64(w, &r->from);
        return;
    case IOD_OP_SEAL:
    case IOD_OP_COMMIT:
    case IOD_OP_CLOSE:
        wire_u64(w, &r->handle);
        return;
    case IOD_OP_LIST:
    case IOD_OP_REMOVE:
        wire_id(w, &r->id);
        wire_string(w, &r->name);
        return;
    }
    w->bad = true;
}

static void reply_body(struct wire *w, struct iod_reply *r)
{
    if (r->flags & IOD_FLAG_WORKING)
        return;
    if (r->status != IOD_OK) {
        wire_string(w, &r->text);
        return;
    }
    switch (r->op) {
    case IOD_OP_PUT_OPEN:
        wire_u64(w, &r->handle);
        wire_u32(w, &r->buffer_size);
        wire_u32(w, &r->buffers);
        wire_id(w, &r->id);
        return;
    case IOD_OP_GET_OPEN:
        wire_u64(w, &r->handle);
        wire_u32(w, &r->buffer_size);
        wire_u32(w, &r->buffers);
        wire_layout(w, &r->layout);
        wire_id(w, &r->id);
        wire_u32(w, &r->mode);
        wire_string(w, &r->servers);
        return;
    case IOD_OP_EXTENTS:
        wire_u64(w, &r->from);
        wire_extents(w, &r->extents);
        return;
    case IOD_OP_LIST:
        wire_entries(w, &r->entries);
        return;
    case IOD_OP_WRITE:
    case IOD_OP_READ:
    case IOD_OP_SEAL:
    case IOD_OP_COMMIT:
    case IOD_OP_CLOSE:
    case IOD_OP_REMOVE:
        return;
    }
    w->bad = true;
}

/* ---- limits ---- */

static bool name_ok(const struct iod_string *name, uint32_t least)
{
    return name->length >= least && name->length <= IOD_NAME_MAX &&
           (name->length == 0 || !memchr(name->text, 0, name->length));
}

static bool servers_ok(const struct iod_string *servers)
{
    return servers->length <= IOD_SERVERS_MAX &&
           (servers->length == 0 || !memchr(servers->text, 0, servers->length));
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

/* Returns true for ascending, non-empty extents without overlap below IOD_SIZE_MAX. */
static bool extents_ok(const struct iod_extents *extents)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < extents->count; i++) {
        struct iod_extent e = iod_extents_at(extents, i);
        if (e.length == 0 || e.length > IOD_SIZE_MAX || e.offset > IOD_SIZE_MAX - e.length ||
            e.offset < end)
            return false;
        end = e.offset + e.length;
    }
    return true;
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

static bool request_ok(const struct iod_request *r)
{
    switch (r->op) {
    case IOD_OP_PUT_OPEN:
        return (r->id.upload == 0) == (r->layout.index == 0) && layout_ok(&r->layout) &&
               buffers_ok(r->buffer_size, r->buffers) && name_ok(&r->name, 1) &&
               servers_ok(&r->servers) && r->mode <= 0777;
    case IOD_OP_GET_OPEN:
        return buffers_ok(r->buffer_size, r->buffers) && name_ok(&r->name, 1);
    case IOD_OP_WRITE:
    case IOD_OP_READ:
        return r->data_tag >= 0 && r->extents.count > 0 && extents_ok(&r->extents);
    case IOD_OP_EXTENTS:
        return r->from <= IOD_SIZE_MAX;
    case IOD_OP_LIST:
        return name_ok(&r->name, 0);
    case IOD_OP_REMOVE:
        return r->id.upload != 0 && name_ok(&r->name, 1);
    case IOD_OP_SEAL:
    case IOD_OP_COMMIT:
    case IOD_OP_CLOSE:
        return true;
    }
    return false;
}

static bool reply_ok(const struct iod_reply *r)
{
    if (r->flags & IOD_FLAG_WORKING)
        return true;
    if (r->status != IOD_OK)
        return r->text.length <= IOD_TEXT_MAX;
    switch (r->op) {
    case IOD_OP_PUT_OPEN:
        return buffers_ok(r->buffer_size, r->buffers) && r->handle && r->id.upload;
    case IOD_OP_GET_OPEN:
        return buffers_ok(r->buffer_size, r->buffers) && layout_ok(&r->layout) &&
               servers_ok(&r->servers) && r->mode <= 0777 && r->handle && r->id.upload;
    case IOD_OP_EXTENTS:
        return r->from <= IOD_SIZE_MAX && extents_ok(&r->extents);
    case IOD_OP_LIST:
        return entries_ok(&r->entries);
    case IOD_OP_WRITE:
    case IOD_OP_READ:
    case IOD_OP_SEAL:
    case IOD_OP_COMMIT:
    case IOD_OP_CLOSE:
    case IOD_OP_REMOVE:
        return true;
    }
    return false;
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

int iod_request_decode(const void *buf, size_t len, struct iod_request *request)
{
    struct wire w = {.in = buf, .left = len};
    uint32_t op = 0, length = 0;

    memset(request, 0, sizeof *request);
    if (len > IOD_REQUEST_MAX)
        return -EPROTO;
    wire_head(&w, REQUEST_MAGIC, &op, &length);
    if (w.bad || length != len)
        return -EPROTO;
    request->op = (enum iod_op)op;
    request_body(&w, request);
    if (w.bad || w.left)
        return -EPROTO;
    return request_ok(request) ? 0 : -EINVAL;
}

int64_t iod_request_encode(const struct iod_request *request, void *buf, size_t size)
{
    struct iod_request copy = *request;
    struct wire w = {.out = buf, .left = size};
    uint32_t op = request->op, length = 0;

    if (!request_ok(request))
        return -EINVAL;
    wire_head(&w, REQUEST_MAGIC, &op, &length);
    request_body(&w, &copy);
    return wire_finish(&w, buf, size);
}

int iod_reply_decode(const void *buf, size_t len, struct iod_reply *reply)
{
    struct wire w = {.in = buf, .left = len};
    uint32_t op = 0, length = 0, status = 0;

    memset(reply, 0, sizeof *reply);
    if (len > IOD_REPLY_MAX)
        return -EPROTO;
    wire_head(&w, REPLY_MAGIC, &op, &length);
    wire_u32(&w, &status);
    wire_u32(&w, &reply->flags);
    if (w.bad || length != len || !status_known(status))
        return -EPROTO;
    reply->op = (enum iod_op)op;
    reply->status = (enum iod_status)status;
    reply->unread = reply->flags >> IOD_UNREAD_SHIFT;
    reply->flags &= (1u << IOD_UNREAD_SHIFT) - 1;
    reply_body(&w, reply);
    if (w.bad || w.left)
        return -EPROTO;
    return reply_ok(reply) ? 0 : -EINVAL;
}

int64_t iod_reply_encode(const struct iod_reply *reply, void *buf, size_t size)
{
    struct iod_reply copy = *reply;
    struct wire w = {.out = buf, .left = size};
    uint32_t op = reply->op, length = 0, status = reply->status;
    uint32_t unread = reply->unread < IOD_UNREAD_MAX ? reply->unread : IOD_UNREAD_MAX;

    if (!reply_ok(reply))
        return -EINVAL;
    copy.flags |= unread << IOD_UNREAD_SHIFT;
    wire_head(&w, REPLY_MAGIC, &op, &length);
    wire_u32(&w, &status);
    wire_u32(&w, &copy.flags);
    reply_body(&w, &copy);
    return wire_finish(&w, buf, size);
}

/* ---- extents, entries, names ---- */

struct iod_extent iod_extents_at(const struct iod_extents *extents, uint32_t i)
{
    struct iod_extent e = {0, 0};

    if (i >= extents->count)
        return e;
    if (extents->array)
        return extents->array[i];
    struct wire w = {.in = extents->wire + (size_t)i * EXTENT_BYTES, .left = EXTENT_BYTES};
    wire_u64(&w, &e.offset);
    wire_u64(&w, &e.length);
    return e;
}

uint64_t iod_extents_bytes(const struct iod_extents *extents)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < extents->count; i++)
        sum += iod_extents_at(extents, i).length;
    return sum;
}

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
