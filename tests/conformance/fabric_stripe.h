/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tests of links over two devices. Skipped where the lane has one. */
#ifndef TESTS_FABRIC_STRIPE_H
#define TESTS_FABRIC_STRIPE_H

#include "fabric_bench.h"

void stripes_are_told_in_order(void **state);
void striped_reads_are_told_in_order(void **state);
void a_striped_link_ends_once(void **state);

#endif
