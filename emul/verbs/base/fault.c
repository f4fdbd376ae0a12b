/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counting of calls and injection of single failures, see EMUVERBS_FAIL in knobs.h. */
#include "emul/verbs/base/fault.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FAULTS 16

static const struct {
    const char *name;
    bool sweep;
} calls[CALL_COUNT] = {
#define X(name, sweep) {#name, sweep},
    EMU_CALLS(X)
#undef X
};

static struct {
    int call; /* -1: any call counted by a sweep */
    uint64_t nth;
} faults[MAX_FAULTS];
static int nfaults;

static int call_by_name(const char *name, size_t len)
{
    for (int i = 0; i < CALL_COUNT; i++)
        if (strlen(calls[i].name) == len && strncmp(calls[i].name, name, len) == 0)
            return i;
    return -1;
}

void emu_fault_init(const struct emu_knobs *k)
{
    const char *p = k->fail;

    nfaults = 0;
    while (*p && nfaults < MAX_FAULTS) {
        size_t len = strcspn(p, ",");
        const char *colon = memchr(p, ':', len);
        int call = colon ? call_by_name(p, (size_t)(colon - p)) : -1;
        char *end;
        uint64_t nth = strtoull(colon ? colon + 1 : p, &end, 10);
        if ((colon && call < 0) || end != p + len || nth == 0)
            fprintf(
                stderr,
                "emuverbs: EMUVERBS_FAIL: \"%.*s\" ignored: neither K nor call:K with a known "
                "call\n",
                (int)len, p);
        else {
            faults[nfaults].call = call;
            faults[nfaults++].nth = nth;
        }
        p += len + (p[len] == ',');
    }
}

/* Returns whether a call must fail, by its number among calls of its name and among all. Not
 * inlined, because faults are rare. */
__attribute__((noinline)) static bool fails(enum emu_call call, uint64_t n, uint64_t all)
{
    for (int i = 0; i < nfaults; i++) {
        if (faults[i].call == (int)call ? faults[i].nth == n
                                        : faults[i].call < 0 && all && faults[i].nth == all) {
            emu_count(COUNT_faults_injected, 1);
            return true;
        }
    }
    return false;
}

bool emu_call(enum emu_call call)
{
    uint64_t n =
        1 + atomic_fetch_add_explicit(&emu_counters->call[call], 1, memory_order_relaxed);
    uint64_t all = 0;

    if (calls[call].sweep)
        all = 1 + atomic_fetch_add_explicit(&emu_counters->count[COUNT_sweep_calls], 1,
                                            memory_order_relaxed);
    return nfaults && fails(call, n, all);
}

bool emu_fault_expected(void)
{
    return nfaults > 0;
}
