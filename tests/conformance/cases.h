/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cases of the engine's suite: the functions CASE(name) of the *_test.c files, over the fixture
 * (bed.h). make lists them in cases.inc, in their order. */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include "bed.h"

#define CASE(name)                                                                             \
    void name(void);                                                                           \
    void name(void)

int process_setup(void **state);
int process_teardown(void **state);
/* Roles of this program when a test starts it: a server under the test's control, a client that
 * is killed, one of many clients. */
int process_peer(const char *uri);
int process_guest(const char *uri);
int process_visitor(const char *uri); /* crowd_test.c */
void visitors_kill(void);

#endif
