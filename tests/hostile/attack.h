/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the attacks share.  An attack is a function that is called again and again until its
 * time is over; each call is a round of bounded length.  It counts what it did, and complains
 * when the server did what it must not do.
 */
#ifndef HOSTILE_ATTACK_H
#define HOSTILE_ATTACK_H

#include "link.h"

enum victim { VICTIM_IOD, VICTIM_PERF };

struct attack {
    struct target target;
    const char *address; /* of which the target is made */
    enum victim victim;
    uint64_t deadline; /* by clock_us() */
    unsigned round;
    unsigned links, messages; /* made, sent */
    unsigned ended, refused;  /* links that the server ended; asked for and not given */
    uint64_t keys, stolen;    /* keys seen; bytes read or written that were nobody's to give */
    unsigned failures;
};

typedef void attack_fn(struct attack *attack);

/* A line on standard output; the attack has failed. */
void complain(struct attack *attack, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

bool attack_over(const struct attack *attack);

/* A link, counted; NULL: the server gave none. */
struct link *attack_open(struct attack *attack, const struct link_plan *plan);

/* The same, however long links of others in its place take to go; a complaint if they never
 * go. */
struct link *attack_enter(struct attack *attack);

/* The server must end the link, soon. */
void attack_must_end(struct attack *attack, struct link *link, const char *after);

/* Says a message without segments or payload, counted.  False: the link has ended. */
bool attack_say(struct attack *attack, struct link *link,
                const struct rme_wire_message *message);

attack_fn attack_malformed, attack_hellos, attack_credits,
    attack_windows; /* what is forbidden */
attack_fn attack_deaf, attack_cancels, attack_rts,
    attack_empty; /* what is allowed, too much of it */
attack_fn attack_silent, attack_storm, attack_links, attack_deaths, attack_leaver; /* links */
attack_fn attack_crowd; /* no attack, but a crowd of clients */
attack_fn attack_jobs;  /* of bmi-perf's server */
attack_fn attack_keys, attack_shared_keys;
attack_fn attack_lies, attack_lent;
attack_fn attack_unwritten, attack_lists, attack_prepared; /* of bmi-iod */
/* of Elan4 only */
attack_fn attack_visitors, attack_packets, attack_cards, attack_generations, attack_rubbish,
    attack_nowhere, attack_places;

#endif
