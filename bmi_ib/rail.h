/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* rail.h - devices of a fabric.  All functions run with the engine's lock. */
#ifndef BMI_IB_RAIL_H
#define BMI_IB_RAIL_H

#include "bmi_ib/ib.h"

/* Adds a rail to a fabric, which frees it; NULL: no memory. */
struct ib_rail *ib_rail_new(struct rme_fabric *f);
/* Removes the last rail, which has no resources. */
void ib_rail_drop(struct rme_fabric *f);
/* Frees the resources of a rail, but not the structure. */
void ib_rail_close(struct ib_rail *rail);
/* Selects a device for each rail.  Skips unusable devices as long as one is usable. */
int ib_rails_choose(struct rme_fabric *f);
int ib_rails_open(struct rme_fabric *f);
/* Lets lost devices go, opens those that are back, and sets the time of the next call. */
void ib_rails_reopen(struct rme_fabric *f, uint64_t now);

#endif
