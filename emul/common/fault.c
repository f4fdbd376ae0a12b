/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/common/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FAULTS 16

static struct {
    int call; /* -1: any call */
    uint64_t nth;
    uint32_t ppm; /* of calls, instead of the nth; 0: none */
} faults[MAX_FAULTS];
int emul_nfaults;
uint64_t emul_fault_seed;

/* Parses a number of calls or, with a percent sign, a rate; returns the end of the text. */
static const char *amount(const char *text, uint64_t *nth, uint32_t *ppm)
{
    char *end;
    double percent = strtod(text, &end);

    if (*end == '%' && percent > 0 && percent <= 100) {
        *ppm = (uint32_t)(percent * 10000 + 0.5);
        *nth = *ppm;
        return end + 1;
    }
    *ppm = 0;
    *nth = strtoull(text, &end, 10);
    return end;
}

/* Draws by the call, its number and the seed, so that a run can be repeated. */
static bool is_drawn(int call, uint64_t n, uint32_t ppm)
{
    uint64_t x = (emul_fault_seed << 8 | (uint32_t)call) * UINT64_C(0x9e3779b97f4a7c15) + n;

    /* the finalizer of SplitMix64 */
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % 1000000 < ppm;
}

static int call_by_name(const char *const *names, int count, const char *name, size_t len)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0)
            return i;
    return -1;
}

void emul_faults_parse(const char *emulator, const char *variable, const char *list,
                       const char *const *names, int count, bool any)
{
    emul_nfaults = 0;
    for (size_t len; *list && emul_nfaults < MAX_FAULTS; list += len + (list[len] == ',')) {
        len = strcspn(list, ",");
        const char *colon = memchr(list, ':', len);
        int call =
            colon != NULL ? call_by_name(names, count, list, (size_t)(colon - list)) : -1;
        uint64_t nth;
        uint32_t ppm;
        const char *end = amount(colon != NULL ? colon + 1 : list, &nth, &ppm);
        if ((call < 0 && (colon != NULL || !any)) || end != list + len || nth == 0 ||
            (ppm && colon == NULL)) {
            fprintf(
                stderr,
                "%s: %s: \"%.*s\" ignored: %scall:K or call:RATE%% of a known call expected\n",
                emulator, variable, (int)len, list, any ? "K, or " : "");
            continue;
        }
        faults[emul_nfaults].call = call;
        faults[emul_nfaults].ppm = ppm;
        faults[emul_nfaults++].nth = nth;
    }
}

bool emul_fault_hits(int call, uint64_t n, uint64_t all)
{
    for (int i = 0; i < emul_nfaults; i++) {
        bool hits = faults[i].call < 0 && all && faults[i].nth == all;

        if (faults[i].call == call)
            hits = faults[i].ppm ? is_drawn(call, n, faults[i].ppm) : faults[i].nth == n;
        if (hits)
            return true;
    }
    return false;
}
