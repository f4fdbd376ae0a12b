/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "op/match.h"

struct rme_match *rme_match_succeed(struct rme_match *match)
{
    struct rme_match *next = container_of(match->same.next, struct rme_match, same);

    list_del_init(&match->same);
    next->keyed = match->keyed;
    *next->keyed.at = &next->keyed;
    if (next->keyed.next != NULL)
        next->keyed.next->at = &next->keyed.next;
    match->keyed.at = NULL;
    return next;
}
