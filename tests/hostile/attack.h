/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Interface of the attacks. An attack is a function that is called until its time is over; each
 * call is one round of bounded length. The function counts its actions and calls complain()
 * when the server violates a rule.
 */
#ifndef HOSTILE_ATTACK_H
#define HOSTILE_ATTACK_H

#include "link.h"

enum victim { VICTIM_IOD, VICTIM_PERF };

struct attack {
    struct target target;
    const char *address; /* `target` as text */
    enum victim victim;
    uint64_t deadline; /* by clock_us() */
    unsigned round;
    unsigned links, messages; /* opened links, sent messages */
    unsigned ended, refused;  /* links that the server ended, and that it refused */
    uint64_t keys, stolen;    /* keys seen; bytes read or written without permission */
    unsigned failures;
};

typedef void attack_fn(struct attack *attack);

/* Prints a line to standard output and marks the attack as failed. */
void complain(struct attack *attack, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

bool attack_over(const struct attack *attack);

/* Opens and counts a link; NULL: the server refused it. */
struct link *attack_open(struct attack *attack, const struct link_plan *plan);

/* Opens a link, waiting until ended links have freed their places; complains on a timeout. */
struct link *attack_enter(struct attack *attack);

/* Complains unless the server ends the link soon. */
void attack_must_end(struct attack *attack, struct link *link, const char *after);

/* Sends and counts a message without segments or payload. Returns false if the link has
 * ended. */
bool attack_say(struct attack *attack, struct link *link,
                const struct rme_wire_message *message);

attack_fn attack_malformed, attack_hellos, attack_credits,
    attack_windows; /* violations of the protocol */
attack_fn attack_deaf, attack_cancels, attack_rts,
    attack_empty; /* excess of permitted messages */
attack_fn attack_silent, attack_storm, attack_links, attack_deaths, attack_leaver; /* links */
attack_fn attack_crowd; /* not an attack: many clients */
attack_fn attack_jobs;  /* on bmi-perf's server */
attack_fn attack_keys, attack_shared_keys;
attack_fn attack_lies, attack_lent;
attack_fn attack_unwritten, attack_lists, attack_prepared; /* on bmi-iod */
/* on Elan4 only */
attack_fn attack_visitors, attack_generations, attack_nowhere, attack_places;

#endif
