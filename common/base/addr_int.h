/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inside of struct rme_addr, for addr.c (its text, the host's word, rme_addr_is_dead) and
 * the engine (its peer, rme_addr_free, rme_addr_is_over, rme_addr_match).  Fabrics see addr.h
 * only.
 *
 * Lifetime: `refs` counts the host's reference (from rme_addr_parse or rme_addr_new_passive
 * until rme_addr_free) and one of whoever keeps the pointer longer, as a peer does.  The text
 * part never changes.  `engine` and `peer` belong to the engine and are guarded by its lock,
 * but for rme_addr_free, which must find the engine first: it is therefore atomic, set when the
 * address is first used with an engine and cleared by rme_close.
 */
#ifndef RME_ADDR_INT_H
#define RME_ADDR_INT_H

#include <netinet/in.h>
#include <stdatomic.h>
#include "base/addr.h"

struct rme_peer;

struct rme_addr {
    char *name; /* for log lines: what was parsed, or host:port of a passive peer */
    struct rme_addr_part *part; /* parts with our scheme, in the order of the text */
    int nparts;                 /* 0: a peer that came to us, cannot be connected */
    union { /* where such a peer came from; its family is 0 when the fabric does not say */
        struct sockaddr sa;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } from;
    _Atomic(void *) host; /* the host's word */
    atomic_uint refs;
    atomic_bool dead; /* see rme_addr_is_dead */
    _Atomic(struct rme *) engine;
    struct rme_peer *peer;
};

/* An address for a peer that came to us from `from` (may be NULL), with one reference.  NULL:
 * no memory. */
struct rme_addr *rme_addr_new_passive(const char *name, const struct sockaddr *from);

/* One more reference; one less (frees the text when it was the last).  Any thread. */
void rme_addr_get(struct rme_addr *addr);
void rme_addr_put(struct rme_addr *addr);

/*
 * Does the address in `sa` (IPv4, IPv6, IPv4 mapped into IPv6) match `pattern`?  The pattern is
 * "a.b.c.d", "[v6]", "v6", "a.b.*" or a host name, optionally with scheme:// in front and :port
 * or /anything behind.  `netmask` is the number of leading bits that count; negative or larger
 * than the address: all of them.  A host name is compared with `name`, the peer's own text (may
 * be NULL), without regard to case; nothing is resolved.  1 yes, 0 no or not parsable.
 */
int rme_addr_match_sockaddr(const struct sockaddr *sa, const char *name, const char *pattern,
                            int netmask);

#endif
