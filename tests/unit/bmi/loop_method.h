/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * loop_method.h - BMI methods inside one process, for tests of the core: bmi_loopa and
 * bmi_loopb, and the table that has these two.
 *
 * What is sent to an address comes out of the receives posted on the same address.  Tests can
 * make functions fail, make peers appear and die, and see which calls arrived.
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
    /* what a test may set */
    int initialize_error;
    int context_error; /* of open_context */
    int set_info_error;
    int port;          /* that it listens on; 0: it does not */
    int test_error;    /* of the test functions */
    bool report_more;  /* testcontext says "active" */
    const char *knows; /* the name of its only option; NULL: it does not say */
    void (*on_query)(
        bmi_method_addr_p addr); /* called while the method is asked whether a peer is dead */
    void (*on_lookup)(void);     /* called while an address is looked up */
    /* what a test may look at */
    atomic_int initialized, finalized, lookups, drops, queries, cancels, freed;
    atomic_int asked; /* calls of test functions */
    bool called_away; /* it does not sleep, as something came that the call does not fetch */
    atomic_int slept; /* ms of idle time that test functions got with nothing to report */
    atomic_uint contexts;
    char options[64], listening[64];
    int flags;
    /* its own */
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

/* Forgets all of the above except what belongs to a running method. */
void loop_reset(void);

/* A peer appears; its address object.  `known` false: without telling the core. */
bmi_method_addr_p loop_new_peer(struct loop *l, const char *name, bool known);
void loop_peer_sends(struct loop *l, bmi_method_addr_p peer, int tag, int size);
void loop_peer_dies(bmi_method_addr_p peer);

#endif
