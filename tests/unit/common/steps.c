/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "steps.h"
#include "unit.h"

bool under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");

    return preloaded != NULL && strstr(preloaded, "valgrind") != NULL;
}

long steps_of(void (*act)(void *arg), void *arg)
{
    long steps = 0;
    int status = 0;
    pid_t child;

    if (under_valgrind())
        return 0;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(1);
        raise(SIGSTOP);
        act(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    while (WIFSTOPPED(status)) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        steps++;
    }
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 0 ? steps : 0;
}
