/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * struct rme_addr, for addr.c (text, host pointer, rme_addr_is_dead, rme_addr_match) and the
 * engine (peer, rme_addr_free, rme_addr_is_over).  Fabrics include addr.h only.
 *
 * Lifetime: `refs` counts the host's reference (from rme_addr_parse or rme_addr_new_passive
 * until rme_addr_free) and those of longer users, such as a peer.  The text never changes.
 * `engine` and `peer` belong to the engine and are guarded by its lock.  rme_addr_free must
 * find the engine before it can lock: `engine` is therefore atomic, set at the first use with
 * an engine and cleared by rme_close.
 */
#ifndef RME_ADDR_INT_H
#define RME_ADDR_INT_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdint.h>
#include "base/addr.h"

struct rme_peer;

struct rme_addr {
    char *name;           /* for log lines: the parsed text, or host:port of a passive peer */
    int nparts;           /* 0: a peer that connected to us, and cannot be connected */
    bool has_from;        /* the host of such a peer is a number: */
    struct in6_addr from; /* IPv4 is mapped into IPv6 */
    _Atomic(void *) host; /* pointer of rme_addr_set_host */
    atomic_uint refs;
    atomic_bool dead; /* see rme_addr_is_dead */
    _Atomic(struct rme *) engine;
    struct rme_peer *peer;
    uint32_t
        held; /* unexpected messages of the peer that the host holds; under the engine's lock */
    struct rme_addr_part part[]; /* parts with our scheme, in the order of the text */
};

/* Creates the address of a peer that connected to us from `name`, "host:port", with one
 * reference.  NULL: no memory. */
struct rme_addr *rme_addr_new_passive(const char *name);

/* Take and drop a reference; the last one frees the text.  Any thread. */
void rme_addr_get(struct rme_addr *addr);
void rme_addr_put(struct rme_addr *addr);

#endif
