/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* compat.h's use of libelan4, with the declarations of tests/elan4/headers and the test's own
 * functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bmi_elan4/compat.h"

static struct {
    int type, unit;
} registered[64];
static int count, fail_at;

int elan4_register_trap_handler(ELAN4_CTX *ctx, int type, int proc,
                                void (*handler)(ELAN4_CTX *, ELAN4_USER_TRAP *, void *),
                                void *arg)
{
    (void)ctx;
    assert_true(handler && arg);
    assert_true(count < 64);
    registered[count].type = type;
    registered[count].unit = proc;
    return ++count == fail_at ? -1 : 0;
}

static void on_trap(ELAN4_CTX *ctx, ELAN4_USER_TRAP *trap, void *arg)
{
    (void)ctx;
    (void)trap;
    (void)arg;
}

static bool has(int type, int unit)
{
    for (int i = 0; i < count; i++)
        if (registered[i].type == type && registered[i].unit == unit)
            return true;
    return false;
}

/* Leaves traps that libelan4 handles itself; there is no handler for all. */
static void unresolved_traps_are_taken_others_left(void **state)
{
    (void)state;
    count = fail_at = 0;
    assert_int_equal(compat_handle_traps(NULL, on_trap, &count), 0);
    assert_true(has(UTS_INVALID_ADDR, UTS_DPROC) && has(UTS_INVALID_ADDR, UTS_IPROC));
    assert_true(has(UTS_INVALID_ADDR, UTS_EPROC) && has(UTS_INVALID_VPROC, UTS_DPROC));
    for (int i = 0; i < count; i++) {
        assert_true(registered[i].type < UTS_EFAULT && registered[i].type > UTS_NETERR_ERROR);
        assert_true(registered[i].unit >= UTS_EPROC && registered[i].unit <= UTS_IPROC);
        assert_int_not_equal(registered[i].unit, UTS_TPROC);
    }
}

static void refused_handler_is_an_error(void **state)
{
    (void)state;
    count = 0;
    fail_at = 3;
    assert_int_equal(compat_handle_traps(NULL, on_trap, &count), -1);
    assert_int_equal(count, 3);
}

/* Makes a trap whose other fields are 0xff, so that they cannot be taken for addresses. */
static ELAN4_USER_TRAP trap(int type, unsigned unit)
{
    ELAN4_USER_TRAP t;

    memset(&t, 0x5a, sizeof(t));
    t.ut_type = type;
    t.ut_proc = unit;
    return t;
}

static void address_is_that_of_the_unit(void **state)
{
    ELAN4_USER_TRAP t = trap(UTS_INVALID_ADDR, UTS_DPROC);
    E4_Addr at;
    int type;

    (void)state;
    t.ut_trap.dproc.tr_prefetchFault.FaultAddress = 0x1234567890;
    assert_int_equal(compat_trap(&t, &type, &at), COMPAT_TRAP_SOURCE);
    assert_int_equal(type, UTS_INVALID_ADDR);
    assert_true(at == 0x1234567890);
    t = trap(UTS_INVALID_ADDR, UTS_IPROC);
    t.ut_trap.iproc.tr_faultarea.FaultAddress = 0xabcdef0123;
    assert_int_equal(compat_trap(&t, &type, &at), COMPAT_TRAP_SINK);
    assert_true(at == 0xabcdef0123);
    t = trap(UTS_INVALID_ADDR, UTS_EPROC);
    t.ut_trap.eproc.tr_faultarea.FaultAddress = 0x77;
    assert_int_equal(compat_trap(&t, &type, &at), COMPAT_TRAP_OTHER);
    assert_true(at == 0x77);
    t = trap(UTS_INVALID_VPROC, UTS_DPROC);
    assert_int_equal(compat_trap(&t, &type, &at), COMPAT_TRAP_OTHER);
    t = trap(UTS_INVALID_TRANS, UTS_IPROC);
    assert_int_equal(compat_trap(&t, &type, &at), COMPAT_TRAP_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unresolved_traps_are_taken_others_left),
        cmocka_unit_test(refused_handler_is_an_error),
        cmocka_unit_test(address_is_that_of_the_unit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
