/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan_base.h - shared by the planner's tests. */
#ifndef TESTS_UNIT_PLAN_BASE_H
#define TESTS_UNIT_PLAN_BASE_H

#include "plan/plan.h"
#include "unit.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

static const struct rme_costs costs = {.copy_warm = 0.1,
                                       .copy_cold = 0.1,
                                       .reg_call = 10000,
                                       .reg_page = 200,
                                       .message = 2000,
                                       .request = 100};

static inline const struct rme_thresholds *limits_of(const struct rme_costs *from)
{
    static struct rme_thresholds limits[4]; /* of the last calls */
    static unsigned calls;
    struct rme_thresholds *out = &limits[calls++ % 4];

    rme_plan_thresholds(from, out);
    return out;
}

static inline struct rme_plan_in base(uint64_t bytes)
{
    return (struct rme_plan_in){.bytes = bytes,
                                .send = {.segments = 1},
                                .recv = {.segments = 1, .server = true},
                                .eager_max = 4000,
                                .frag_size = MIB,
                                .pack_threshold = 64 * KIB,
                                .max_sge = 30,
                                .max_read_sge = 30,
                                .has_read = true,
                                .limits = limits_of(&costs)};
}

static inline struct rme_plan decide(const struct rme_plan_in *in)
{
    struct rme_plan plan;

    rme_plan(in, &plan);
    assert_non_null(plan.why);
    return plan;
}

#endif
