/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One end of a link that speaks the wire protocol over a bare network (medium.h) and follows
 * only the rules chosen by its user. One thread uses a link; any number of links may be open.
 * Errors are negative errno.
 */
#ifndef HOSTILE_LINK_H
#define HOSTILE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "wire/wire.h"

#define LINK_MESSAGE 4096 /* size of a receive and of a send buffer */

struct link;

struct medium;

/* The attacked server. */
struct target {
    const struct medium *medium;
    struct sockaddr_storage address; /* ib */
    /* elan4: process number, input queue, and generation (0: unknown) */
    unsigned vp;
    uint64_t queue, generation;
};

/* How credits are returned to the peer. */
enum link_returns {
    LINK_RETURNS_ALL, /* with the next message, as the protocol requires */
    LINK_RETURNS_ONE, /* only enough for the peer's CREDIT messages */
    LINK_RETURNS_NONE,
};

/* Behaviour of a link; all 0 is a good peer. */
struct link_plan {
    const void *hello; /* replaces the proper hello; NULL: a proper one */
    size_t hello_length;
    bool no_hello;      /* send no connection data */
    uint16_t credits;   /* advertised to the peer; 0: 32 */
    bool no_receives;   /* post no receives, for any value of `credits` */
    bool single_credit; /* do not ask for more credits when the link is up */
    bool borrows;       /* accept a ring */
    bool deaf;          /* never process arrivals */
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

/* Parses an address of a network that this program supports. Returns false if it is invalid or
 * the host is unknown. */
bool target_parse(const char *text, struct target *target);

/* Makes the hello of a good peer. */
void link_hello(const struct link_plan *plan, struct rme_hello *hello);

/* Opens a link. NULL: see *error; -EACCES if the server rejected it. */
struct link *link_open(const struct target *target, const struct link_plan *plan, int *error);

/* Requests a link without waiting for the answer; link_wait_up() is the other half of
 * link_open(). */
struct link *link_begin(const struct target *target, const struct link_plan *plan, int *error);
int link_wait_up(struct link *link);

/* Closes a link; NULL is allowed. */
void link_close(struct link *link);
/* Drops a link without a good-bye: the peer has to detect it. */
void link_drop(struct link *link);

const struct rme_hello *link_peer(const struct link *link);

/* Passes bytes to the device regardless of credits; waits only for a free buffer. -ENOTCONN:
 * the peer has ended the link. */
int link_send_bytes(struct link *link, const void *bytes, size_t length);

/* Composes and sends a message. Fills in the returned credits unless message->credits is not 0.
 * `segment` has message->nsegment entries; the payload follows the header. */
int link_say(struct link *link, const struct rme_wire_message *message,
             const struct rme_wire_segment *segment, const void *payload, size_t length);

/* Sends an immediate with an empty write. */
int link_send_imm(struct link *link, uint32_t imm);

/* The next message closes the peer's window with this key, over verbs. */
void link_closes(struct link *link, uint64_t key);

/* Returns the number of messages that the peer would accept. */
unsigned link_credits(const struct link *link);

/* Receives and drops arrivals, without waiting. */
void link_idle(struct link *link);

/* Waits until the peer accepts another `count` messages and drops arrivals meanwhile. Returns
 * false on a timeout. */
bool link_wait_credits(struct link *link, unsigned count, int timeout_ms);

/* Receives the next arrival. 1: received; 0: timeout; -ENOTCONN: the link has ended. */
int link_receive(struct link *link, struct arrival *arrival, int timeout_ms);

/* Waits for the peer to end the link; returns whether it did. */
bool link_ended(struct link *link, int timeout_ms);

/* RDMA with memory of the peer, at most LINK_MESSAGE bytes at `data`. Returns 0, or an error
 * such as -EACCES: the access was refused, and the link has ended. */
int link_read(struct link *link, uint64_t address, uint64_t key, void *data, size_t length);
int link_write(struct link *link, uint64_t address, uint64_t key, const void *data,
               size_t length);

uint64_t clock_us(void);

#endif
