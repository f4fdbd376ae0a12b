/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/elan4/counters.h"

#include <errno.h>
#include <inttypes.h>

#include "emul/common/fault.h"

static struct emu4_counters early;
struct emu4_counters *emu4_counters = &early;

static const char *const call_names[] = {
#define X(name) #name,
    EMU4_CALLS(X)
#undef X
};

void emu4_fail_init(const char *list)
{
    emul_faults_parse("emuelan4", "EMUELAN4_FAIL", list, call_names, EMU4_CALL_COUNT, false);
}

bool emu4_call(enum emu4_call call)
{
    uint64_t n =
        atomic_fetch_add_explicit(&emu4_counters->call[call], 1, memory_order_relaxed) + 1;

    if (!emul_nfaults || !emul_fault_hits((int)call, n, 0))
        return false;
    errno = EIO;
    return true;
}

void emu4_counters_json(const struct emu4_counters *c, int pid, FILE *out)
{
    fprintf(out, "{\"pid\": %d, \"calls\": {", pid);
    const char *comma = "";
    for (int i = 0; i < EMU4_CALL_COUNT; i++) {
        uint64_t v = atomic_load(&c->call[i]);
        if (!v)
            continue;
        fprintf(out, "%s\"%s\": %" PRIu64, comma, call_names[i], v);
        comma = ", ";
    }
    fprintf(out, "}");
#define X(name, unit, prose) fprintf(out, ", \"%s\": %" PRIu64, #name, atomic_load(&c->name));
    EMU4_COUNTS(X)
#undef X
    fprintf(out, "}\n");
}

void emu4_counters_help(FILE *out)
{
#define X(name, unit, prose) fprintf(out, "  %-16s %s: %s\n", #name, unit, prose);
    EMU4_COUNTS(X)
#undef X
    fprintf(out, "\nCalls that are counted and that EMUELAN4_FAIL can fail:\n");
    for (int i = 0; i < EMU4_CALL_COUNT; i++)
        fprintf(out, "  %s\n", call_names[i]);
}
