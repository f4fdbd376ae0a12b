/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * model - devices in virtual time: doc/design/model.md.
 *
 * usage: model validation
 *
 * Prints a page in Markdown.  Status 1: a figure is outside its bar; 2: wrong usage.
 */
#include <stdio.h>
#include <string.h>

#include "bench/model/raw.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "validation") == 0)
        return validate(stdout) ? 1 : 0;
    fputs("usage: model validation\n", stderr);
    return 2;
}
