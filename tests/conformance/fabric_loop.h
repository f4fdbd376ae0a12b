/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tests of the loop fabric's own checks and knobs. Skipped over other fabrics. */
#ifndef TESTS_FABRIC_LOOP_TESTS_H
#define TESTS_FABRIC_LOOP_TESTS_H

#include "fabric_bench.h"
#include "../fabric/loop.h"

void loop_counts_receiver_not_ready(void **state);
void loop_waits_for_flush(void **state);
void loop_moves_data_late(void **state);
void loop_fails_the_kth_call(void **state);
void loop_kills_at_the_nth_message(void **state);
void loop_hosts_nobody_answers(void **state);
void loop_notices_breaches(void **state);
void loop_repeats_with_its_seed(void **state);

int loop_elan4_open(void **state);
int loop_elan4_close(void **state);
void loop_elan4_loses_links(void **state);
void loop_elan4_notices_breaches(void **state);
void loop_elan4_events_need_no_buffer(void **state);
void loop_elan4_data_moves_until_down(void **state);

#define FABRIC_LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, bench_open, bench_close)
#define FABRIC_LOOP_ELAN4_TEST(name)                                                           \
    cmocka_unit_test_setup_teardown(name, loop_elan4_open, loop_elan4_close)
#define FABRIC_LOOP_TESTS                                                                      \
    FABRIC_LOOP_TEST(loop_counts_receiver_not_ready), FABRIC_LOOP_TEST(loop_waits_for_flush),  \
        FABRIC_LOOP_TEST(loop_moves_data_late), FABRIC_LOOP_TEST(loop_fails_the_kth_call),     \
        FABRIC_LOOP_TEST(loop_kills_at_the_nth_message),                                       \
        FABRIC_LOOP_TEST(loop_hosts_nobody_answers), FABRIC_LOOP_TEST(loop_notices_breaches),  \
        FABRIC_LOOP_TEST(loop_repeats_with_its_seed),                                          \
        FABRIC_LOOP_ELAN4_TEST(loop_elan4_loses_links),                                        \
        FABRIC_LOOP_ELAN4_TEST(loop_elan4_notices_breaches),                                   \
        FABRIC_LOOP_ELAN4_TEST(loop_elan4_events_need_no_buffer),                              \
        FABRIC_LOOP_ELAN4_TEST(loop_elan4_data_moves_until_down)

#endif
