/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How long operations stay in each state: one operation in so many is watched (option
 * sample_ops), and when the host has its outcome the nanoseconds of each state are counted
 * under its kind and the protocol by which its message went, in classes of powers of two.
 * Under the engine's lock; see times.c.
 */
#ifndef RME_TIMES_H
#define RME_TIMES_H

#include "op/op.h"
#include "plan/plan.h"

#define RME_TIMES_ROWS    20u /* kinds and protocols that are told apart */
#define RME_TIMES_WATCHED 8u  /* operations watched at a time */

#define RME_TIMES_KEPT_NS 1000000000u /* in one state: then another may have the watch */

/* What is measured beside the states, and within them: that threads register its memory. */
#define RME_STAGE_REGISTERING RME_OP_STATE_COUNT
#define RME_STAGES            (RME_STAGE_REGISTERING + 1)

/* An operation that is watched. */
struct rme_watch {
    struct rme_op *op;   /* NULL: the watch is free */
    uint64_t since;      /* ns: it has its state */
    enum rme_proto went; /* RME_PROTO_COUNT: by none */
    uint64_t spent[RME_STAGES];
};

/* What is known of one kind and protocol. */
struct rme_times_row {
    enum rme_proto went;
    uint8_t kind;
    uint64_t count[RME_STAGES][RME_TIME_CLASSES];
    uint64_t spent[RME_STAGES]; /* ns, of all that were counted */
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
/* The message of an operation, which may be watched, went by this protocol. */
static inline void rme_times_went(struct rme_op *op, enum rme_proto proto)
{
    if (op->watch != NULL)
        op->watch->went = proto;
}
/* Likewise: a thread has registered memory for it, for so long. */
static inline void rme_times_registered(struct rme_op *op, uint64_t ns)
{
    if (op->watch != NULL)
        op->watch->spent[RME_STAGE_REGISTERING] += ns;
}
/* It is given back: its times are counted if `reported`, and forgotten otherwise. */
void rme_times_end(struct rme_times *times, struct rme_op *op, bool reported);

/* The class of a time. */
unsigned rme_times_class(uint64_t ns);
/* Row `index` of those that are not empty, a stage of a kind and protocol each; false: there
 * is no such. */
bool rme_times_at(const struct rme_times *times, int index, struct rme_stage *out);

#endif
