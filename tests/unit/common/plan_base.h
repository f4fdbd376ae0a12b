/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan_base.h - shared by the planner's tests. */
#ifndef TESTS_UNIT_PLAN_BASE_H
#define TESTS_UNIT_PLAN_BASE_H

#include "plan/plan.h"
#include "unit.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

static const struct rme_limits limits = {
    .once = {200000, 4000, 2000}, .list = {16000, 700, 1000}, .read = 1};

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
                                .limits = &limits};
}

static inline struct rme_plan decide(const struct rme_plan_in *in)
{
    struct rme_plan plan;

    rme_plan(in, &plan);
    assert_non_null(plan.why);
    return plan;
}

#endif
