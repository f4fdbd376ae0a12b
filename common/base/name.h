/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A table that finds an operation or a message by (peer, kind, number) in constant time.
 *
 * Our numbers are counted up for each peer and repeat after 2^32 others: a number is unique as
 * long as any message of that peer can be in flight.  The peer is responsible for its own
 * numbers.
 */
#ifndef RME_NAME_H
#define RME_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/table.h"

enum rme_name_kind {
    RME_NAME_OWN, /* ours, of an operation (struct rme_rndv, own) */
    /* the peer's, of its send matched with our receive (struct rme_rndv, theirs) */
    RME_NAME_SEND,
    RME_NAME_RECEIVE, /* the peer's, of its receive matched with our send (likewise) */
    RME_NAME_MESSAGE, /* the peer's, of its unmatched send (struct rme_message) */
};

/* A member of the named object; zero-initialised. */
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

/* Sets or replaces a name.  Of equal names the last one is found. */
void rme_name_set(struct rme_table *names, struct rme_name *name, uint32_t peer,
                  enum rme_name_kind kind, uint32_t number);
/* Removes a name, if set. */
void rme_name_drop(struct rme_table *names, struct rme_name *name);
/* Finds a name; NULL: unknown. */
struct rme_name *rme_name_find(const struct rme_table *names, uint32_t peer,
                               enum rme_name_kind kind, uint32_t number);

#endif
