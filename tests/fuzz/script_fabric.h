/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fabric without a network: the test calls each step of a peer. The fabric checks that the
 * engine follows fabric.h, and accesses all memory that a device could access, so that a
 * sanitizer detects memory freed while open to a peer or in a transfer.
 */
#ifndef SCRIPT_FABRIC_H
#define SCRIPT_FABRIC_H

#include "fabric.h"
#include "wire/wire.h"

#define SCRIPT_LINKS   8
#define SCRIPT_HANDLES 16

extern const struct rme_fabric_ops script_ops;

/* State of the one open fabric; the test reads it and calls the steps below. */
struct script {
    unsigned links, regs, rdma_ops, held_rx, held_tx; /* current numbers */
    /* handles of operations that the engine sent, most recent last */
    uint32_t handle[SCRIPT_HANDLES];
    unsigned handles;
    unsigned credit_messages; /* CREDIT messages sent so far */
    uint32_t spent;           /* messages and immediates of the engine so far */
    /* the same of a link, less the credits that the test returned for them */
    uint32_t owed[SCRIPT_LINKS];
    unsigned speaker;  /* link of the last message */
    uint32_t quieted;  /* unsignalled transfers so far */
    uint32_t segments; /* of the last transfer's first piece */
    /* connection requests of the engine: to the first part of an address, to others */
    unsigned asked[2];
    uint32_t advertised; /* advertised receive buffers of all links */
    uint32_t mws;        /* windows of the device; set before the engine is opened */
    uint32_t open;       /* open ones */
    uint32_t max_sge;    /* of its local segments; 0: 4; set before the engine is opened */
    /* likewise; unsignalled transfers: the test decides when they complete */
    bool unsignalled;
    bool on_demand;   /* likewise */
    bool keeps_rx;    /* likewise; links do not share receive buffers then */
    bool own_rx;      /* likewise, and can be withdrawn */
    uint32_t most_rx; /* most that one link can advertise; 0: any number */
    bool no_tx;       /* no send buffers */
    bool no_regs;     /* registrations fail */
    /* hash of the engine's actions, see fuzz.h; without addresses and registrations */
    uint64_t trace;
    /*
     * NULL, or called for each message of the engine, before each registration and
     * deregistration, when it sleeps, and when it wakes a sleeper; without a lock except for
     * the first
     */
    void (*heard)(const struct rme_wire_message *message);
    void (*connecting)(void); /* during a connection request, under the lock */
    void (*registering)(void);
    void (*deregistering)(void);
    void (*sleeping)(void);
    void (*waking)(void);
};

extern struct script script;

/* Each step becomes an event of a later poll(). A step that does not match the link's state
 * does nothing. */
void script_request(const void *hello, size_t length); /* a peer requests a link */
/* a link in progress comes up */
void script_up(unsigned link, const void *hello, size_t length);
void script_message(unsigned link, const void *data, size_t length);
void script_early_message(unsigned link, const void *data,
                          size_t length); /* the same before the link is up */
void script_imm(unsigned link, uint32_t imm);
/* A peer writes into its ring, at a place given as by an immediate, and notifies. Without
 * a ring this ends the link, like on a device. */
void script_lent(unsigned link, unsigned at, const void *data, size_t length);
void script_down(unsigned link, int error);
void script_unanswered(int error); /* ends a request that the engine has not answered yet */
/* rejects our request: -EACCES with the peer's data, or -EBUSY, -ECONNREFUSED without */
void script_refuse(unsigned link, int error, const void *data, size_t length);
void script_finish(unsigned which); /* one of the transfers in flight completes */
void script_tx_room(void);          /* send buffers are available again */
void script_scribble(
    unsigned which,
    unsigned value); /* a peer writes into memory that is open to it, or reads it */

/* Takes all links down and drops their transfers. */
void script_cut(void);

/* Returns whether no event is queued. */
bool script_is_quiet(void);

#endif
