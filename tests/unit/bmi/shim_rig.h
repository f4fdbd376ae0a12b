/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shim_rig.h - shared by the tests of the shim, between the BMI core and an engine that the
 * test drives. */
#ifndef SHIM_RIG_H
#define SHIM_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bmi.h"
#include "fake_rme.h"
#include "lines.h"

#define TEST(f) cmocka_unit_test_setup_teardown(f, shim_setup, shim_teardown)

extern bmi_context_id context;
extern BMI_addr_t peer; /* the client's address */

int shim_setup(void **state);
int shim_teardown(void **state); /* fails if an engine or an address is left */

void start_client(void);
void start_server(int flags);
bmi_op_id_t post_recv(int tag, void *user);

#endif
