/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Normal path.  rme_times_begin counts new ops down and samples one in `every`, which gets a
 * watch.  Each transition adds the time since the last one to the state that ends.  When the
 * completion is reported, the times are counted in the row of the op's kind and protocol, and
 * the watch is freed.  The protocol is set when its counter is incremented, so an op that
 * failed or was cancelled before is counted in row "none".
 *
 * Some ops last as long as the host likes: a receive may stay posted until its connection ends.
 * If all watches are in use, a new op takes the one whose op has been longest in its state, if
 * longer than RME_TIMES_KEPT_NS.  The old op's times are discarded.  Longer times are therefore
 * counted only while watches are free, and ops that never end do not prevent sampling.
 *
 * An op is not sampled if no watch is available.  Its times are discarded if no row or memory
 * is available at its end.  An op without a watch costs a decrement when it is new and a test
 * per transition.  The clock is read for sampled ops only.
 */
#include <stdlib.h>
#include <string.h>

#include "base/timer.h"
#include "op/times.h"

void rme_times_init(struct rme_times *times, uint32_t every)
{
    *times = (struct rme_times){.every = every, .left = every};
}

void rme_times_clear(struct rme_times *times)
{
    for (uint32_t i = 0; i < times->nrow; i++)
        free(times->row[i]);
    times->nrow = 0;
}

void rme_times_sample(struct rme_times *times, struct rme_op *op)
{
    struct rme_watch *watch = &times->watch[0];
    uint64_t now;

    times->left = times->every;
    if (times->every == 0)
        return;
    now = rme_now_ns();
    for (unsigned i = 1; i < RME_TIMES_WATCHED && watch->op != NULL; i++)
        if (times->watch[i].op == NULL || times->watch[i].since < watch->since)
            watch = &times->watch[i];
    if (watch->op != NULL) {
        if (now - watch->since <= RME_TIMES_KEPT_NS)
            return;
        watch->op->watch = NULL;
    }
    *watch = (struct rme_watch){.op = op, .since = now, .went = RME_PROTO_COUNT};
    op->watch = watch;
}

void rme_times_step(struct rme_op *op)
{
    uint64_t now = rme_now_ns();

    op->watch->spent[op->state] += now - op->watch->since;
    op->watch->since = now;
}

unsigned rme_times_class(uint64_t ns)
{
    unsigned class = 63 - (unsigned)__builtin_clzll(ns | 1);

    return class < RME_TIME_CLASSES ? class : RME_TIME_CLASSES - 1;
}

/* Returns the protocol's name in reports. */
static const char *name_of(enum rme_proto went)
{
    static const char *const names[] = {
        [RME_PROTO_EAGER] = "eager",
        [RME_PROTO_FAST] = "fast",
        [RME_PROTO_RNDV_WRITE] = "rendezvous_write",
        [RME_PROTO_RNDV_READ] = "rendezvous_read",
        [RME_PROTO_COUNT] = "none",
    };

    return names[went];
}

static struct rme_times_row *row_of(struct rme_times *times, const struct rme_op *op)
{
    enum rme_proto went = op->watch->went;
    struct rme_times_row *row;

    for (uint32_t i = 0; i < times->nrow; i++)
        if (times->row[i]->kind == op->kind && times->row[i]->went == went)
            return times->row[i];
    if (times->nrow == RME_TIMES_ROWS)
        return NULL;
    row = calloc(1, sizeof(*row));
    if (row == NULL)
        return NULL;
    row->kind = op->kind;
    row->went = went;
    times->row[times->nrow++] = row;
    return row;
}

bool rme_times_at(const struct rme_times *times, int index, struct rme_stage *out)
{
    for (uint32_t r = 0; r < times->nrow; r++) {
        const struct rme_times_row *row = times->row[r];

        for (unsigned s = RME_OP_FREE + 1; s < RME_STAGES; s++) {
            uint64_t any = 0;

            for (unsigned i = 0; i < RME_TIME_CLASSES; i++)
                any |= row->count[s][i];
            if (any == 0 || index-- > 0)
                continue;
            out->kind = rme_op_kind_name(row->kind);
            out->protocol = name_of(row->went);
            out->stage = s == RME_STAGE_REGISTERING ? "registering" : rme_op_state_name(s);
            memcpy(out->count, row->count[s], sizeof(out->count));
            out->spent_ns = row->spent[s];
            return true;
        }
    }
    return false;
}

void rme_times_end(struct rme_times *times, struct rme_op *op, bool reported)
{
    struct rme_watch *watch = op->watch;
    struct rme_times_row *row;

    rme_times_step(op);
    row = reported ? row_of(times, op) : NULL;
    for (unsigned s = RME_OP_FREE + 1; row != NULL && s < RME_STAGES; s++)
        if (watch->spent[s] > 0) {
            row->count[s][rme_times_class(watch->spent[s])]++;
            row->spent[s] += watch->spent[s];
        }
    op->watch = NULL;
    watch->op = NULL;
}
