/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef RME_DRAW_H
#define RME_DRAW_H

#include <stdint.h>

/* Returns a random number, unpredictable to peers.  If the system has no random bytes yet,
 * mixes the clock, the process and an address. */
uint64_t rme_draw(void);

#endif
