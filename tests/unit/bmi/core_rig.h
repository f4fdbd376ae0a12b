/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* core_rig.h - shared by the tests of the BMI core over the loop methods. */
#ifndef CORE_RIG_H
#define CORE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bmi.h"
#include "lines.h"
#include "loop_method.h"

#define A (&loops[LOOP_A])
#define B (&loops[LOOP_B])

#define TEST(f) cmocka_unit_test_setup_teardown(f, core_setup, core_teardown)

int core_setup(void **state);
int core_teardown(void **state);

BMI_addr_t lookup(const char *text);
void start_client(bmi_context_id *context);
void start_server(int flags);

#endif
