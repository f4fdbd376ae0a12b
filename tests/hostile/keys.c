/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The attack with keys.  It puts and gets like any client, over its own verbs, and keeps every
 * key that CTS, INVITE, RTS and OFFER ever told it.  A key may touch the bytes of its
 * operation, in one direction, from one link, until the operation ends.  So these must fail,
 * and what succeeds counts as stolen:
 *
 *  - while the operation is under way: the other direction; bytes behind the last; another
 * link;
 *  - after it has ended: any use, on its own link or on a new one.
 *
 * Where the server's device has no usable windows a key is that of a registration and serves
 * every link meanwhile: the attack is "shared-keys" there, which tries on another link what
 * must fail on any.
 *
 * A refused access ends the link, so there is one try for each link; a link on which a try
 * succeeded is used again.
 */
#include "attack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "bench/job.h"
#include "bench/session.h"
#include "embedded/iod/proto.h"

#define SIZE     65536u /* bytes of the message */
#define PART     4096u  /* of them at a time */
#define WAIT_MS  5000
#define KEPT     1024
#define TRIES    8 /* old keys in a round */
#define DATA_TAG 77
#define OWN_NAME 1u /* of our operation */
#define OBJECT   "kept-keys"

struct key {
    struct rme_wire_segment segment;
    bool writable; /* from CTS or INVITE; else readable, from RTS or OFFER */
};

struct visit {
    struct attack *attack;
    struct link *link;
    bool put;
    int32_t reply_tag, data_tag;
    uint64_t handle;  /* bmi-iod's, of the transfer */
    uint64_t version; /* bmi-iod: the highest that it knows of the object */
    uint32_t op;      /* the server's name of the operation */
    struct key key[200];
    uint32_t keys;
    bool replied; /* the server's last word came while something else was awaited */
};

static struct key kept[KEPT];
static unsigned kept_count;
static struct arrival arrival;

static void keep(struct attack *a, const struct key *key)
{
    kept[kept_count++ % KEPT] = *key;
    a->keys++;
}

/* Takes note of the keys of a message that has some. */
static void learn(struct visit *v, const struct rme_wire_message *m)
{
    if (m->nsegment == 0)
        return;
    v->keys = 0;
    for (uint32_t i = 0; i < m->nsegment && i < 200; i++) {
        struct key *key = &v->key[v->keys++];

        rme_wire_segment_at(m, i, &key->segment);
        key->writable = m->type == RME_WIRE_CTS || m->type == RME_WIRE_INVITE;
        keep(v->attack, key);
    }
    v->op = m->from;
}

/* ---- What a good client does ---- */

/* Waits for a message of the type, and the tag if it has one. */
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

/* Until there are keys for the data. */
static bool await_keys(struct visit *v)
{
    v->keys = 0;
    while (v->keys == 0) {
        struct rme_wire_message go = {.type = RME_WIRE_GO, .from = OWN_NAME};

        if (link_receive(v->link, &arrival, WAIT_MS) != 1)
            return false;
        if (arrival.is_imm)
            continue;
        learn(v, &arrival.message);
        if (arrival.message.type != RME_WIRE_RTS || v->keys > 0)
            continue;
        v->op = go.to = arrival.message.from;
        if (!attack_say(v->attack, v->link, &go))
            return false;
    }
    return true;
}

static bool iod_ask(struct visit *v, const struct iod_request *request, struct iod_reply *reply)
{
    static uint8_t bytes[LINK_MESSAGE];
    struct rme_wire_message m = {.type = RME_WIRE_UNEXPECTED, .tag = ++v->reply_tag};
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
    static const struct iod_extent all = {0, SIZE};
    struct iod_request open = {.op = v->put ? IOD_OP_PUT_OPEN : IOD_OP_GET_OPEN,
                               .upload = v->put ? clock_us() : 0,
                               .layout = {SIZE, SIZE, 0, 1},
                               .mode = 0600,
                               .buffer_size = SIZE,
                               .buffers = 1,
                               .name = iod_string_of(OBJECT)};
    struct iod_request data = {.op = v->put ? IOD_OP_WRITE : IOD_OP_READ,
                               .data_tag = DATA_TAG,
                               .extents = {.count = 1, .array = &all}};
    struct iod_reply reply;

    if (!iod_ask(v, &open, &reply))
        return false;
    v->data_tag = DATA_TAG;
    v->handle = data.handle = reply.handle;
    v->version = reply.version;
    return iod_ask(v, &data, NULL);
}

