/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TESTS_ELAN4_SEGMENT_H
#define TESTS_ELAN4_SEGMENT_H

#include "emul/elan4/shm.h"

#include <stdbool.h>

/* Maps this process's segment of the emulation once more; NULL: none yet. */
struct shm_head *own_segment(void);
/* Returns whether the context's table has no work, waiting or in progress. */
bool ctx_is_idle(const struct shm_ctx *c);
/* Returns whether the death of another process was noticed, and all its work is known. */
bool somebody_is_gone(const struct shm_head *seg);
/* Returns whether that process has greeted this one and its death was not noticed. */
bool is_known(const struct shm_head *seg, int pid);
/* Takes the lock of a context of this process like its owner; returns false if it is held. */
bool take_lock(struct shm_ctx *c);
void give_lock(struct shm_ctx *c);

/* Returns whether the engine's thread sleeps without a timeout. */
bool sleeps_for_ever(const struct shm_head *seg);

#endif
