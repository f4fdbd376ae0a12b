/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A list of cases, each in its own processes, as a TAP program. */
#ifndef TESTS_ELAN4_CASES_H
#define TESTS_ELAN4_CASES_H

#include <stdbool.h>

/* Returns whether the case is selected (tests/lib/cases.h); its name is the call without
 * punctuation. */
bool case_begins(const char *call);
/* Reports the current case: 0 for success. */
void case_ends(int rc);
/* Prints the plan and returns the program's exit status. */
int cases_end(void);

#define CASE(call)                                                                             \
    do {                                                                                       \
        if (case_begins(#call))                                                                \
            case_ends(call);                                                                   \
    } while (0)

#endif
