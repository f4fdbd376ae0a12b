/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A network as attackers use it: ends of connections that carry arbitrary bytes. packets.c
 * makes a link (link.h) of an end and calls these functions from one thread. */
#ifndef HOSTILE_MEDIUM_H
#define HOSTILE_MEDIUM_H

#include "link.h"

#define STEP_MS  20000 /* timeout of each step of connecting, and of RDMA */
#define SENDS    64    /* messages in flight */
#define RECEIVES 64    /* messages kept until taken */

struct end;

struct medium {
    const char *scheme; /* of addresses: "ib://" */
    /* the network ends a connection whose peer sends more than its credits */
    bool strict;
    bool (*parse)(const char *rest, struct target *target);
    /* Requests a connection, with `length` bytes for the peer; uses only the plan's receive
     * settings. NULL: see *error. */
    struct end *(*begin)(const struct target *target, const struct link_plan *plan,
                         const void *hello, size_t length, int *error);
    /* Waits for the answer; returns the length of the peer's hello in `hello`. -EACCES:
     * rejected. */
    int (*wait_up)(struct end *end, uint8_t *hello, size_t size);
    /* Drops an end in any state; NULL is allowed. */
    void (*drop)(struct end *end, bool goodbye);

    /* Waits for LINK_MESSAGE bytes to compose the next message in. NULL: the connection has
     * ended. */
    uint8_t *(*room)(struct end *end);
    /* Sends the composed message; -ENOTCONN: the connection has ended. */
    int (*send)(struct end *end, size_t length);
    int (*send_imm)(struct end *end, uint32_t imm);
    /* The next message closes the peer's window with this key. NULL: not possible. */
    void (*closes)(struct end *end, uint64_t key);

    /* Polls for arrivals without waiting. */
    void (*look)(struct end *end);
    /* Polls only for the end of the connection. */
    void (*look_for_end)(struct end *end);
    /* Returns the number of messages and immediates that arrived since the last call. */
    unsigned (*arrived)(struct end *end);
    /* Takes the oldest arrival, as bytes. Returns false if there is none. */
    bool (*take)(struct end *end, struct arrival *arrival);
    bool (*ended)(const struct end *end);

    /* RDMA with memory of the peer. */
    int (*read)(struct end *end, uint64_t address, uint64_t key, void *data, size_t length);
    int (*write)(struct end *end, uint64_t address, uint64_t key, const void *data,
                 size_t length);
};

extern const struct medium medium_verbs, medium_elan4;

/* Sleeps shortly to leave the processor to the attacked server. */
void breathe(void);
bool past(uint64_t deadline);
uint64_t after_ms(int timeout_ms);

#endif
