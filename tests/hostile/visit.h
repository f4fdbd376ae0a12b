/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A good client of bmi-iod or of bmi-perf's server, in steps, of which an attack executes some.
 * One message is put or got, by RDMA of this end. */
#ifndef HOSTILE_VISIT_H
#define HOSTILE_VISIT_H

#include "attack.h"
#include "embedded/iod/proto.h"

#define VISIT_KEYS 200
#define VISIT_NAME 1u /* id of our operation */

struct key {
    struct rme_wire_segment segment;
    bool writable; /* from a CTS of the receiver; else readable, from the sender */
};

struct visit {
    struct attack *attack;
    struct link *link;
    const char *object; /* bmi-iod's */
    bool put;
    bool lies;     /* announce data as written without writing it */
    bool closes;   /* report by a FIN that closes the key, if the server permits that */
    uint64_t size; /* bytes of the message */
    int32_t reply_tag, data_tag;
    uint64_t handle; /* bmi-iod: handle of the transfer */
    uint32_t op;     /* the server's id of the operation */
    struct key key[VISIT_KEYS];
    uint32_t keys;
    void (*learnt)(struct visit *visit, const struct key *key); /* or NULL */
    /* bytes read that are not zero */
    uint64_t not_zero;
    bool replied; /* the server's last reply came while another message was awaited */
};

/* Sends bmi-iod a request and waits for the reply unless `reply` is NULL. Returns false without
 * a reply of success. */
bool visit_ask(struct visit *visit, const struct iod_message *request,
               struct iod_message *reply);

/* Runs up to the point where the server has sent its keys. */
bool visit_begin(struct visit *visit);
/* Moves the data by the protocol. */
bool visit_move(struct visit *visit);
/* Moves the data and waits for the server's end of the operation. */
bool visit_finish(struct visit *visit);

#endif
