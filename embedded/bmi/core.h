/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * core.h - internals of the BMI core: its state, and the functions shared by its files.
 *
 * The API of BMI has no handle, so the process has one struct bmi_core, the only global state.
 *
 * Locks, in order:
 *   life     BMI_initialize and BMI_finalize, for the whole call
 *   methods  starting methods, opening and closing contexts, including the method's calls
 *   refs     the address table (refs.c); never held during a call of a method
 *
 * A fork takes the lock refs only (init.c), because starting and stopping may take seconds.  A
 * child cannot use or finalize BMI if the fork happened during one of these, a lookup of a new
 * address, or the opening or closing of a context.
 *
 * Posting, testing and cancelling take neither `life` nor `methods`: the table of active
 * methods only grows while BMI is up, and the addresses in use are pinned (refs.h).
 */
#ifndef BMI_CORE_H
#define BMI_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "bmi.h"
#include "bmi-method-support.h"
#include "refs.h"

#define BMI_MAX_METHODS 16 /* maximum active methods */

struct bmi_core {
    pthread_mutex_t life;
    atomic_int users; /* calls of BMI_initialize without BMI_finalize */
    atomic_int flags; /* flags of the first BMI_initialize */
    pthread_mutex_t methods;
    char *options; /* options of the first BMI_initialize for methods started later; owned;
                    * NULL: none */
    struct bmi_method_ops
        *active[BMI_MAX_METHODS]; /* entries 0 to active_count-1; set before the count */
    atomic_int active_count;
    atomic_uint contexts; /* bit per open context */
    atomic_uint turn;     /* counter; rotates the method that is tested first */
    struct bmi_refs refs;
};

extern struct bmi_core bmi_core;

/* Returns true between the first BMI_initialize and the last BMI_finalize. */
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

/* Converts a method's result for the program: errors to BMI codes, other values unchanged. */
static inline int bmi_result(int ret)
{
    return ret < 0 ? bmi_errno_to_pvfs(ret) : ret;
}

/*
 * Starts a method unless active (activate.c); the caller holds `methods`.  listen is NULL on a
 * client.  Returns 0 or a negative BMI error.
 */
int bmi_activate(struct bmi_method_ops *ops, const char *listen, int flags, char *options);

/* Finds the first of these options that no method of the program has, and copies its name, cut
 * at the size, to `key`. */
bool bmi_has_unknown(const char *options, char *key, size_t size);

/* Logs that option; `options` may be NULL. */
void bmi_warn_of_unknown(const char *options);

/* Stops all active methods, in reverse order; the caller holds `methods`. */
void bmi_deactivate_all(void);

/* Returns the method "bmi_<scheme>" whose name is the first `length` characters of `name`;
 * NULL: not in this program. */
struct bmi_method_ops *bmi_method_by_name(const char *name, size_t length);

/* Returns true if a comma-separated part of `text` begins with "scheme://" or
 * "scheme-...://". */
bool bmi_has_scheme(const char *text, const char *scheme);

/* Returns the scheme of a method's addresses: its name without "bmi_". */
const char *bmi_method_scheme(const struct bmi_method_ops *ops);

/* Drops an address without references if its method reports the peer as dead.  The caller has
 * pinned the address. */
void bmi_drop_if_dead(struct bmi_ref *ref);

/* Handles the addresses that methods reported as gone (callbacks.c). */
void bmi_check_forgotten(void);

#endif
