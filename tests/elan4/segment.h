/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TESTS_ELAN4_SEGMENT_H
#define TESTS_ELAN4_SEGMENT_H

#include "emul/elan4/shm.h"

#include <stdbool.h>

/* The emulation's segment of this process, mapped once more; NULL: there is none yet. */
struct shm_head *own_segment(void);
/* Whether nothing waits in its table, or is being done. */
bool ctx_is_idle(const struct shm_ctx *c);
/* Whether the death of another process has been noticed, and all that it had begun is known. */
bool somebody_is_gone(const struct shm_head *seg);
/* Whether that process has greeted this one, and its death has not been noticed. */
bool is_known(const struct shm_head *seg, int pid);
/* Takes the lock of a context of this process's as its owner would; false: somebody has it. */
bool take_lock(struct shm_ctx *c);
void give_lock(struct shm_ctx *c);

/* Whether the engine's thread sleeps, and no time wakes it. */
bool sleeps_for_ever(const struct shm_head *seg);

#endif
