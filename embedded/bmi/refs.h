/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * refs.h - the addresses a program holds: BMI_addr_t to method address and back.
 *
 * An address is found by its number without a lock and is pinned while it is used, so that a
 * thread may drop it while another one is posting to it: the method is told to forget it when
 * the last pin is gone.
 */
#ifndef BMI_REFS_H
#define BMI_REFS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "bmi-method-support.h"

#define BMI_REF_CHUNKS 24 /* chunk k has 64 << k addresses */

/* An address.  What is not said to be guarded does not change while it is pinned. */
struct bmi_ref {
    atomic_uint_fast64_t word; /* generation, alive, pins; see refs.c */
    BMI_addr_t id;
    struct bmi_method_ops *ops;
    bmi_method_addr_p method_addr;
    char *name;                  /* what was looked up; NULL for a peer that came to us */
    int count;                   /* references of the program; guarded by the table's lock */
    bool forget;                 /* in the queue of forgotten ones; guarded */
    struct bmi_ref *next_forget; /* guarded */
    struct bmi_ref *next;        /* by name, or the next free one; guarded */
};

struct bmi_refs {
    pthread_mutex_t lock;
    _Atomic(struct bmi_ref *) chunk[BMI_REF_CHUNKS];
    uint32_t used;       /* how many of the chunks' addresses were ever in use */
    uint32_t generation; /* of an address used for the first time */
    struct bmi_ref *unused;
    struct bmi_ref **bucket; /* by name */
    uint32_t buckets;        /* a power of 2, or 0 */
    uint32_t named;
    struct bmi_ref *forgotten;
    atomic_uint forgotten_count;
};

/*
 * Adds an address (name may be NULL; it is copied).  Returns it pinned, or NULL when there is
 * no memory.  When the name is there already, that address is returned and *found is true: the
 * caller still owns method_addr.
 */
struct bmi_ref *bmi_refs_add(struct bmi_refs *refs, struct bmi_method_ops *ops,
                             bmi_method_addr_p method_addr, const char *name, bool *found);

/* Finds and pins; NULL when there is no such address. */
struct bmi_ref *bmi_refs_pin(struct bmi_refs *refs, BMI_addr_t id);
struct bmi_ref *bmi_refs_pin_name(struct bmi_refs *refs, const char *name);
struct bmi_ref *bmi_refs_pin_method_addr(struct bmi_refs *refs, bmi_method_addr_p method_addr);
void bmi_refs_unpin(struct bmi_refs *refs, struct bmi_ref *ref);

/* Adds `change` to the references of an address; the new number, or -1 (and no change) when it
 * would be negative. */
int bmi_refs_count(struct bmi_refs *refs, struct bmi_ref *ref, int change);

/* Ends a pinned address if it has no references: it is not found any more, and goes with the
 * last pin. */
void bmi_refs_kill_unused(struct bmi_refs *refs, struct bmi_ref *ref);

/* Queues an address for bmi_refs_next_forgotten; once until it came out again. */
void bmi_refs_forget(struct bmi_refs *refs, struct bmi_ref *ref);
struct bmi_ref *bmi_refs_next_forgotten(struct bmi_refs *refs); /* pinned, or NULL */

/* Tells the methods to forget every address and frees the table.  Numbers given out stay
 * unknown for ever. */
void bmi_refs_clear(struct bmi_refs *refs);

#endif
