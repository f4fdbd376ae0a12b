/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/elan4/cases.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>

#include "tests/lib/cases.h"

static char name[100];
static int number, failed;

bool case_begins(const char *call)
{
    size_t n = 0;

    for (; *call && n + 2 < sizeof(name); call++) {
        if (isalnum((unsigned char)*call) || *call == '_')
            name[n++] = *call;
        else if (n && name[n - 1] != '_')
            name[n++] = '_';
    }
    while (n && name[n - 1] == '_')
        n--;
    name[n] = 0;
    return case_is_chosen(name);
}

void case_ends(int rc)
{
    printf("%s %d - %s\n", rc ? "not ok" : "ok", ++number, name);
    fflush(stdout);
    failed += rc != 0;
}

int cases_end(void)
{
    printf(number ? "1..%d\n" : "1..0 # SKIP no case is chosen\n", number);
    return failed != 0;
}
