/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fabric without a network: what a peer does is called for by the test, one step at a time.
 * It checks that the engine keeps the rules of fabric.h, and touches all memory that a device
 * could touch, so that a sanitizer sees memory that was freed while it was exposed or under
 * transfer.
 */
#ifndef SCRIPT_FABRIC_H
#define SCRIPT_FABRIC_H

#include "fabric.h"
#include "wire/wire.h"

#define SCRIPT_LINKS   8
#define SCRIPT_HANDLES 16

extern const struct rme_fabric_ops script_ops;

/* The state of the one open fabric; the test reads it and calls the steps below. */
struct script {
    unsigned links, regs, xfers, held_rx, held_tx; /* what exists now */
    uint32_t handle[SCRIPT_HANDLES]; /* names of operations that the engine told its peer, most
                                        recent last */
    unsigned handles;
    unsigned credit_messages; /* CREDIT said so far */
    uint32_t spent;           /* messages and immediates of the engine so far */
    uint32_t quieted;         /* transfers so far that were quiet */
    uint32_t segments;        /* of the last transfer's first piece */
    unsigned asked[2];        /* links that the engine asked for: at the first part of an
                                 address, at others */
    uint32_t promised;        /* receive buffers of all links now */
    uint32_t windows;         /* that the device has; set before the engine is opened */
    uint32_t open;            /* of those, so many are open now */
    uint32_t max_sge;         /* its local segments; 0: 4; set before the engine is opened */
    bool reports_apart;       /* what caps say of it; set before the engine is opened */
    bool quiet;               /* likewise: completions may come late, as the test likes */
    bool on_demand;           /* likewise */
    bool keeps_rx;            /* likewise; then links do not share receive buffers */
    bool own_rx;              /* likewise, of links that are not kept; see spare_rx */
    uint32_t spare_rx;        /* of those, promised no more and not used since */
    uint32_t most_rx;         /* that one link can promise; 0: any number */
    bool no_tx;               /* send buffers are out */
    bool no_regs;             /* registrations are refused */
    /* of all that the engine did, see fuzz.h; addresses and registrations are not in it */
    uint64_t trace;
    /* NULL, or called for each message of the engine, before each registration and
     * deregistration, when it sleeps, and when it wakes who sleeps; all but the first hold no
     * lock */
    void (*heard)(const struct rme_wire_message *message);
    void (*connecting)(void); /* while a link is asked for, under the lock */
    void (*registering)(void);
    void (*deregistering)(void);
    void (*sleeping)(void);
    void (*waking)(void);
};

extern struct script script;

/* Each step becomes an event of a later poll().  Those that do not fit the link's state do
 * nothing. */
void script_request(const void *hello, size_t length);           /* a peer wants a link */
void script_up(unsigned link, const void *hello, size_t length); /* a link under way is made */
void script_message(unsigned link, const void *data, size_t length);
void script_early_message(unsigned link, const void *data,
                          size_t length); /* the same before the link is up */
void script_imm(unsigned link, uint32_t imm);
/* A peer writes into the memory that it was lent last, at a place as an immediate names it, and
 * says so.  Where none is lent that ends the link, as on a device. */
void script_lent(unsigned link, unsigned at, const void *data, size_t length);
void script_down(unsigned link, int error);
void script_unanswered(int error); /* a request is over that the engine has not answered yet */
/* nobody takes our request: -EACCES and what its engine says, or -EBUSY, -ECONNREFUSED and
 * nothing */
void script_refuse(unsigned link, int error, const void *data, size_t length);
void script_finish(unsigned which); /* one of the transfers under way is complete */
void script_tx_room(void);          /* send buffers are there again */
void script_scribble(
    unsigned which,
    unsigned value); /* a peer writes into memory that is open to it, or reads it */

/* All links go down, all transfers are dropped with them. */
void script_cut(void);

/* No event waits to be polled. */
bool script_is_quiet(void);

#endif
