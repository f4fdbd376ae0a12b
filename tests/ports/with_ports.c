/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* with-ports COMMAND…: runs a command with FIRST_PORT in its environment, the first of 64 ports
 * reserved while the command, or a process that it started, lives. */
#include "ports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char text[16];

    if (argc < 2) {
        fprintf(stderr, "usage: %s COMMAND...\n", argv[0]);
        return 2;
    }
    int first = ports_take();
    if (first < 0) {
        fprintf(stderr, "%s: no block of ports is free on 127.0.0.1: %s\n", argv[0],
                strerror(-first));
        return 1;
    }
    snprintf(text, sizeof(text), "%d", first);
    setenv("FIRST_PORT", text, 1);
    execvp(argv[1], argv + 1);
    fprintf(stderr, "%s: cannot run %s: %s\n", argv[0], argv[1], strerror(errno));
    return 127;
}
