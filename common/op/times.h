/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How long operations stay in each state: one operation in so many is watched (option
 * sample_ops), and when the host has its outcome the nanoseconds of each state are counted
 * under its kind and the protocol that took it over, in classes of powers of two.  Under the
 * engine's lock; see times.c.
 */
#ifndef RME_TIMES_H
#define RME_TIMES_H

#include "op/op.h"

#define RME_TIMES_ROWS    12u /* kinds and protocols that are told apart */
#define RME_TIMES_WATCHED 8u  /* operations watched at a time */

#define RME_TIMES_KEPT_NS 1000000000u /* in one state: then another may have the watch */

/* An operation that is watched. */
struct rme_watch {
    struct rme_op *op;    /* NULL: the watch is free */
    uint64_t since;       /* ns: it has its state */
    const char *protocol; /* that took it over; NULL: none */
    uint64_t spent[RME_OP_STATE_COUNT];
};

/* What is known of one kind and protocol. */
struct rme_times_row {
    const char *protocol;
    uint8_t kind;
    uint64_t count[RME_OP_STATE_COUNT][RME_TIME_CLASSES];
    uint64_t spent[RME_OP_STATE_COUNT]; /* ns, of all that were counted */
};

struct rme_times {
    uint32_t every; /* one operation of so many; 0: none */
    uint32_t left;  /* that come before the next one */
    uint32_t nrow;
    struct rme_times_row *row[RME_TIMES_ROWS]; /* on the heap once it is needed */
    struct rme_watch watch[RME_TIMES_WATCHED];
};

void rme_times_init(struct rme_times *times, uint32_t every);
void rme_times_clear(struct rme_times *times);

/* An operation is new: is it one that is watched? */
void rme_times_sample(struct rme_times *times, struct rme_op *op);
static inline void rme_times_begin(struct rme_times *times, struct rme_op *op)
{
    if (--times->left == 0)
        rme_times_sample(times, op);
}
/* A watched operation leaves its state. */
void rme_times_step(struct rme_op *op);
/* It is given back: its times are counted if `reported`, and forgotten otherwise. */
void rme_times_end(struct rme_times *times, struct rme_op *op, bool reported);

/* The class of a time. */
unsigned rme_times_class(uint64_t ns);
/* Row `index` of those that are not empty, a state of a kind and protocol each; false: there
 * is no such. */
bool rme_times_at(const struct rme_times *times, int index, struct rme_stage *out);

#endif
