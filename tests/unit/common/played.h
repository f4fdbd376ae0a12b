/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An engine against a scripted peer: the peer's messages are made up, and credits, send
 * buffers, registrations or memory may run out. Programs with it are linked with
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
#define LAST  (script.handle[SCRIPT_HANDLES - 1]) /* the engine's newest handle */

extern struct rme *rme;
extern struct rme_addr *peer;
extern void *memory[4]; /* blocks of the engine's zone */
extern char plain[LARGE];
extern int ended;             /* operations reported so far */
extern struct rme_done done_; /* the last report */
extern size_t no_malloc;      /* size at which malloc() fails, or ANY for every size */
extern size_t no_calloc;      /* likewise for calloc() */
extern const struct rme_hello usual;

/* Polls until no event is left. */
void run(void);
/* Opens an engine with a link to a peer, to which it has sent one message. */
void begin(const struct rme_hello *hello, const char *more);
void end(void);
rme_id send_(void *base, int64_t length, int32_t tag);
rme_id receive(void *base, int64_t length, int32_t tag);
/* Adds a second peer on link 1, which becomes `peer`. Returns the first. */
struct rme_addr *meet_another(const struct rme_hello *hello);
/* Frees the second peer; `first` is `peer` again. */
void leave_another(struct rme_addr *first);
/* Returns registered memory: sends from it can be read at once, receives into it send
 * an invitation. */
void *zone(unsigned which);
/* Delivers a message of the peer, with one segment of `window` bytes unless 0. */
void says(struct rme_wire_message message, uint64_t window);
/* Delivers a message of the peer on this link. */
void says_on(unsigned link, struct rme_wire_message message, uint64_t window);
#define SAYS(kind, window, ...)                                                                \
    says((struct rme_wire_message){.type = RME_WIRE_##kind, __VA_ARGS__}, window)
#define SAYS_ON(link, kind, window, ...)                                                       \
    says_on(link, (struct rme_wire_message){.type = RME_WIRE_##kind, __VA_ARGS__}, window)

/* Makes send buffers available again. */
void room(void);
/* Returns the number of the peer's protocol errors. */
uint64_t errors(void);
/* Delivers the receiver's refusal of the send `handle`. */
void refuses(uint32_t handle);

#endif
