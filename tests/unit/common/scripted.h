/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An engine with one link to a peer that the test plays, message by message
 * (tests/fuzz/script_fabric.h).  What the engine says is written down; the peer gives its
 * credits back with each word of its own.
 */
#ifndef SCRIPTED_H
#define SCRIPTED_H

#include "unit.h"
#include "rme.h"
#include "tests/fuzz/script_fabric.h"

#define SCRIPTED_WORDS 65536
#define SCRIPTED_HEAD  8 /* bytes of an eager payload that are written down */

/* A message of the engine. */
struct word {
    struct rme_wire_message message; /* without what it points to */
    uint8_t head[SCRIPTED_HEAD];
};

/* An operation of the test.  One that is complete at once counts as reported. */
struct posted {
    rme_id id;
    int rc;
    int reports;
    int error;
    int64_t actual;
    int place; /* among all reports, from 1 */
};

struct scripted {
    struct rme *rme;
    struct rme_addr *peer;
    struct word word[SCRIPTED_WORDS]; /* since scripted_hush() */
    unsigned words;
    uint32_t back; /* credits given back so far */
    uint32_t have; /* credits that the engine gave; it has 8 at first, or 1 if it is lean */
    bool keeps;    /* the peer gives none back */
    uint32_t eager_taken; /* cost of eager messages that it has taken */
    int places;
};

extern struct scripted scripted;

/* What the peer says of itself unless a test changes it: exact, reads, understands INVITE, many
 * credits. */
struct rme_hello scripted_hello(void);
/* A peer asks for a link, which is number `link`, and says nothing yet. */
void scripted_arrive(unsigned link, const struct rme_hello *hello);
/* Opens the engine with these options and makes the link; the peer introduces itself by an
 * unexpected message. */
void scripted_open(const char *options, const struct rme_hello *hello);
/* Opens the engine, which asks a listening peer for the link; this is the peer's answer. */
void scripted_connect(const char *options, const struct rme_hello *answer);
/* The link goes down, the engine is closed; the script has checked that nothing is left. */
void scripted_close(void);

/* Progress until nothing more happens. */
void scripted_run(void);
/* The peer says this, and the engine acts on it.  `segment` for messages that have nsegment of
 * them. */
void scripted_say(struct rme_wire_message message, const struct rme_wire_segment *segment);
/* The same, but the engine has not looked yet. */
void scripted_put(struct rme_wire_message message, const struct rme_wire_segment *segment);
void scripted_imm(uint32_t imm);
/* Forgets what was heard. */
void scripted_hush(void);
/* The n-th message of this type since then, from 0; NULL: there were fewer. */
const struct word *scripted_word(enum rme_wire_type type, unsigned n);
unsigned scripted_count(enum rme_wire_type type);

void scripted_send(struct posted *p, const void *memory, size_t size, int32_t tag);
void scripted_recv(struct posted *p, void *memory, size_t size, int32_t tag);
/* Reported once, so. */
void scripted_check(const struct posted *p, int error);

#endif
