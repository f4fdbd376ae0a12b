/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * loop_method.h - BMI methods inside one process, for tests of the core: bmi_loopa and
 * bmi_loopb, and a table of both.
 *
 * A send to an address meets the receives posted on the same address. Tests can make functions
 * fail, make peers appear and die, and see the calls.
 */
#ifndef LOOP_METHOD_H
#define LOOP_METHOD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "bmi-method-support.h"

enum { LOOP_A, LOOP_B, LOOPS };

struct loop_op;
struct loop_message;

struct loop {
    /* set by tests */
    int initialize_error;
    int context_error; /* result of open_context */
    int set_info_error;
    int port;                                 /* listening port; 0: not listening */
    int test_error;                           /* result of the test functions */
    bool report_more;                         /* testcontext returns "active" */
    const char *knows;                        /* name of its only option; NULL: unknown */
    void (*on_query)(bmi_method_addr_p addr); /* called by the query whether a peer is dead */
    void (*on_lookup)(void);                  /* called during an address lookup */
    /* read by tests */
    atomic_int initialized, finalized, lookups, drops, queries, cancels, freed;
    atomic_int asked; /* calls of test functions */
    bool called_away; /* does not sleep because of an event that the call does not return */
    atomic_int slept; /* ms of idle time given to test functions without a result */
    atomic_uint contexts;
    char options[64], listening[64];
    int flags;
    /* private */
    const char *scheme;
    int method_id;
    pthread_mutex_t *lock;
    struct loop_op *ops;
    struct loop_message *unexpected;
    bmi_method_addr_p listen;
    bmi_method_addr_p last_lookup; /* returned again for "loopa://same" */
    int last_lookup_refs;
};

extern struct loop loops[LOOPS];
extern struct bmi_method_ops bmi_loopa_ops, bmi_loopb_ops;

/* Resets the fields above, except those of a running method. */
void loop_reset(void);

/* Makes a peer appear and returns its address. `known` false: without registering it with the
 * core. */
bmi_method_addr_p loop_new_peer(struct loop *l, const char *name, bool known);
void loop_peer_sends(struct loop *l, bmi_method_addr_p peer, int tag, int size);
void loop_peer_dies(bmi_method_addr_p peer);

#endif
