/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An engine against a peer that is played here: what it says is made up, and credits, send
 * buffers, registrations or memory may be missing.  Programs with it are linked with
 * --wrap=malloc,--wrap=calloc.
 */
#ifndef TESTS_UNIT_PLAYED_H
#define TESTS_UNIT_PLAYED_H

#include "steps.h"
#include "unit.h"
#include "engine/engine.h"
#include "tests/fuzz/script_fabric.h"

#define LARGE 300000u
#define ANY   SIZE_MAX
#define LAST  (script.handle[SCRIPT_HANDLES - 1]) /* what the engine named last */

extern struct rme *rme;
extern struct rme_addr *peer;
extern void *memory[4]; /* of the engine's zone */
extern char plain[LARGE];
extern int ended;             /* operations, so far */
extern struct rme_done done_; /* the last of them */
extern int dropped;           /* operations whose context was closed */
extern void *dropped_user;    /* of the last of them */
extern size_t no_malloc;      /* a malloc() of so many bytes fails, or any at all (ANY), */
extern size_t no_calloc;      /* and so does a calloc() */
extern const struct rme_hello usual;

/* Until nothing happens any more. */
void run(void);
/* An engine with a link to a peer, to which it has said something: one message. */
void begin(const struct rme_hello *hello, const char *more);
void end(void);
rme_id send_(void *base, int64_t length, int32_t tag);
rme_id receive(void *base, int64_t length, int32_t tag);
/* A second peer, which has link 1 and is `peer` from now on.  The first. */
struct rme_addr *meet_another(const struct rme_hello *hello);
/* The host has nothing to do with the second any more; `first` is the peer again. */
void leave_another(struct rme_addr *first);
/* Registered memory: whose sends can be read at once, and whose receives invite. */
void *zone(unsigned which);
/* The peer says it, with one segment of `window` bytes if there are any. */
void says(struct rme_wire_message message, uint64_t window);
/* The same of the peer that has this link. */
void says_on(unsigned link, struct rme_wire_message message, uint64_t window);
#define SAYS(kind, window, ...)                                                                \
    says((struct rme_wire_message){.type = RME_WIRE_##kind, __VA_ARGS__}, window)
#define SAYS_ON(link, kind, window, ...)                                                       \
    says_on(link, (struct rme_wire_message){.type = RME_WIRE_##kind, __VA_ARGS__}, window)

/* There are send buffers again. */
void room(void);
/* Mistakes of the peer. */
uint64_t errors(void);
/* The send `handle` is over: its receiver refuses it. */
void refuses(uint32_t handle);

#endif
