/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A network as attackers use it: ends of connections that carry any bytes.  What they mean is
 * packets.c's, which makes a link (link.h) of an end, and calls these from one thread.
 */
#ifndef HOSTILE_MEDIUM_H
#define HOSTILE_MEDIUM_H

#include "link.h"

#define STEP_MS  20000 /* for each step of connecting, and for RDMA */
#define SENDS    64    /* messages that may be on their way */
#define RECEIVES 64    /* that are kept until they are taken */

struct end;

struct medium {
    const char *scheme; /* of addresses: "ib://" */
    bool strict;        /* it ends a connection whose peer sends more than was promised */
    bool (*parse)(const char *rest, struct target *target);
    /* Asks for a connection, with `length` bytes for the peer; of the plan only what is
     * promised and looked at.  NULL: *error says why. */
    struct end *(*begin)(const struct target *target, const struct link_plan *plan,
                         const void *hello, size_t length, int *error);
    /* Waits for the answer: how many bytes of the peer's hello are in `hello`; -EACCES: it
     * rejects. */
    int (*wait_up)(struct end *end, uint8_t *hello, size_t size);
    /* In any state; NULL is none. */
    void (*drop)(struct end *end, bool goodbye);

    /* LINK_MESSAGE bytes to compose the next message in; waits for it.  NULL: the connection
     * has ended. */
    uint8_t *(*room)(struct end *end);
    /* What is composed there goes; -ENOTCONN: it cannot any more. */
    int (*send)(struct end *end, size_t length);
    int (*send_imm)(struct end *end, uint32_t imm);

    /* Takes note of what came; nothing is waited for. */
    void (*look)(struct end *end);
    /* The same, of the end of the connection only. */
    void (*look_for_end)(struct end *end);
    /* Messages and immediates that were noted since it was last asked. */
    unsigned (*arrived)(struct end *end);
    /* The oldest of them, as bytes.  False: there is none. */
    bool (*take)(struct end *end, struct arrival *arrival);
    bool (*ended)(const struct end *end);

    /* With memory of the peer. */
    int (*read)(struct end *end, uint64_t address, uint64_t key, void *data, size_t length);
    int (*write)(struct end *end, uint64_t address, uint64_t key, const void *data,
                 size_t length);
};

extern const struct medium medium_verbs;

struct end *link_end(struct link *link);

/* A little sleep, so that attacks leave the processor to those attacked. */
void breathe(void);
bool past(uint64_t deadline);
uint64_t after_ms(int timeout_ms);

#endif
