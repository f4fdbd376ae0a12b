/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Each rule of the emulated Elan4 holds; and each test notices when its rule is broken on
 * purpose (EMUELAN4_BROKEN). rules [-q] [RULE...]: only these; -q leaves out the second part.
 */
#include "tests/elan4/rules.h"

#include <fcntl.h>

static const struct rule_test *const all[] = {event_rules, command_rules, queue_rules,
                                              dma_rules, attach_rules};
static int failed, passed;

static void check(const struct rule_test *t, bool broken)
{
    int err = -1, null = -1;

    if (broken) {
        setenv("EMUELAN4_BROKEN", t->rule, 1);
        fflush(stderr); /* what it complains of is expected */
        err = dup(2);
        null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
    }
    int rc = run_beds_kill(t->n, t->fn, t->victim);
    if (broken) {
        unsetenv("EMUELAN4_BROKEN");
        dup2(err, 2);
        close(err);
        close(null);
    }
    bool ok = broken ? rc != 0 : rc == 0;
    printf("%s %s%s\n", ok ? "ok    " : "FAILED", t->rule, broken ? " broken is noticed" : "");
    fflush(stdout);
    if (ok)
        passed++;
    else
        failed++;
}

static bool wanted(const char *rule, char **names)
{
    if (!*names)
        return true;
    for (; *names; names++)
        if (strcmp(*names, rule) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "-q") == 0;
    char **names = argv + 1 + quick;

    for (unsigned k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        for (const struct rule_test *t = all[k]; t->rule; t++)
            if (wanted(t->rule, names)) {
                check(t, false);
                if (!quick)
                    check(t, true);
            }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
