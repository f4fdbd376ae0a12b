/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi_ib.h - the verbs fabric: RDMA messages over libibverbs and librdmacm.
 *
 * Addresses are "ib://host:port", "ib://[v6]:port".  Give the table to rme_open (rme.h) as
 * `fabric`.  The table is constant and may be used by any number of engines in one process.
 */
#ifndef BMI_IB_H
#define BMI_IB_H

#include "rme.h"

#ifdef __cplusplus
extern "C" {
#endif

RME_API const struct rme_fabric_ops *bmi_ib_fabric(void);

#ifdef __cplusplus
}
#endif
#endif
