/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * refs.h - the addresses of a program: BMI_addr_t to method address and back.
 *
 * An address is found by number without a lock and pinned while in use, so that a thread may
 * drop it while another one posts: the method is called to drop its address at the last unpin.
 */
#ifndef BMI_REFS_H
#define BMI_REFS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "bmi-method-support.h"

#define BMI_REF_CHUNKS 24   /* chunk k has 64 << k slots */
#define BMI_REF_CHAINS 4096 /* of names, by their hash */

/* Address.  Fields without a lock do not change while the address is pinned. */
struct bmi_ref {
    atomic_uint_fast64_t word; /* generation, alive, pins; see refs.c */
    BMI_addr_t id;
    struct bmi_method_ops *ops;
    bmi_method_addr_p method_addr;
    char *name;                  /* string that was looked up; NULL for a peer that connected to
                                  * this host */
    int count;                   /* references of the program; protected by the table's lock */
    bool forget;                 /* in the queue of forgotten addresses; protected */
    struct bmi_ref *next_forget; /* protected */
    struct bmi_ref *next; /* next one in the chain of its name, or next free slot; protected */
    struct bmi_ref *same_prev, *same_next; /* ring of the names of method_addr; protected */
};

struct bmi_refs {
    pthread_mutex_t lock;
    _Atomic(struct bmi_ref *) chunk[BMI_REF_CHUNKS];
    uint32_t used;       /* slots ever used */
    uint32_t generation; /* generation of slots used for the first time */
    struct bmi_ref *unused;
    struct bmi_ref *named[BMI_REF_CHAINS]; /* addresses that were looked up */
    struct bmi_ref *forgotten;
    atomic_uint forgotten_count;
};

/*
 * Adds an address; `name` is copied and may be NULL.  Returns the pinned address; NULL: no
 * memory.  If the name exists, returns its address with *found true, and the caller keeps
 * method_addr.
 */
struct bmi_ref *bmi_refs_add(struct bmi_refs *refs, struct bmi_method_ops *ops,
                             bmi_method_addr_p method_addr, const char *name, bool *found);

/* Finds and pins an address; NULL: none. */
struct bmi_ref *bmi_refs_pin(struct bmi_refs *refs, BMI_addr_t id);
struct bmi_ref *bmi_refs_pin_name(struct bmi_refs *refs, const char *name);
struct bmi_ref *bmi_refs_pin_method_addr(struct bmi_refs *refs, bmi_method_addr_p method_addr);
/* Removes a pin; the last one of a dropped address frees it, calling its method. */
void bmi_refs_unpin(struct bmi_refs *refs, struct bmi_ref *ref);

/* Adds `change` to the references of an address.  Returns the new number, or -1 without a
 * change if the result would be negative. */
int bmi_refs_count(struct bmi_refs *refs, struct bmi_ref *ref, int change);

/* Drops a pinned address without references: it is no longer found and freed at the last
 * unpin. */
void bmi_refs_kill_unused(struct bmi_refs *refs, struct bmi_ref *ref);

/* Queues an address for bmi_refs_next_forgotten(), unless queued already. */
void bmi_refs_forget(struct bmi_refs *refs, struct bmi_ref *ref);
struct bmi_ref *bmi_refs_next_forgotten(struct bmi_refs *refs); /* pinned, or NULL */

/* Drops all addresses, calling their methods, and frees the table.  The numbers used remain
 * invalid. */
void bmi_refs_clear(struct bmi_refs *refs);

#endif
