/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TESTS_ELAN4_SEGMENT_H
#define TESTS_ELAN4_SEGMENT_H

#include "emul/elan4/shm.h"

/* The emulation's segment of this process, mapped once more; NULL: there is none yet. */
struct shm_head *own_segment(void);

#endif
