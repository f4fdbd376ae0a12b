/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* wait.h - polling and sleeping; ib_poll(), ib_arm() and ib_wait() as in fabric.h, per rail. */
#ifndef BMI_IB_WAIT_H
#define BMI_IB_WAIT_H

#include "bmi_ib/ib.h"

/* Adds the rail's descriptors to the epoll set.  Returns 0 or a negative errno (logged). */
int ib_wait_watch(struct rme_fabric *f);
/* Fills in up to `max` events of the rail.  Returns their number. */
int ib_poll(struct rme_fabric *f, struct rme_event *events, int max);
/* Requests an event of the CQ.  Returns 0 or a negative errno. */
int ib_arm(struct rme_fabric *f);
void ib_wait(struct rme_fabric *f, int timeout_ms);

#endif
