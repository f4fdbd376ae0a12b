/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parsed addresses, for the engine and the fabrics.  The part of struct rme_addr that does not
 * change. */
#ifndef RME_ADDR_H
#define RME_ADDR_H

#include "rme.h"

struct rme_addr_part {
    const char *host; /* without brackets; where machines have numbers, that */
    const char *port; /* decimal; of a process at the host */
};

/* How many parts with our scheme the address has (0 for a peer that came to us). */
int rme_addr_parts(const struct rme_addr *addr);
const struct rme_addr_part *rme_addr_part(const struct rme_addr *addr, int part);

#endif
