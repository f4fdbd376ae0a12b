/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A good client of bmi-iod or of bmi-perf's server, in steps: an attack goes with it as far as
 * it likes.  One message is put or got, by RDMA of this end.
 */
#ifndef HOSTILE_VISIT_H
#define HOSTILE_VISIT_H

#include "attack.h"
#include "embedded/iod/proto.h"

#define VISIT_KEYS 200
#define VISIT_NAME 1u /* of our operation */

struct key {
    struct rme_wire_segment segment;
    bool writable; /* from CTS or INVITE; else readable, from RTS or OFFER */
};

struct visit {
    struct attack *attack;
    struct link *link;
    const char *object; /* bmi-iod's */
    bool put;
    bool lies;     /* says that it has written, and has not */
    uint64_t size; /* bytes of the message */
    int32_t reply_tag, data_tag;
    uint64_t handle;  /* bmi-iod's, of the transfer */
    uint64_t version; /* bmi-iod: the highest that it knows of the object */
    uint32_t op;      /* the server's name of the operation */
    struct key key[VISIT_KEYS];
    uint32_t keys;
    void (*learnt)(struct visit *visit, const struct key *key); /* or NULL */
    uint64_t not_zero;                                          /* bytes that were read */
    bool replied; /* the server's last word came while something else was awaited */
};

/* Asks bmi-iod, and waits for the answer unless `reply` is NULL.  False: it is none that is
 * good. */
bool visit_ask(struct visit *visit, const struct iod_request *request, struct iod_reply *reply);

/* Up to where the server has told its keys. */
bool visit_begin(struct visit *visit);
/* Moves the data as the protocol wants it. */
bool visit_move(struct visit *visit);
/* Moves it, and waits until the server has said that all is over. */
bool visit_finish(struct visit *visit);

#endif
