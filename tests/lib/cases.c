/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Runs the cases of a cmocka program one by one and reports each in TAP.
 *
 * Linked with --wrap=_cmocka_run_group_tests,--wrap=_skip. Environment: CASES_ONLY, CASES_NOT:
 * names of cases, separated by spaces: run only these; skip these.
 *
 * The cases also report to standard output in cmocka's own format; TAP ignores those lines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/lib/cases.h"

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests,
                                   size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests,
                                   size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);
_Noreturn void __real__skip(const char *file, int line);
_Noreturn void __wrap__skip(const char *file, int line);

static bool skipped;
static void *group_state;

_Noreturn void __wrap__skip(const char *file, int line)
{
    skipped = true;
    __real__skip(file, line);
}

/* The state that the group's set-up has made becomes the initial state of each case. */
static struct CMUnitTest with_state(const struct CMUnitTest *test)
{
    struct CMUnitTest one = *test;

    if (one.initial_state == NULL)
        one.initial_state = group_state;
    return one;
}

static void report(int number, const char *name, int failed, const struct timespec *begun)
{
    struct timespec now;
    long ms;

    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (now.tv_sec - begun->tv_sec) * 1000 + (now.tv_nsec - begun->tv_nsec) / 1000000;
    printf("%s %d - %s%s\n# %ld ms\n", failed != 0 ? "not ok" : "ok", number, name,
           failed == 0 && skipped ? " # SKIP" : "", ms);
    fflush(stdout);
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests,
                                   size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown)
{
    int failed = 0, number = 0;

    if (setup != NULL && setup(&group_state) != 0) {
        printf("Bail out! %s: the set-up of the group failed\n", name);
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        struct CMUnitTest one = with_state(&tests[i]);
        struct timespec begun;
        int rc;

        if (!case_is_chosen(one.name))
            continue;
        skipped = false;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        rc = __real__cmocka_run_group_tests(name, &one, 1, NULL, NULL);
        report(++number, one.name, rc, &begun);
        failed += rc != 0;
    }
    if (teardown != NULL && teardown(&group_state) != 0) {
        printf("not ok %d - the tear-down of the group\n", ++number);
        failed++;
    }
    printf(number == 0 ? "1..0 # SKIP no case is chosen\n" : "1..%d\n", number);
    fflush(stdout);
    return failed;
}
