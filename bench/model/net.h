/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* net.h - the loop fabric (tests/fabric) with the times of modelled adapters. */
#ifndef BENCH_MODEL_NET_H
#define BENCH_MODEL_NET_H

#include "bench/model/node.h"
#include "fabric.h"

/* Opens fabrics for `n` from now on. */
void net_opens(struct node *n);
const struct rme_fabric_ops *net_fabric(void);
void net_start(void);
/* Ends timing; frees the queues. */
void net_stop(void);

/* For net.c: takes time of the node whose turn it is, if there is one. */
void node_charge(double ns);
/* Takes the time of copies since the last call. */
void node_charge_copies(struct node *n);
uint64_t node_now(void);
void node_set_now(uint64_t now);

#endif
