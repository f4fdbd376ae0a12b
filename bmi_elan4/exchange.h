/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exchange.h - a server's card over TCP: a client connects to a known port, the server sends
 * its card, and the connection is closed.  The server's side is a desk, the client's a call.
 * The client sends nothing, so the server keeps no connection, and no client can delay others.
 * Nothing blocks; one thread at a time uses a desk or a call.
 */
#ifndef BMI_ELAN4_EXCHANGE_H
#define BMI_ELAN4_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bmi_elan4/card.h"

struct bmi_elan4_desk;
struct bmi_elan4_call;

/* Opens a listener.  Returns 0 or a negative errno (-EADDRINUSE, -EADDRNOTAVAIL ...). */
int bmi_elan4_desk_open(const struct sockaddr *addr, socklen_t length,
                        const struct bmi_elan4_card *mine, struct bmi_elan4_desk **out);
void bmi_elan4_desk_close(struct bmi_elan4_desk *desk);
/* Returns the listener, owned by the desk, which becomes readable with each new client. */
int bmi_elan4_desk_fd(const struct bmi_elan4_desk *desk);
/* Serves the waiting clients.  Returns the number of cards sent. */
int bmi_elan4_desk_serve(struct bmi_elan4_desk *desk);
/* Returns true if the last call may have left clients, for lack of a descriptor or because of
 * their number: to be called again soon. */
bool bmi_elan4_desk_behind(const struct bmi_elan4_desk *desk);

/* Starts a call.  Returns 0 or a negative errno. */
int bmi_elan4_call_begin(const struct sockaddr *addr, socklen_t length,
                         struct bmi_elan4_call **out);
/*
 * Continues a call.  Returns 0 with the server's card, which the caller judges; -EAGAIN:
 * incomplete; or another negative errno: -ECONNREFUSED no listener, -ECONNRESET connection
 * closed, -EPROTO not a card.  After any result but -EAGAIN the call must be ended.
 */
int bmi_elan4_call_step(struct bmi_elan4_call *call, struct bmi_elan4_card *theirs);
/* Returns the call's own descriptor, to be waited for until readable. */
int bmi_elan4_call_fd(const struct bmi_elan4_call *call);
void bmi_elan4_call_end(struct bmi_elan4_call *call);

#endif
