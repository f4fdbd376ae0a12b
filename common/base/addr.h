/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parsed addresses, for the engine and the fabrics: the constant part of struct rme_addr. */
#ifndef RME_ADDR_H
#define RME_ADDR_H

#include "rme.h"

struct rme_addr_part {
    /* without brackets; the machine's number on networks that number machines */
    const char *host;
    const char *port; /* decimal; of a process on the host */
};

/* Returns the number of parts with our scheme; 0 for a peer that connected to us. */
RME_API int rme_addr_parts(const struct rme_addr *addr);
RME_API const struct rme_addr_part *rme_addr_part(const struct rme_addr *addr, int part);

#endif
