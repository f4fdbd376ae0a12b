/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counting of calls and injection of single failures. */
#ifndef EMUL_VERBS_FAULT_H
#define EMUL_VERBS_FAULT_H

#include <stdbool.h>

#include "emul/common/fault.h"
#include "emul/verbs/base/counters.h"
#include "emul/verbs/base/knobs.h"

/* Parses EMUVERBS_FAIL; reports errors on stderr. */
void emu_fault_init(const struct emu_knobs *k);

/* Counts one call; true when the call must fail. Any thread. */
bool emu_call(enum emu_call call);

#endif
