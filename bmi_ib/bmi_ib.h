/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi_ib.h - the verbs fabric: RDMA messages over libibverbs and librdmacm.
 *
 * Addresses are "ib://host:port" and "ib://[v6]:port".
 */
#ifndef BMI_IB_H
#define BMI_IB_H

#include "rme.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the function table, to be passed to rme_open() (rme.h) as `fabric`.  The table is
 * constant; any number of engines may share it, and any thread may call this function. */
RME_API const struct rme_fabric_ops *bmi_ib_fabric(void);

#ifdef __cplusplus
}
#endif
#endif
