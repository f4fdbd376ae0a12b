/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * model - devices in virtual time: doc/design/model.md.
 *
 * usage: model validation|engine|planner|corners|crowd|few
 *        model papers|vary|vary-few FILE
 *
 * Prints a page in Markdown: published rows beside the model's; the engine by size; the planner
 * beside protocols by force, all cells or few of them; a server of up to 10,000 clients, or of
 * few; the papers' ratios by bench/papers.model; assumptions by half and double, or one alone.
 * Status 1: a row is outside its bar, or a message was lost; 2: wrong usage.
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
    if (argc == 3 && strcmp(argv[1], "papers") == 0)
        return papers_page(stdout, argv[2]) ? 1 : 0;
    if (argc == 3 && strncmp(argv[1], "vary", 4) == 0)
        return vary_page(stdout, argv[2], strcmp(argv[1], "vary-few") == 0) ? 1 : 0;
    fputs("usage: model validation|engine|planner|corners|crowd|few\n"
          "       model papers|vary|vary-few FILE\n",
          stderr);
    return 2;
}
