/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The conformance suite: requirements on an engine over any fabric. lane.h describes the
 * command line. */
#include "cases.h"

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
#define CASE_ROW(name) cmocka_unit_test_setup_teardown(name, process_setup, process_teardown),
        ALL_CASES(CASE_ROW)
#undef CASE_ROW
    };

    lane.peer = process_peer;
    lane.guest = process_guest;
    lane.visitor = process_visitor;
    return lane_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
