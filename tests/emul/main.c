/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Runs the cases of a program, all or those that match the pattern argv[1]. */
#include "tests/emul/pair.h"

static struct emul_case *first, **last = &first;
static void (*before[4])(void);
static unsigned befores;

void emul_add(struct emul_case *c)
{
    *last = c;
    last = &c->next;
}

void emul_before(void (*fn)(void))
{
    before[befores++] = fn;
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[256];
    size_t n = 0;

    run_under_emuverbs(argv);
    for (unsigned i = 0; i < befores; i++)
        before[i]();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (struct emul_case *c = first; c; c = c->next) {
        CHECK(n < sizeof(tests) / sizeof(tests[0]));
        tests[n++] = (struct CMUnitTest){.name = c->name, .test_func = c->run};
    }
    return _cmocka_run_group_tests("emul", tests, n, NULL, NULL);
}
