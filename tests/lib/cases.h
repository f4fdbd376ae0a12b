/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which cases of a test program run: see cases.c. The function needs no cmocka. */
#ifndef TESTS_LIB_CASES_H
#define TESTS_LIB_CASES_H

#include <stdbool.h>

/* Whether CASES_ONLY and CASES_NOT let the case run. */
bool case_is_chosen(const char *name);

#endif
