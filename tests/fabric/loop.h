/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * loop.h - a fabric inside one process, for tests of the engine.
 *
 * Every engine opened on it is a host of one small network. Listeners are named by their
 * address (loop://name:port); a client takes its name from the option loop_name. Two hosts
 * exist without an engine: "void" never answers, "nowhere" is unreachable.
 *
 * The fabric is strict where hardware is lenient, to detect errors that hardware hides:
 *
 * - the device sees queued work only at flush();
 * - returned receive buffers need a flush() before arm();
 * - data of a transfer moves during polls, never when it is queued;
 * - a message without a receive buffer advertised for its link is an RNR error and kills the
 *   link;
 * - keys, bounds and permissions are checked for every piece when it moves;
 * - returned buffers are overwritten;
 * - wait() returns for events only after arm();
 * - an unsignalled transfer completes only when a later signalled one has;
 * - violations of fabric.h are counted, and described by loop_census().
 *
 * With the option loop_chaos the device works in small steps in an order drawn from loop_seed:
 * pieces of one and of different transfers move in any order, messages overtake transfers
 * without a notification, local completions come late and mixed. fabric.h allows all of this. A
 * test with one thread is reproducible.
 *
 * With the option loop_elan4 the network has the rules of Quadrics Elan4, and all of chaos:
 *
 * - an immediate is a remote event and needs no receive buffer;
 * - memory needs no registration: keys only name the host, and no access is refused. Access to
 *   unregistered memory is a violation and never completes;
 * - memory open to a peer stays open: when a link is ended, data moves to and from the memory
 *   for some more steps, until LINK_DOWN;
 * - nothing fails. Where another link would fail, this one is lost: queued work never
 *   completes, nothing arrives, no event comes. A side with queued work detects the loss after
 *   some polls, the other side by link_probe();
 * - names of peers are not IP addresses.
 *
 * With the option loop_late_done=N a local completion is delayed by N polls, behind all other
 * events: the peer's answer comes first.
 *
 * With loop_time() a model in virtual time (bench/model) decides when flushed work moves its
 * data and when it completes (loop_int.h).
 */
#ifndef TESTS_FABRIC_LOOP_H
#define TESTS_FABRIC_LOOP_H

#include "fabric.h"

const struct rme_fabric_ops *loop_fabric(void);

/* Calls that a test can make fail. */
enum loop_call {
    LOOP_OPEN,
    LOOP_REG,
    LOOP_CONNECT,
    LOOP_ACCEPT,
    LOOP_RX_RESERVE,
    LOOP_TX_GET,
    LOOP_TX_SEND,
    LOOP_RDMA_OP,
    LOOP_MW_BIND,
    LOOP_MW_INVALIDATE,
    LOOP_FLUSH,
    LOOP_ARM,
    LOOP_CALL_COUNT
};

/*
 * Makes `times` calls of host `name` (NULL: of any host) fail, beginning with the k-th from now
 * (k >= 1). Calls without a result (tx_send, xfer, unexpose, flush) fail by killing their link;
 * tx_get returns NULL and TX_ROOM follows.
 */
void loop_fault(const char *name, enum loop_call call, uint64_t k, uint64_t times, int error);
/* Returns the number of calls since the last loop_clear(). */
uint64_t loop_calls(enum loop_call call);

/* Kills the link that carries the n-th message or immediate from now, before it is delivered.
 * 0: never. */
void loop_kill_at_message(uint64_t n);
/* Kills all links at the n-th step of the device from now.  0: never. */
void loop_kill_at_step(uint64_t n);
/* Kills all links of a host at once, as if its cables were cut. */
void loop_kill_links(const char *name);

/* Hold: moving data; completions of closing windows; local completions of transfers whose data
 * and notifications have arrived. */
#define LOOP_HOLD_DATA   1u
#define LOOP_HOLD_CLOSED 2u
#define LOOP_HOLD_DONES  4u
void loop_hold(unsigned what);

/* Existing objects, and events since the last loop_clear(). */
struct loop_census {
    uint64_t fabrics, links, registrations, mws, rx_held, tx_held; /* now */
    uint64_t shown; /* now: registrations whose own keys are open to peers */
    uint64_t messages, pieces, bytes;
    uint64_t rnr;
    uint64_t violations; /* violations of fabric.h by the engine, and refused accesses */
    char violation[160]; /* description of the first one */
};

void loop_census(struct loop_census *out);
/* Resets faults, holds and counts, not the existing objects. */
void loop_clear(void);

#endif
