/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures how long operations stay in each state.  One operation in sample_ops (option) is
 * sampled.  When its completion is reported, the nanoseconds of each state are counted by kind
 * and protocol, in classes of powers of two.  Called with the engine's lock held; see times.c.
 */
#ifndef RME_TIMES_H
#define RME_TIMES_H

#include "op/op.h"
#include "plan/plan.h"

#define RME_TIMES_ROWS    20u /* maximum of combinations of kind and protocol */
#define RME_TIMES_WATCHED 8u  /* operations sampled at a time */

/* time in one state after which a watch may be taken over */
#define RME_TIMES_KEPT_NS 1000000000u

/* Time in which threads register the op's memory, as a stage besides the states that contain
 * it. */
#define RME_STAGE_REGISTERING RME_OP_STATE_COUNT
#define RME_STAGES            (RME_STAGE_REGISTERING + 1)

/* Measurement of one sampled operation. */
struct rme_watch {
    struct rme_op *op;   /* NULL: unused */
    uint64_t since;      /* ns; begin of the present state */
    enum rme_proto went; /* RME_PROTO_COUNT: none yet */
    uint64_t spent[RME_STAGES];
};

/* Times of one kind and protocol. */
struct rme_times_row {
    enum rme_proto went;
    uint8_t kind;
    uint64_t count[RME_STAGES][RME_TIME_CLASSES];
    uint64_t spent[RME_STAGES]; /* ns, sum of all counted */
};

struct rme_times {
    uint32_t every; /* one operation in `every` is sampled; 0: none */
    uint32_t left;  /* new operations until the next sample */
    uint32_t nrow;
    struct rme_times_row *row[RME_TIMES_ROWS]; /* allocated on first use */
    struct rme_watch watch[RME_TIMES_WATCHED];
};

void rme_times_init(struct rme_times *times, uint32_t every);
void rme_times_clear(struct rme_times *times);

/* Gives a new operation a watch, if one is available, and restarts the countdown. */
void rme_times_sample(struct rme_times *times, struct rme_op *op);
static inline void rme_times_begin(struct rme_times *times, struct rme_op *op)
{
    if (--times->left == 0)
        rme_times_sample(times, op);
}
/* Adds the time in the present state of a sampled operation. */
void rme_times_step(struct rme_op *op);
/* Records the protocol of an operation, if sampled. */
static inline void rme_times_went(struct rme_op *op, enum rme_proto proto)
{
    if (op->watch != NULL)
        op->watch->went = proto;
}
/* Adds a time of registration to an operation, if sampled. */
static inline void rme_times_registered(struct rme_op *op, uint64_t ns)
{
    if (op->watch != NULL)
        op->watch->spent[RME_STAGE_REGISTERING] += ns;
}
/* Ends the measurement of an operation.  `reported`: its times are counted, else discarded. */
void rme_times_end(struct rme_times *times, struct rme_op *op, bool reported);

/* Returns the class of a time. */
unsigned rme_times_class(uint64_t ns);
/* Returns the non-empty stage number `index`, over all kinds and protocols; false: no more. */
bool rme_times_at(const struct rme_times *times, int index, struct rme_stage *out);

#endif
