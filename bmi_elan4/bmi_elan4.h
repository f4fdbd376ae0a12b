/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi_elan4.h - the Elan4 fabric: RDMA messages over libelan4.
 *
 * Addresses are "elan4://node:context".
 */
#ifndef BMI_ELAN4_H
#define BMI_ELAN4_H

#include "rme.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the function table, to be passed to rme_open() (rme.h) as `fabric`.  The table is
 * constant; any number of engines may share it, and any thread may call this function. */
RME_API const struct rme_fabric_ops *bmi_elan4_fabric(void);

#ifdef __cplusplus
}
#endif
#endif
