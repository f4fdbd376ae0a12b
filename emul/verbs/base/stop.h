/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stops: named steps in the middle of changes to shared memory. A test stops a thread at a
 * step, inspects the state, and continues the thread or kills the process.
 *
 * EMUVERBS_STOP names the steps and the arrival at which a thread stops. EMUVERBS_STOP_FD is a
 * socket whose other end the test holds: the thread writes one byte, the number of the step,
 * and stops until it has read one. The byte read is the number of further arrivals until the
 * next stop; 0: none.
 */
#ifndef EMUL_VERBS_STOP_H
#define EMUL_VERBS_STOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "emul/verbs/base/knobs.h"

/* X(name, prose) */
#define EMU_STEPS(X)                                                                           \
    X(take, "a receive of the peer was chosen and is not taken")                               \
    X(taken, "a receive was taken and this is not recorded")                                   \
    X(push, "a completion was filled and is not in its queue")                                 \
    X(wake, "a completion is in an armed queue, which is not disarmed")                        \
    X(notify, "a queue was disarmed and its event is not raised")                              \
    X(reported, "the event of a queue was raised and this is not recorded")                    \
    X(signal, "a completion channel was found and its owner is not woken")                     \
    X(grow, "a growing queue has sealed its ring and has no new one")                          \
    X(sent,                                                                                    \
      "the receiver's completion is queued and the sender's, delayed by this step, is not")

enum emu_step {
#define X(name, prose) EMU_STEP_##name,
    EMU_STEPS(X)
#undef X
        EMU_STEP_COUNT
};

extern uint32_t emu_steps; /* one bit for each watched step */

static inline bool emu_step_watched(enum emu_step s)
{
    return __builtin_expect(emu_steps >> s & 1, 0);
}

void emu_step_here(enum emu_step s);

/* Marks a step where a test may stop a thread. */
static inline void emu_step(enum emu_step s)
{
    if (emu_step_watched(s))
        emu_step_here(s);
}

/* Parses EMUVERBS_STOP and EMUVERBS_STOP_FD; reports errors on stderr. */
void emu_steps_init(const struct emu_knobs *k);

/* Prints the table of steps. */
void emu_steps_help(FILE *out);

#endif
