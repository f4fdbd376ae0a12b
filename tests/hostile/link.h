/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One end of a link that speaks the wire protocol over a bare network (medium.h), and keeps
 * only those of its rules that its user wants kept.  One thread uses a link; any number of
 * links may be open.  Errors are negative errno.
 */
#ifndef HOSTILE_LINK_H
#define HOSTILE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "wire/wire.h"

#define LINK_MESSAGE 4096 /* bytes of a receive and of a send buffer */

struct link;

struct medium;

/* Who is attacked. */
struct target {
    const struct medium *medium;
    struct sockaddr_storage address; /* ib */
    /* elan4: the number of the process, its input queue, and its generation, 0: not known */
    unsigned vp;
    uint64_t queue, generation;
};

/* How credits go back to the peer. */
enum link_returns {
    LINK_RETURNS_ALL, /* with the next message, as the protocol wants it */
    LINK_RETURNS_ONE, /* so few that the peer can say CREDIT and nothing else */
    LINK_RETURNS_NONE,
};

/* What a link pretends to be; all 0 is a good peer. */
struct link_plan {
    const void *hello; /* instead of a proper one; NULL: a proper one */
    size_t hello_length;
    bool no_hello;    /* no connection data at all */
    uint16_t credits; /* promised to the peer; 0: 32 */
    bool no_receives; /* none is posted, whatever was promised */
    bool lean;        /* says that it is content with one credit, and counts exactly */
    bool borrows;     /* takes memory that is lent, and counts exactly */
    bool deaf;        /* nothing that arrives is ever looked at */
    enum link_returns returns;
};

/* A message or an immediate that arrived. */
struct arrival {
    bool is_imm;
    uint32_t imm;
    size_t length;
    struct rme_wire_message message; /* points into bytes */
    uint8_t bytes[LINK_MESSAGE];
};

/* An address of a network that this program has.  False: it is none, or the host is not known.
 */
bool target_parse(const char *text, struct target *target);

/* The hello of a good peer. */
void link_hello(const struct link_plan *plan, struct rme_hello *hello);

/* NULL: *error says why; -EACCES: it was rejected. */
struct link *link_open(const struct target *target, const struct link_plan *plan, int *error);

/* Asks for a link and does not wait for the answer; link_open's other half is link_wait_up. */
struct link *link_begin(const struct target *target, const struct link_plan *plan, int *error);
int link_wait_up(struct link *link);

/* NULL is allowed. */
void link_close(struct link *link);
/* The same without a good-bye: the peer has to find out. */
void link_drop(struct link *link);

const struct rme_hello *link_peer(const struct link *link);

/* Hands bytes to the device whatever the credits are; waits for a free buffer only.  -ENOTCONN:
 * the peer has ended the link. */
int link_send_bytes(struct link *link, const void *bytes, size_t length);

/*
 * Composes and sends a message: the credits that go back are filled in, unless message->credits
 * is not 0.  `segment` has message->nsegment entries; the payload follows the header.
 */
int link_say(struct link *link, const struct rme_wire_message *message,
             const struct rme_wire_segment *segment, const void *payload, size_t length);

/* An immediate behind a write of no bytes. */
int link_send_imm(struct link *link, uint32_t imm);

/* How many messages the peer would still take. */
unsigned link_credits(const struct link *link);

/* Takes what came in; nothing is waited for.  Drops what arrived. */
void link_idle(struct link *link);

/* Waits until the peer takes another `count` messages; what arrives meanwhile is dropped.
 * False: not in time. */
bool link_wait_credits(struct link *link, unsigned count, int timeout_ms);

/* The next arrival: 1; 0: none in time; -ENOTCONN: the link has ended. */
int link_receive(struct link *link, struct arrival *arrival, int timeout_ms);

/* Has the peer ended the link?  Waits for that. */
bool link_ended(struct link *link, int timeout_ms);

/* RDMA with memory of the peer, at most LINK_MESSAGE bytes at `data`.  0, or -EACCES and such:
 * it was refused, and the link is gone. */
int link_read(struct link *link, uint64_t address, uint64_t key, void *data, size_t length);
int link_write(struct link *link, uint64_t address, uint64_t key, const void *data,
               size_t length);

uint64_t clock_us(void);

#endif
