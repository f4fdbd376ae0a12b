/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi_elan4.h - the Elan4 fabric: RDMA messages over libelan4.
 *
 * Addresses are "elan4://node:context".  Give the table to rme_open (rme.h) as `fabric`.  The
 * table is constant and may be used by any number of engines in one process.
 */
#ifndef BMI_ELAN4_H
#define BMI_ELAN4_H

#include "rme.h"

#ifdef __cplusplus
extern "C" {
#endif

RME_API const struct rme_fabric_ops *bmi_elan4_fabric(void);

#ifdef __cplusplus
}
#endif
#endif
