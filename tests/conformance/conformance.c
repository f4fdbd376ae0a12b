/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The conformance suite: requirements on an engine over any fabric. lane.h describes the
 * command line. */
#include "cases.h"

#define LISTED(name)                                                                           \
    void name(void);                                                                           \
    static void run_##name(void **state)                                                       \
    {                                                                                          \
        (void)state;                                                                           \
        name();                                                                                \
    }
#include "tests/conformance/cases.inc"
#undef LISTED

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
#define LISTED(name) {#name, run_##name, process_setup, process_teardown, NULL},
#include "tests/conformance/cases.inc"
#undef LISTED
    };

    lane.peer = process_peer;
    lane.guest = process_guest;
    lane.visitor = process_visitor;
    return lane_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
