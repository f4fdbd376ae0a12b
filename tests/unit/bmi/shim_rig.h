/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shim_rig.h - shared by the tests of the BMI core and the shim, over an engine that the test
 * drives, and another method. */
#ifndef SHIM_RIG_H
#define SHIM_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bmi.h"
#include "fake_rme.h"
#include "other_method.h"

#define TEST(f) cmocka_unit_test_setup_teardown(f, shim_setup, shim_teardown)

/* Lines of the log, which are counted instead of printed. */
extern struct lines {
    int errors, debug;
    char last_error[1200];
} lines;
void lines_count(void); /* resets the counts */

extern bmi_context_id context;
extern BMI_addr_t peer; /* the client's address */

int shim_setup(void **state);
int shim_teardown(void **state); /* fails if an engine or an address is left */

void start_client(void);
void start_server(int flags);
bmi_op_id_t post_recv(int tag, void *user);
void receive(struct BMI_unexpected_info *info);      /* one message, which waits */
void answer(const struct BMI_unexpected_info *info); /* frees it, and the reference with it */
void find_nothing(int polls);

#endif
