/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * loop.h - a fabric inside one process, for tests of the engine.
 *
 * Every engine opened on it is a host of one small network.  Listeners are named by their
 * address (loop://name:port); a client takes its name from the option loop_name.  Two hosts
 * exist without anybody behind them: "void" never answers, "nowhere" cannot be reached.
 *
 * The fabric is strict where hardware is lenient, so that an engine which is only right by luck
 * fails here:
 *  - nothing queued is seen by the device before flush();
 *  - data of a transfer moves when somebody polls, never when it is queued;
 *  - a message without a receive buffer promised for its own link is a receiver-not-ready error
 *    and kills the link;
 *  - keys, bounds and rights are checked for every piece at the moment it moves;
 *  - buffers given back are filled with rubbish;
 *  - wait() returns for events only after arm();
 *  - a transfer that is quiet completes only when one behind it, that is not, has;
 *  - breaches of the rules of fabric.h are counted, and described by loop_census().
 *
 * With the option loop_chaos the device does its work in small steps in an order drawn from
 * loop_seed: pieces of one and of different transfers move in any order, messages overtake
 * transfers without a notification, local completions come late and mixed.  All of it is
 * allowed by fabric.h.  A test with one thread repeats exactly.
 *
 * With the option loop_elan4 the network has the rules of Quadrics Elan4, and all of chaos:
 *  - a message has at most 2 KiB;
 *  - an immediate is a remote event and needs no receive buffer;
 *  - one that is not `ordered` (a report) overtakes messages and reports of other operations,
 *    and is overtaken by them, up to a barrier; its transfer may be complete here before it
 *    has arrived there;
 *  - memory needs no registration: keys say nothing but which host it is, and no access is
 *    refused.  An access to memory that nobody has registered (any more) is a breach, and
 *    never ends;
 *  - what is open to a peer stays open: when the end of a link is asked for, data moves to and
 *    from its memory for some steps yet, until LINK_DOWN;
 *  - nothing fails.  Where a link of the other rules would fail it is lost: what is queued
 *    never ends, nothing arrives, nobody is told.  Who has something queued finds out after
 *    some polls; others hear of it when they ask by link_probe();
 *  - addresses are no sockaddr.
 *
 * With the option loop_late_done=N a transfer's local completion is handed out N polls after
 * it, whatever else has come meanwhile: so the peer's answer is there before.
 */
#ifndef TESTS_FABRIC_LOOP_H
#define TESTS_FABRIC_LOOP_H

#include "fabric.h"

#define LOOP_ELAN4_MESSAGE 2048 /* largest message of Elan4, in bytes */

const struct rme_fabric_ops *loop_fabric(void);

/* Calls that can be made to fail. */
#define LOOP_CALLS(X)                                                                          \
    X(OPEN, "open")                                                                            \
    X(REG, "reg")                                                                              \
    X(CONNECT, "link_connect")                                                                 \
    X(ACCEPT, "link_accept")                                                                   \
    X(RX_RESERVE, "rx_reserve")                                                                \
    X(TX_GET, "tx_get")                                                                        \
    X(TX_SEND, "tx_send")                                                                      \
    X(XFER, "xfer")                                                                            \
    X(EXPOSE, "expose")                                                                        \
    X(UNEXPOSE, "unexpose")                                                                    \
    X(FLUSH, "flush")                                                                          \
    X(ARM, "arm")

enum loop_call {
#define LOOP_CALL_ENUM(id, text) LOOP_##id,
    LOOP_CALLS(LOOP_CALL_ENUM)
#undef LOOP_CALL_ENUM
        LOOP_CALL_COUNT
};

const char *loop_call_name(enum loop_call call);

/*
 * Lets `times` calls of host `name` (NULL: of any host) fail, beginning with the k-th from now
 * (k >= 1).  Calls without a result (tx_send, xfer, unexpose, flush) fail by killing their
 * link; tx_get returns NULL and TX_ROOM follows.
 */
void loop_fault(const char *name, enum loop_call call, uint64_t k, uint64_t times, int error);
/* How often a call was made since the last loop_clear(). */
uint64_t loop_calls(enum loop_call call);

/* Kills the link that carries the n-th message or immediate from now, before it is delivered.
 * 0: never. */
void loop_kill_at_message(uint64_t n);
/* Kills all links at the n-th step of the device from now.  0: never. */
void loop_kill_at_step(uint64_t n);
/* Kills all links of a host at once, as if its cables were cut. */
void loop_kill_links(const char *name);

/* While held, no data of transfers moves, no message is delivered, no connection request is
 * seen, no transfer completes. */
#define LOOP_HOLD_DATA     1u
#define LOOP_HOLD_MESSAGES 2u
#define LOOP_HOLD_CONNECTS 4u
#define LOOP_HOLD_CLOSED   16u /* what says that memory is closed */
/* local completions of transfers; the peer has their data and notifications long since */
#define LOOP_HOLD_DONES 8u
void loop_hold(unsigned what);

/* What exists, and what went wrong since the last loop_clear(). */
struct loop_census {
    uint64_t fabrics, links, registrations, windows, rx_held, tx_held; /* now */
    uint64_t shown; /* now: registrations whose own keys open them to peers */
    uint64_t connects, messages, immediates, transfers, pieces, bytes, opened;
    uint64_t rnr;
    uint64_t violations; /* breaches of fabric.h by the engine, and refused accesses */
    char violation[160]; /* the first of them in words */
};

void loop_census(struct loop_census *out);
/* Forgets faults, holds and counts.  What exists stays. */
void loop_clear(void);

#endif
