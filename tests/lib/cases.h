/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Selects the cases of a test program that run: see cases.c. The function needs no cmocka. */
#ifndef TESTS_LIB_CASES_H
#define TESTS_LIB_CASES_H

#include <stdbool.h>

/* Returns whether CASES_ONLY and CASES_NOT select the case. */
bool case_is_chosen(const char *name);

#endif
