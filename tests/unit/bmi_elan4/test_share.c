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

static void reset(uint32_t most, uint32_t per_node)
{
    memset(&s, 0, sizeof(s));
    s.most = most;
    s.per_node = per_node;
}

/* Takes as much as the process may have, up to `most`; returns the total. */
static uint32_t take(unsigned vp, uint32_t most)
{
    while (most-- > 0 && elan_share_left(&s, vp))
        elan_share_take(&s, vp);
    return s.of[vp];
}

static void give_all(unsigned vp)
{
    while (s.of[vp])
        elan_share_give(&s, vp);
}

/* Greedy processes in turn: each leaves something for later ones, and the resource is used up,
 * but not exceeded. */
static void greedy_ones_leave_something(void **state)
{
    static const struct {
        uint32_t most, has[8]; /* of processes in turn */
    } row[] = {{128, {64, 32, 16, 8, 4, 2, 1, 1}}, {16, {8, 4, 2, 1, 1}}, {4, {2, 1, 1}}};
    (void)state;
    for (unsigned r = 0; r < 3; r++) {
        uint32_t taken = 0;
        reset(row[r].most, 1);
        for (unsigned vp = 0; vp < 8; vp++) {
            assert_int_equal(take(vp, UINT32_MAX), row[r].has[vp]);
            taken += row[r].has[vp];
            assert_int_equal(s.taken, taken);
        }
        assert_int_equal(taken, row[r].most);
        for (unsigned vp = 0; vp < 8; vp++)
            give_all(vp);
        assert_int_equal(s.taken, 0);
        assert_int_equal(take(1, UINT32_MAX), row[r].most / 2);
    }
}

/* Beside a greedy process as many others as are left have one each. */
static void others_find_something(void **state)
{
    (void)state;
    reset(128, 1);
    take(7, UINT32_MAX);
    for (unsigned vp = 100; vp < 164; vp++)
        assert_int_equal(take(vp, 1), 1);
    assert_int_equal(s.taken, 128);
    assert_int_equal(take(200, 1), 0);
}

/* Any number of processes of a node leave a quarter to other nodes. */
static void processes_of_a_node_leave_a_quarter(void **state)
{
    uint32_t node = 0;

    (void)state;
    reset(128, 50);
    for (unsigned vp = 0; vp < 50; vp++)
        node += take(vp, UINT32_MAX);
    assert_int_equal(node, 96);
    assert_int_equal(take(50, UINT32_MAX), 16); /* another node's */
    give_all(50);
    elan_share_give(&s, 0);
    node = s.of[1];
    assert_int_equal(take(1, 1), node + 1); /* of the first node again */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_ones_leave_something),
        cmocka_unit_test(others_find_something),
        cmocka_unit_test(processes_of_a_node_leave_a_quarter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
