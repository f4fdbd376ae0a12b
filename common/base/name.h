/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What peers call things: a table that finds an operation or a message by (peer, kind, number)
 * in constant time.
 *
 * A number that we give is counted up for each peer and comes again after 2^32 others, so it
 * names the same thing for as long as any message of that peer can be on its way.  A number
 * that a peer gives is as good as the peer.
 */
#ifndef RME_NAME_H
#define RME_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/table.h"

enum rme_name_kind {
    RME_NAME_OWN, /* ours, of an operation (struct rme_rndv, own) */
    /* the peer's, of its send that our receive has met (struct rme_rndv, theirs) */
    RME_NAME_SEND,
    RME_NAME_RECEIVE, /* the peer's, of its receive that our send has met (likewise) */
    RME_NAME_MESSAGE, /* the peer's, of its send that no receive has met (struct rme_message) */
};

/* Kept inside what it names; zeroed at first. */
struct rme_name {
    struct rme_keyed keyed; /* in the table of names */
    bool set;
};

static inline uint64_t rme_name_key(uint32_t peer, uint32_t number)
{
    return (uint64_t)peer << 32 | number;
}

static inline uint32_t rme_name_number(const struct rme_name *name)
{
    return (uint32_t)name->keyed.key;
}

/* Sets a name, which may be set already.  Where two are alike, the last one is found. */
void rme_name_set(struct rme_table *names, struct rme_name *name, uint32_t peer,
                  enum rme_name_kind kind, uint32_t number);
/* Takes it out, if it is set. */
void rme_name_drop(struct rme_table *names, struct rme_name *name);
/* NULL: nothing is called so. */
struct rme_name *rme_name_find(const struct rme_table *names, uint32_t peer,
                               enum rme_name_kind kind, uint32_t number);

#endif
