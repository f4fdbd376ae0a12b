/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core_rig.h"

int core_setup(void **state)
{
    (void)state;
    loop_reset();
    lines_count();
    return 0;
}

/* Cleans up after a test that failed in the middle. */
int core_teardown(void **state)
{
    (void)state;
    while (BMI_finalize() == 0)
        ;
    return 0;
}

BMI_addr_t lookup(const char *text)
{
    BMI_addr_t addr;
    assert_int_equal(BMI_addr_lookup(&addr, text, NULL), 0);
    assert_true(addr > 0);
    return addr;
}

void start_client(bmi_context_id *context)
{
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_open_context(context), 0);
}

void start_server(int flags)
{
    assert_int_equal(BMI_initialize("bmi_loopa,bmi_loopb", "loopa://me,loopb://me",
                                    BMI_INIT_SERVER | flags, "k=v"),
                     0);
}
