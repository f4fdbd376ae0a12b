/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rules of the emulated Elan4: a case for each, with the rule's name. */
#include "tests/elan4/cases.h"
#include "tests/elan4/rules.h"

static const struct rule_test *const all[] = {event_rules, command_rules, queue_rules,
                                              dma_rules, attach_rules};

int main(void)
{
    for (unsigned k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        for (const struct rule_test *t = all[k]; t->rule; t++)
            if (case_begins(t->rule))
                case_ends(run_beds_kill(t->n, t->fn, t->victim));
    return cases_end();
}
