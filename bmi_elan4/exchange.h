/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exchange.h - exchange of cards over TCP: a client connects to a known port, both sides send
 * their cards, and the connection is closed.  The server's side is a desk, the client's a call.
 * Nothing blocks; one thread at a time uses a desk or a call.  Times are ms of the monotonic
 * clock.
 */
#ifndef BMI_ELAN4_EXCHANGE_H
#define BMI_ELAN4_EXCHANGE_H

#include <stdint.h>
#include <sys/socket.h>

#include "bmi_elan4/card.h"

#define BMI_ELAN4_VISITORS 16   /* clients of a desk; another one displaces the oldest */
#define BMI_ELAN4_VISIT_MS 2000 /* timeout of a client */
#define BMI_ELAN4_PAUSE_MS 100  /* pause of the listener without a free descriptor */

struct bmi_elan4_desk;
struct bmi_elan4_call;

/* Opens a listener.  Returns 0 or a negative errno (-EADDRINUSE, -EADDRNOTAVAIL ...). */
int bmi_elan4_desk_open(const struct sockaddr *addr, socklen_t length,
                        const struct bmi_elan4_card *mine, struct bmi_elan4_desk **out);
void bmi_elan4_desk_close(struct bmi_elan4_desk *desk);
/* Returns a descriptor, owned by the desk, that is readable when there is work. */
int bmi_elan4_desk_fd(const struct bmi_elan4_desk *desk);
/* Returns the listening port. */
unsigned bmi_elan4_desk_port(const struct bmi_elan4_desk *desk);
/* Does all work that is possible now.  Returns the number of cards sent. */
int bmi_elan4_desk_serve(struct bmi_elan4_desk *desk, int64_t now);
/* Returns the time of the next work without a readable descriptor; -1: none. */
int64_t bmi_elan4_desk_deadline(const struct bmi_elan4_desk *desk);

/* Starts a call.  Returns 0 or a negative errno. */
int bmi_elan4_call_begin(const struct sockaddr *addr, socklen_t length,
                         const struct bmi_elan4_card *mine, struct bmi_elan4_call **out);
/*
 * Continues a call.  Returns 0 with the peer's card, with any verdict; -EAGAIN: incomplete; or
 * another negative errno: -ECONNREFUSED no listener, -ECONNRESET connection closed, -EPROTO not
 * a card.  After any result but -EAGAIN the call must be ended.
 */
int bmi_elan4_call_step(struct bmi_elan4_call *call, struct bmi_elan4_card *theirs);
/* Return the call's own descriptor, and the events to wait for, as in poll(2). */
int bmi_elan4_call_fd(const struct bmi_elan4_call *call);
short bmi_elan4_call_events(const struct bmi_elan4_call *call);
void bmi_elan4_call_end(struct bmi_elan4_call *call);

#endif
