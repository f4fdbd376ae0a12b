/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A list of cases, each in processes of its own, as a program. */
#ifndef TESTS_ELAN4_CASES_H
#define TESTS_ELAN4_CASES_H

#define CASE(call)                                                                             \
    do {                                                                                       \
        int rc_ = (call);                                                                      \
        printf("%s %s\n", rc_ ? "FAILED" : "ok    ", #call);                                   \
        fflush(stdout);                                                                        \
        failed_ += rc_ != 0;                                                                   \
        passed_ += rc_ == 0;                                                                   \
    } while (0)
#define CASES_BEGIN int passed_ = 0, failed_ = 0
#define CASES_END                                                                              \
    printf("%d passed, %d failed\n", passed_, failed_);                                        \
    return failed_ || !passed_

#endif
