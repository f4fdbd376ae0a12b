/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wr_id.h - fields of a 64-bit wr_id: kind (4 bits), ring position or buffer generation (24),
 * link handle or index of a receive buffer (32).
 */
#ifndef BMI_IB_WR_ID_H
#define BMI_IB_WR_ID_H

#include <stdint.h>
#include "bmi_ib/ring.h"

enum ib_wr_kind { IB_WR_NONE, IB_WR_SEND, IB_WR_RECV, IB_WR_MARK_SEND, IB_WR_MARK_RECV };

static inline uint64_t ib_wr_id(enum ib_wr_kind kind, uint32_t position, uint32_t low)
{
    return (uint64_t)kind << 60 | (uint64_t)(position & IB_POSITION_MASK) << 32 | low;
}

static inline enum ib_wr_kind ib_wr_kind(uint64_t id)
{
    return (enum ib_wr_kind)(id >> 60);
}

static inline uint32_t ib_wr_position(uint64_t id)
{
    return (uint32_t)(id >> 32) & IB_POSITION_MASK;
}

static inline uint32_t ib_wr_low(uint64_t id)
{
    return (uint32_t)id;
}

#endif
