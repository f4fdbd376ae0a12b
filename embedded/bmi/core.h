/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * core.h - the inside of the BMI core: its one state, and what the files of this folder offer
 * each other.
 *
 * The API of BMI has no handle, so there is one struct bmi_core for the process; nothing else
 * here is global.
 *
 * Locks, in the order in which they may be taken:
 *   life     BMI_initialize and BMI_finalize; held from beginning to end
 *   methods  starting methods, opening and closing contexts; held while the method does so
 *   refs     the address table (refs.c); never held while a method is called; taken around a
 *            fork (init.c).  The others are not: starting and stopping may take seconds.  A
 *            child of a fork in the midst of that, or while another thread looks up a new
 *            address or opens or closes a context, cannot use BMI, nor finalize it
 * Posting, testing and cancelling take none of the first two: the table of active methods only
 * grows while BMI is up, and the address they use is pinned (refs.h).
 */
#ifndef BMI_CORE_H
#define BMI_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "bmi.h"
#include "bmi-method-support.h"
#include "refs.h"

#define BMI_MAX_METHODS 16 /* active at once */

struct bmi_core {
    pthread_mutex_t life;
    atomic_int users; /* calls of BMI_initialize without their BMI_finalize */
    atomic_int flags; /* of the first of them */
    pthread_mutex_t methods;
    char *options; /* of the first of them, own; NULL: none; for methods that start later */
    struct bmi_method_ops
        *active[BMI_MAX_METHODS]; /* [0 … active_count-1]; written before the count is */
    atomic_int active_count;
    atomic_uint contexts; /* one bit for each open context */
    atomic_uint turn;     /* whose turn it is to be asked first */
    struct bmi_refs refs;
};

extern struct bmi_core bmi_core;

/* True between the first BMI_initialize and the last BMI_finalize. */
static inline bool bmi_is_up(void)
{
    return atomic_load_explicit(&bmi_core.users, memory_order_acquire) > 0;
}

static inline int bmi_active_count(void)
{
    return atomic_load_explicit(&bmi_core.active_count, memory_order_acquire);
}

static inline bool bmi_context_is_open(bmi_context_id context)
{
    return context >= 0 && context < BMI_MAX_CONTEXTS &&
           (atomic_load_explicit(&bmi_core.contexts, memory_order_acquire) >> context & 1u);
}

/* What a method returned, as the program sees it: errors as BMI codes, anything else as it is.
 */
static inline int bmi_result(int ret)
{
    return ret < 0 ? bmi_errno_to_pvfs(ret) : ret;
}

/*
 * Starts a method if it is not active yet (activate.c); the caller holds `methods`.  listen is
 * NULL on a client. 0 or a negative BMI error.
 */
int bmi_activate(struct bmi_method_ops *ops, const char *listen, int flags, char *options);

/* Warns of the first of these options, which are for several methods, that none of the methods
 * of the program has. */
void bmi_warn_of_unknown(const char *options);

/* Stops all active methods, the last one first; the caller holds `methods`. */
void bmi_deactivate_all(void);

/* The method called "bmi_<scheme>", by the name's first `length` characters; NULL when this
 * program has none. */
struct bmi_method_ops *bmi_method_by_name(const char *name, size_t length);

/* Does one of the comma-separated parts of `text` start with "scheme://" or "scheme-…://"? */
bool bmi_has_scheme(const char *text, const char *scheme);

/* The scheme of a method's addresses: its name without "bmi_". */
const char *bmi_method_scheme(const struct bmi_method_ops *ops);

/* Drops an address that nobody refers to, if its method says that the peer is dead.  The caller
 * has it pinned. */
void bmi_drop_if_dead(struct bmi_ref *ref);

/* Asks about the addresses that methods told us to forget (callbacks.c). */
void bmi_check_forgotten(void);

#endif
