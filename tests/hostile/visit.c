/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "visit.h"

#include <errno.h>
#include <string.h>
#include "bench/job.h"
#include "bench/session.h"

#define PART     4096u /* bytes moved at a time */
#define WAIT_MS  20000
#define DATA_TAG 77

static struct arrival arrival;

/* Records the keys of a message. */
static void learn(struct visit *v, const struct rme_wire_message *m)
{
    if (m->nsegment == 0)
        return;
    v->keys = 0;
    for (uint32_t i = 0; i < m->nsegment && i < VISIT_KEYS; i++) {
        struct key *key = &v->key[v->keys++];

        rme_wire_segment_at(m, i, &key->segment);
        key->writable = m->type == RME_WIRE_CTS;
        if (v->learnt != NULL)
            v->learnt(v, key);
    }
    v->op = m->from;
}

/* Waits for a message of the type; an EAGER message must also have the tag. */
static bool await(struct visit *v, uint8_t type, int32_t tag)
{
    while (link_receive(v->link, &arrival, WAIT_MS) == 1) {
        if (arrival.is_imm)
            continue;
        learn(v, &arrival.message);
        if (arrival.message.type == type &&
            (type != RME_WIRE_EAGER || arrival.message.tag == tag))
            return true;
        if (arrival.message.type == RME_WIRE_EAGER && arrival.message.tag == v->reply_tag)
            v->replied = true;
    }
    return false;
}

/* Waits for keys of the data: of an RTS that offers it, or of a CTS. */
static bool await_keys(struct visit *v)
{
    v->keys = 0;
    while (v->keys == 0) {
        if (link_receive(v->link, &arrival, WAIT_MS) != 1)
            return false;
        if (arrival.is_imm || (arrival.message.type == RME_WIRE_CTS &&
                               (arrival.message.flags & RME_WIRE_F_UNSOLICITED) != 0))
            continue; /* an invitation that RTS has crossed is void */
        learn(v, &arrival.message);
    }
    return true;
}

bool visit_ask(struct visit *v, const struct iod_message *request, struct iod_message *reply)
{
    static uint8_t bytes[LINK_MESSAGE];
    struct rme_wire_message m = {
        .type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED, .tag = ++v->reply_tag};
    int64_t length = iod_request_encode(request, bytes, sizeof bytes - RME_WIRE_HEADER_SIZE);

    v->replied = false;
    if (length < 0 || link_say(v->link, &m, NULL, bytes, (size_t)length) != 0)
        return false;
    v->attack->messages++;
    if (reply == NULL)
        return true;
    do {
        if (!await(v, RME_WIRE_EAGER, m.tag) ||
            iod_reply_decode(arrival.message.payload, arrival.message.payload_length, reply) !=
                0)
            return false;
    } while (reply->flags & IOD_FLAG_WORKING);
    return reply->status == IOD_OK;
}

static bool iod_begin(struct visit *v)
{
    struct iod_message open = {.op = v->put ? IOD_OP_PUT_OPEN : IOD_OP_GET_OPEN,
                               .layout = {v->size, 1 << 20, 0, 1},
                               .mode = 0600,
                               .buffer_size = 512 << 10,
                               .buffers = 1,
                               .name = iod_string_of(v->object)};
    struct iod_message data = {.op = v->put ? IOD_OP_WRITE : IOD_OP_READ, .data_tag = DATA_TAG};
    struct iod_message reply;

    if (!visit_ask(v, &open, &reply))
        return false;
    v->data_tag = DATA_TAG;
    v->handle = data.handle = reply.handle;
    return visit_ask(v, &data, NULL);
}

static bool perf_begin(struct visit *v)
{
    struct job job = {.test = JOB_STREAM,
                      .direction = v->put ? JOB_PUT : JOB_GET,
                      .size = v->size,
                      .count = 1,
                      .window = 1,
                      .tag = 2};
    struct rme_wire_message m = {.type = RME_WIRE_EAGER,
                                 .flags = RME_WIRE_F_UNEXPECTED,
                                 .tag = SESSION_OPEN_TAG},
                            go = {.type = RME_WIRE_EAGER, .tag = 2};
    unsigned char wire[JOB_WIRE_SIZE];

    job_encode(&job, wire);
    v->reply_tag = 2;
    v->data_tag = 3;
    if (link_say(v->link, &m, NULL, wire, sizeof wire) != 0 || !await(v, RME_WIRE_EAGER, 2))
        return false;
    v->replied = false;
    return v->put || attack_say(v->attack, v->link, &go);
}

bool visit_begin(struct visit *v)
{
    struct rme_wire_message rts = {
        .type = RME_WIRE_RTS, .from = VISIT_NAME, .total = v->size, .shape = 1};

    if (!(v->attack->victim == VICTIM_IOD ? iod_begin(v) : perf_begin(v)))
        return false;
    rts.tag = v->data_tag;
    return (!v->put || attack_say(v->attack, v->link, &rts)) && await_keys(v);
}

static uint64_t count_not_zero(const uint8_t *data, size_t n)
{
    uint64_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += data[i] != 0;
    return count;
}

/* Reads or writes through a key, as the key permits. */
static bool move(struct visit *v, const struct rme_wire_segment *s)
{
    static uint8_t data[PART];

    for (uint64_t at = 0; at < s->length; at += PART) {
        size_t n = s->length - at < PART ? (size_t)(s->length - at) : PART;
        int error;

        memset(data, 'k', sizeof data);
        error = v->put ? link_write(v->link, s->address + at, s->key, data, n)
                       : link_read(v->link, s->address + at, s->key, data, n);
        if (error != 0) {
            complain(v->attack, "a key does not do what it was given for: %s",
                     strerror(-error));
            return false;
        }
        if (!v->put)
            v->not_zero += count_not_zero(data, n);
    }
    return true;
}

/* Reports that `end` bytes were moved. */
static bool report(struct visit *v, uint64_t end)
{
    const struct rme_wire_message fin = {.type = RME_WIRE_FIN, .to = v->op, .offset = end};
    bool closes =
        v->closes && v->keys == 1 && (link_peer(v->link)->flags & RME_HELLO_F_CLOSES) != 0;

    if (v->put && !closes)
        return link_send_imm(v->link, v->op) == 0;
    if (closes)
        link_closes(v->link, v->key[0].segment.key);
    return attack_say(v->attack, v->link, &fin);
}

bool visit_move(struct visit *v)
{
    uint64_t moved = 0;

    for (;;) {
        for (uint32_t i = 0; i < v->keys; i++) {
            if (!v->lies && !move(v, &v->key[i].segment))
                return false;
            moved += v->key[i].segment.length;
        }
        if ((v->put || moved >= v->size) && !report(v, moved))
            return false;
        if (moved >= v->size)
            return true;
        if (!await_keys(v))
            return false;
    }
}

bool visit_finish(struct visit *v)
{
    struct iod_message last = {.op = IOD_OP_SEAL, .handle = v->handle};
    struct iod_message reply;
    bool ok = visit_move(v);

    ok = ok && (v->replied || await(v, RME_WIRE_EAGER, v->reply_tag));
    if (!ok || v->attack->victim == VICTIM_PERF)
        return ok;
    if (v->put && !visit_ask(v, &last, &reply))
        return false;
    last.op = v->put ? IOD_OP_COMMIT : IOD_OP_CLOSE;
    return visit_ask(v, &last, &reply);
}
