/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "emul/common/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FAULTS 16

static struct {
    int call; /* -1: any call */
    uint64_t nth;
} faults[MAX_FAULTS];
int emul_nfaults;

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
        int call = colon ? call_by_name(names, count, list, (size_t)(colon - list)) : -1;
        char *end;
        uint64_t nth = strtoull(colon ? colon + 1 : list, &end, 10);
        if ((call < 0 && (colon || !any)) || end != list + len || nth == 0) {
            fprintf(stderr, "%s: %s: \"%.*s\" ignored: %scall:K with a known call expected\n",
                    emulator, variable, (int)len, list, any ? "K, or " : "");
            continue;
        }
        faults[emul_nfaults].call = call;
        faults[emul_nfaults++].nth = nth;
    }
}

bool emul_fault_hits(int call, uint64_t n, uint64_t all)
{
    for (int i = 0; i < emul_nfaults; i++)
        if (faults[i].call == call ? faults[i].nth == n
                                   : faults[i].call < 0 && all && faults[i].nth == all)
            return true;
    return false;
}