static bool perf_begin(struct visit *v)
{
    struct job job = {.test = JOB_STREAM,
                      .direction = v->put ? JOB_PUT : JOB_GET,
                      .size = SIZE,
                      .count = 1,
                      .window = 1,
                      .tag = 2};
    struct rme_wire_message m = {.type = RME_WIRE_UNEXPECTED, .tag = SESSION_OPEN_TAG},
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

/* Up to where the server has told its keys. */
static bool begin(struct visit *v)
{
    struct rme_wire_message rts = {
        .type = RME_WIRE_RTS, .from = OWN_NAME, .total = SIZE, .shape = 1};

    if (!(v->attack->victim == VICTIM_IOD ? iod_begin(v) : perf_begin(v)))
        return false;
    rts.tag = v->data_tag;
    return (!v->put || attack_say(v->attack, v->link, &rts)) && await_keys(v);
}

/* Moves the data as the protocol wants it, and waits until the server has said that all is
 * over. */
static bool finish(struct visit *v)
{
    static uint8_t data[PART];
    struct rme_wire_message fin = {.type = RME_WIRE_FIN, .to = v->op, .offset = SIZE};
    struct iod_request last = {
        .op = IOD_OP_SEAL, .handle = v->handle, .version = v->version + 1};
    struct iod_reply reply;
    bool ok = true;

    memset(data, 'k', sizeof data);
    for (uint32_t i = 0; i < v->keys; i++) {
        const struct rme_wire_segment *s = &v->key[i].segment;

        for (uint64_t at = 0; at < s->length; at += PART) {
            size_t n = s->length - at < PART ? (size_t)(s->length - at) : PART;
            int error = v->put ? link_write(v->link, s->address + at, s->key, data, n)
                               : link_read(v->link, s->address + at, s->key, data, n);

            if (error != 0) {
                complain(v->attack, "a key does not do what it was given for: %s",
                         strerror(-error));
                return false;
            }
        }
    }
    if (v->put)
        ok = link_send_imm(v->link, v->op) == 0;
    else
        ok = attack_say(v->attack, v->link, &fin);
    ok = ok && (v->replied || await(v, RME_WIRE_EAGER, v->reply_tag));
    if (!ok || v->attack->victim == VICTIM_PERF)
        return ok;
    if (v->put && !iod_ask(v, &last, &reply))
        return false;
    last.op = v->put ? IOD_OP_COMMIT : IOD_OP_CLOSE;
    return iod_ask(v, &last, &reply);
}

/* ---- What it must not be able to do ---- */

/* One try; the link that it is made on goes if it is refused. */
static void try_key(struct visit *v, struct link **link, const struct rme_wire_segment *s,
                    bool write, const char *what)
{
    uint8_t data[8] = "hostile";
    int error;

    if (*link == NULL)
        *link = attack_open(v->attack, &(struct link_plan){0});
    if (*link == NULL)
        return;
    error = write ? link_write(*link, s->address, s->key, data, sizeof data)
                  : link_read(*link, s->address, s->key, data, sizeof data);
    if (error == 0) {
        v->attack->stolen += sizeof data;
        complain(v->attack, "%s: 8 bytes were %s", what, write ? "written" : "read");
        return;
    }
    v->attack->ended++;
    link_drop(*link);
    *link = NULL;
}

/* While the operation is under way. */
static void try_open_key(struct visit *v, unsigned how, bool shared)
{
    struct key key = v->key[v->keys - 1];
    struct rme_wire_segment behind = {key.segment.address + key.segment.length, key.segment.key,
                                      8};
    struct link *other = NULL;

    switch (how) {
    case 0:
        try_key(v, &v->link, &key.segment, !key.writable, "the wrong direction of an open key");
        break;
    case 1:
        try_key(v, &v->link, &behind, key.writable, "behind the end of an open key");
        break;
    case 2:
        if (shared)
            try_key(v, &other, &behind, key.writable,
                    "behind the end of an open key of another link");
        else
            try_key(v, &other, &key.segment, key.writable, "an open key of another link");
        link_drop(other);
        break;
    default:
        break;
    }
}

/* After the end. */
static void try_old_keys(struct visit *v)
{
    struct link *link = NULL;

    try_key(v, &v->link, &v->key[0].segment, v->attack->round / 2 % 2,
            "a key whose operation has ended, on its link");
    for (unsigned i = 0; i < TRIES && v->attack->failures == 0 && !attack_over(v->attack);
         i++) {
        struct key *old =
            &kept[(v->attack->round * 31 + i * 7) % (kept_count < KEPT ? kept_count : KEPT)];

        try_key(v, &link, &old->segment, i % 2,
                "a key whose operation has ended, on a new link");
    }
    link_drop(link);
}

static void visit(struct attack *a, bool shared)
{
    struct visit v = {.attack = a, .put = a->round % 2 == 0, .reply_tag = 100};
    unsigned how = a->round / 2 % 4;

    v.link = attack_open(a, &(struct link_plan){0});
    if (v.link == NULL)
        return;
    if (a->round < 2)
        how = 3; /* there is an object to get, and a first key */
    if (!begin(&v)) {
        if (a->round == 0)
            complain(a, "no key was given");
    } else if (how == 3) {
        if (finish(&v)) {
            usleep(10000);
            try_old_keys(&v);
        } else if (a->failures == 0 && a->round < 2) {
            complain(a, "the operation did not end");
        }
    } else {
        try_open_key(&v, how, shared);
    }
    link_drop(v.link);
}

void attack_keys(struct attack *a)
{
    visit(a, false);
}

void attack_shared_keys(struct attack *a)
{
    visit(a, true);
}
