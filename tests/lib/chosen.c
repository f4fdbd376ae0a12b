/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/lib/cases.h"

#include <stdlib.h>
#include <string.h>

static bool in_list(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *p = list; (p = strstr(p, name)) != NULL; p += length)
        if ((p == list || p[-1] == ' ') && (p[length] == ' ' || p[length] == '\0'))
            return true;
    return false;
}

bool case_is_chosen(const char *name)
{
    const char *only = getenv("CASES_ONLY"), *not = getenv("CASES_NOT");

    if (only != NULL && *only != '\0')
        return in_list(only, name);
    return not == NULL || !in_list(not, name);
}
