/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Helpers for tests of rdma_cm; each process has one event channel. */
#ifndef TESTS_EMUL_CM_HELP_H
#define TESTS_EMUL_CM_HELP_H

#include <rdma/rdma_cma.h>

#include "tests/emul/pair.h"

#define PORT first_port

extern int first_port; /* of this program alone */
extern struct rdma_event_channel *chan;
extern enum rdma_port_space space; /* of new ids */

struct rdma_cm_id *new_id(void *context);
struct sockaddr *at(const char *host, int port);
struct rdma_cm_event *next_event(enum rdma_cm_event_type type);
int eat(enum rdma_cm_event_type type);
void give_qp(struct rdma_cm_id *id);
void resolve(struct rdma_cm_id *id, const char *host, int port);
struct rdma_cm_id *listen_at(const char *host, int port, int backlog);
/* Takes an event, and returns its id. */
struct rdma_cm_id *id_of(enum rdma_cm_event_type type);
struct rdma_cm_id *accept_one(void);
/* Requests a connection from an id with a QP, without waiting for an answer. */
struct rdma_cm_id *ask(int port);
struct rdma_cm_id *connect_to(const char *host, int port);
void drop(struct rdma_cm_id *id);
void all_gone(void);
/* Destroys up to two ids, and the channel. */
void finished(struct rdma_cm_id *id, struct rdma_cm_id *other);

#endif
