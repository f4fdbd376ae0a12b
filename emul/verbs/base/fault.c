/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/verbs/base/fault.h"

static const char *const names[CALL_COUNT] = {
#define X(name, sweep) #name,
    EMU_CALLS(X)
#undef X
};

static const bool sweeps[CALL_COUNT] = {
#define X(name, sweep) sweep,
    EMU_CALLS(X)
#undef X
};

void emu_fault_init(const struct emu_knobs *k)
{
    emul_fault_seed = k->seed;
    emul_faults_parse("emuverbs", "EMUVERBS_FAIL", k->fail, names, CALL_COUNT, true);
}

/* Not inlined, because faults are rare. */
__attribute__((noinline)) static bool fails(enum emu_call call, uint64_t n, uint64_t all)
{
    if (!emul_fault_hits((int)call, n, all))
        return false;
    emu_count(COUNT_faults_injected, 1);
    return true;
}

bool emu_call(enum emu_call call)
{
    uint64_t n =
        1 + atomic_fetch_add_explicit(&emu_counters->call[call], 1, memory_order_relaxed);
    uint64_t all = 0;

    if (sweeps[call])
        all = 1 + atomic_fetch_add_explicit(&emu_counters->count[COUNT_sweep_calls], 1,
                                            memory_order_relaxed);
    return emul_nfaults && fails(call, n, all);
}
