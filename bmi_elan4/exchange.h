/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exchange.h - a server's connection data over TCP: a client connects to a known port, the
 * server sends its connection data, and the connection is closed.  The server's side is a
 * bootstrap server, the client's a query.  The client sends nothing, so the server keeps no
 * connection, and no client can delay others.  Nothing blocks; one thread at a time uses a
 * bootstrap server or a query.
 */
#ifndef BMI_ELAN4_EXCHANGE_H
#define BMI_ELAN4_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bmi_elan4/conn_info.h"

struct bmi_elan4_bootstrap;
struct bmi_elan4_query;

/* Opens a listener.  Returns 0 or a negative errno (-EADDRINUSE, -EADDRNOTAVAIL ...). */
int bmi_elan4_bootstrap_open(const struct sockaddr *addr, socklen_t length,
                             const struct bmi_elan4_conn_info *mine,
                             struct bmi_elan4_bootstrap **out);
void bmi_elan4_bootstrap_close(struct bmi_elan4_bootstrap *bootstrap);
/* Returns the listener, owned by the bootstrap server, which becomes readable with each new
 * client. */
int bmi_elan4_bootstrap_fd(const struct bmi_elan4_bootstrap *bootstrap);
/* Serves the waiting clients.  Returns the number of connection data sent. */
int bmi_elan4_bootstrap_serve(struct bmi_elan4_bootstrap *bootstrap);
/* Returns true if the last call may have left clients, for lack of a descriptor or because of
 * their number: to be called again soon. */
bool bmi_elan4_bootstrap_behind(const struct bmi_elan4_bootstrap *bootstrap);

/* Starts a query.  Returns 0 or a negative errno. */
int bmi_elan4_query_begin(const struct sockaddr *addr, socklen_t length,
                          struct bmi_elan4_query **out);
/*
 * Continues a query.  Returns 0 with the server's connection data, which the caller judges;
 * -EAGAIN:  incomplete; or another negative errno: -ECONNREFUSED no listener, -ECONNRESET
 * connection closed, -EPROTO not connection data.  After any result but -EAGAIN the query must
 * be ended.
 */
int bmi_elan4_query_step(struct bmi_elan4_query *query, struct bmi_elan4_conn_info *theirs);
/* Returns the query's own descriptor, to be waited for until readable. */
int bmi_elan4_query_fd(const struct bmi_elan4_query *query);
void bmi_elan4_query_end(struct bmi_elan4_query *query);

#endif
