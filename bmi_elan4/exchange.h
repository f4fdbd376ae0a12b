/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Meeting over TCP: a client connects to a port that it knows, both hand over their cards, and
 * the connection is over. A server has a desk, a client makes a call. Nothing here blocks; one
 * thread at a time uses a desk or a call. Times are milliseconds of the monotonic clock.
 */
#ifndef BMI_ELAN4_EXCHANGE_H
#define BMI_ELAN4_EXCHANGE_H

#include <stdint.h>
#include <sys/socket.h>

#include "bmi_elan4/card.h"

#define BMI_ELAN4_VISITORS 16   /* at a desk at a time; one more displaces the oldest */
#define BMI_ELAN4_VISIT_MS 2000 /* for one of them */
#define BMI_ELAN4_PAUSE_MS 100  /* until the next is let in when there was no descriptor */

struct bmi_elan4_desk;
struct bmi_elan4_call;

/* Listens. 0, or a negative errno (-EADDRINUSE, -EADDRNOTAVAIL, …). */
int bmi_elan4_desk_open(const struct sockaddr *addr, socklen_t length,
                        const struct bmi_elan4_card *mine, struct bmi_elan4_desk **out);
void bmi_elan4_desk_close(struct bmi_elan4_desk *desk);
/* Becomes readable when there is something to do; the desk's own. */
int bmi_elan4_desk_fd(const struct bmi_elan4_desk *desk);
/* The port that it listens at. */
unsigned bmi_elan4_desk_port(const struct bmi_elan4_desk *desk);
/* Does what can be done now. How many cards were given out. */
int bmi_elan4_desk_serve(struct bmi_elan4_desk *desk, int64_t now);
/* When the desk wants to be served although nothing is readable; -1: never. */
int64_t bmi_elan4_desk_deadline(const struct bmi_elan4_desk *desk);

/* Starts to call. 0, or a negative errno. */
int bmi_elan4_call_begin(const struct sockaddr *addr, socklen_t length,
                         const struct bmi_elan4_card *mine, struct bmi_elan4_call **out);
/*
 * Goes on: 0 with the other's card, whatever its verdict; -EAGAIN: not yet; another negative
 * errno: -ECONNREFUSED nobody listens, -ECONNRESET it hung up, -EPROTO it is somebody else.
 * After anything but -EAGAIN it is only to be ended.
 */
int bmi_elan4_call_step(struct bmi_elan4_call *call, struct bmi_elan4_card *theirs);
/* What to wait for: the call's own descriptor, and events as poll(2) has them. */
int bmi_elan4_call_fd(const struct bmi_elan4_call *call);
short bmi_elan4_call_events(const struct bmi_elan4_call *call);
void bmi_elan4_call_end(struct bmi_elan4_call *call);

#endif
