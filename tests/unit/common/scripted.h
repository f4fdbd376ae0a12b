/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An engine with one link to a peer that the test plays, message by message
 * (tests/fuzz/script_fabric.h). The engine's messages are recorded; each message of the peer
 * returns its credits.
 */
#ifndef SCRIPTED_H
#define SCRIPTED_H

#include "unit.h"
#include "rme.h"
#include "tests/fuzz/script_fabric.h"

#define SCRIPTED_WORDS 65536
#define SCRIPTED_HEAD  8 /* recorded bytes of an eager payload */

/* A message from the engine. */
struct word {
    struct rme_wire_message message; /* its pointers are invalid */
    uint8_t head[SCRIPTED_HEAD];
};

/* An operation of the test. One that completes at once counts as reported. */
struct posted {
    rme_id id;
    int rc;
    int reports;
    int error;
    int64_t actual;
    int place; /* position among all reports, from 1 */
};

struct scripted {
    struct rme *rme;
    struct rme_addr *peer;
    struct word word[SCRIPTED_WORDS]; /* since scripted_hush() */
    unsigned words;
    uint32_t back;           /* credits returned so far */
    uint32_t have;           /* credits received from the engine */
    bool keeps;              /* the peer returns no credits */
    uint32_t eager_consumed; /* cost of the eager messages that it has consumed */
    int places;
};

extern struct scripted scripted;

/* Returns the peer's default hello: reads, takes invitations, many credits. */
struct rme_hello scripted_hello(void);
/* Lets a peer request a link, with number `link`, without sending a message. */
void scripted_arrive(unsigned link, const struct rme_hello *hello);
/* Opens the engine with these options and makes the link; the peer introduces itself by an
 * unexpected message, which asks for more credits than one, and returns all credits. */
void scripted_open(const char *options, const struct rme_hello *hello);
/* The same, but the message asks for no credits. */
void scripted_open_modest(const char *options, const struct rme_hello *hello);
/* Opens the engine, which connects to a listening peer; `answer` is the peer's hello. */
void scripted_connect(const char *options, const struct rme_hello *answer);
/* Answers a link that the engine requests again, without letting it process that. */
void scripted_connected(const struct rme_hello *answer);
/* Takes the link down and closes the engine; the script checks that nothing is left. The next
 * engine's fabric has its usual properties again. */
void scripted_close(void);
int scripted_teardown(void **state);
#define SCRIPTED_TEST(name) cmocka_unit_test_teardown(name, scripted_teardown)

uint64_t scripted_counter(const char *name);

/* Polls until no event is left. */
void scripted_run(void);
/* Delivers a message of the peer and lets the engine process it. `segment` has message.nsegment
 * entries. */
void scripted_peer_sends(struct rme_wire_message message,
                         const struct rme_wire_segment *segment);
/* A kind of message: its type, and a flag that tells it from others of the type. */
#define KIND(type, flag) (RME_WIRE_##type | (unsigned)RME_WIRE_F_##flag << 8)
/* Likewise for a message of this kind that is only a header. */
void scripted_says(unsigned kind);
/* Delivers the message without letting the engine process it. */
void scripted_put(struct rme_wire_message message, const struct rme_wire_segment *segment);
void scripted_imm(uint32_t imm);
/* Clears the recorded messages. */
void scripted_hush(void);
/* Returns the n-th recorded message of this kind, from 0; NULL: there were fewer. */
const struct word *scripted_word(unsigned kind, unsigned n);
unsigned scripted_count(unsigned kind);

void scripted_send(struct posted *p, const void *memory, size_t size, int32_t tag);
void scripted_recv(struct posted *p, void *memory, size_t size, int32_t tag);
/* Checks that the operation was reported once, with this error. */
void scripted_check(const struct posted *p, int error);

#endif
