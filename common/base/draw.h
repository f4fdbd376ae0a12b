/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef RME_DRAW_H
#define RME_DRAW_H

#include <stdint.h>

/* A number that nobody guesses, another one each time; where the system has no random bytes yet
 * it is made of the clock, the process and an address. */
uint64_t rme_draw(void);

#endif
