/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* rail.h - devices of a fabric.  All functions run with the engine's lock. */
#ifndef BMI_IB_RAIL_H
#define BMI_IB_RAIL_H

#include "bmi_ib/ib.h"

typedef int ib_step(struct rme_fabric *f);
/* Takes steps until one fails. */
int ib_steps(struct rme_fabric *f, ib_step *const take[], size_t n);

/* Allocates a rail; `head` NULL: the new rail is the head. */
struct rme_fabric *ib_rail_new(const struct rme_fabric_config *config, struct rme_fabric *head);
/* Frees the resources of a rail, but not the structure. */
void ib_rail_close(struct rme_fabric *f);
/* Selects a device for each rail.  Skips unusable devices as long as one is usable. */
int ib_rails_choose(struct rme_fabric *f);
int ib_rails_open(struct rme_fabric *f);
/* Lets lost devices go, opens those that are back, and sets the time of the next call. */
void ib_rails_mend(struct rme_fabric *head, uint64_t now);

#endif
