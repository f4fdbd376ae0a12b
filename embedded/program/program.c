/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/program/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool program_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            fprintf(stderr,
                    "descriptor %d is closed, and /dev/null cannot take its place: %s; open "
                    "it\n",
                    fd, strerror(errno));
            return false;
        }
    }
    return true;
}

void program_catch(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, old;

    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

bool program_output(const char *program, const char *rest)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "%s: standard output: %s; direct it to where it can be written%s\n",
            program, errno ? strerror(errno) : "not all could be written", rest);
    return false;
}
