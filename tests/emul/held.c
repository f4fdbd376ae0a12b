/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Two connected processes that end with all objects open; only the software HCA has the
 * address of a block of each, in a posted receive. Each prints `ready PID`, and ends after its
 * input. */
#include "tests/emul/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void hold(struct side *s)
{
    char c;

    side_open(s);
    side_connect(s);
    post_recv(s, (uintptr_t)malloc(100), 0, 64);
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (read(0, &c, 1) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    (void)argc;
    run_under_emuverbs(argv);
    return run_two(hold, hold) != 0;
}
