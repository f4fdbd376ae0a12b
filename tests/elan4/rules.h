/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A test for each rule of the network interface, by the rule's name. */
#ifndef TESTS_ELAN4_RULES_H
#define TESTS_ELAN4_RULES_H

#include "tests/elan4/bed.h"

struct rule_test {
    const char *rule;
    int n, victim; /* processes; index of the one that is killed, or -1 */
    bed_fn fn[4];
};

extern const struct rule_test event_rules[], command_rules[], queue_rules[], dma_rules[],
    attach_rules[];

#endif
