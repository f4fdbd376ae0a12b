/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Quotas of processes for shared resources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bmi_elan4/share.h"

static struct elan_share s;

static void reset(uint32_t most)
{
    memset(&s, 0, sizeof(s));
    s.most = most;
    s.per_node = 1;
}

/* Takes one, if the process may. */
static bool take(unsigned vp)
{
    if (!elan_share_left(&s, vp))
        return false;
    elan_share_take(&s, vp);
    return true;
}

/* Takes as much as the process may have; returns the total. */
static uint32_t greed(unsigned vp)
{
    while (take(vp))
        ;
    return s.of[vp];
}

static void one_leaves_half(void **state)
{
    (void)state;
    reset(128);
    assert_int_equal(greed(7), 64);
    assert_int_equal(s.taken, 64);
}

static void others_find_something(void **state)
{
    (void)state;
    reset(128);
    greed(7);
    for (unsigned vp = 100; vp < 164; vp++) /* as many as are left */
        assert_true(take(vp));
    assert_int_equal(s.taken, 128);
    assert_false(take(200));
}

/* Processes that take their whole quota leave some for later ones. */
static void greedy_ones_leave_something(void **state)
{
    (void)state;
    reset(128);
    for (unsigned vp = 0, has = 64; has > 1; vp++, has /= 2) {
        assert_int_equal(greed(vp), has);
        assert_true(take(1000));
        elan_share_give(&s, 1000);
    }
}

static void all_of_it_comes_back(void **state)
{
    (void)state;
    reset(16);
    greed(1);
    greed(2);
    while (s.of[1])
        elan_share_give(&s, 1);
    while (s.of[2])
        elan_share_give(&s, 2);
    assert_int_equal(s.taken, 0);
    assert_int_equal(greed(1), 8);
}

/* A small resource is used up, and not exceeded. */
static void little_of_it(void **state)
{
    (void)state;
    reset(4);
    assert_int_equal(greed(1), 2);
    assert_int_equal(greed(2), 1);
    assert_int_equal(greed(3), 1);
    assert_int_equal(greed(4), 0);
}

/* Any number of processes of a node leave a quarter to other nodes. */
static void processes_of_a_node_leave_a_quarter(void **state)
{
    uint32_t node = 0;

    (void)state;
    reset(128);
    s.per_node = 50;
    for (unsigned vp = 0; vp < 50; vp++)
        node += greed(vp);
    assert_int_equal(node, 96);
    assert_int_equal(greed(50), 16); /* another node's */
    while (s.of[50])
        elan_share_give(&s, 50);
    elan_share_give(&s, 0);
    assert_true(take(1)); /* of the first node again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_leaves_half),
        cmocka_unit_test(others_find_something),
        cmocka_unit_test(greedy_ones_leave_something),
        cmocka_unit_test(all_of_it_comes_back),
        cmocka_unit_test(little_of_it),
        cmocka_unit_test(processes_of_a_node_leave_a_quarter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
