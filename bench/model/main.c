/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * model - devices in virtual time: doc/design/model.md.
 *
 * usage: model validation|engine|planner|corners|crowd|few
 *
 * Prints a page in Markdown: published rows beside the model's; the engine by size; the planner
 * beside protocols by force, all cells or few of them; a server of up to 10,000 clients, or of
 * few.  Status 1: a row is outside its bar, or a message was lost; 2: wrong usage.
 */
#include <string.h>

#include "bench/model/pages.h"
#include "bench/model/raw.h"

enum { FEW = 100, MOST = 10000 }; /* clients */

int main(int argc, char **argv)
{
    const char *page = argc == 2 ? argv[1] : "";

    if (strcmp(page, "validation") == 0)
        return validate(stdout) ? 1 : 0;
    if (strcmp(page, "engine") == 0)
        return engine_page(stdout) ? 1 : 0;
    if (strcmp(page, "planner") == 0 || strcmp(page, "corners") == 0)
        return planner_page(stdout, page[0] == 'c') ? 1 : 0;
    if (strcmp(page, "crowd") == 0 || strcmp(page, "few") == 0)
        return crowd_page(stdout, page[0] == 'c' ? MOST : FEW) ? 1 : 0;
    fputs("usage: model validation|engine|planner|corners|crowd|few\n", stderr);
    return 2;
}
