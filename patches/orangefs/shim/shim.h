/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shim.h - turns the neutral engine (rme.h) into a BMI method.
 *
 * The files of this folder are the only ones that see a host's BMI headers.  They are compiled
 * inside an OrangeFS tree, of any release, or beside the embedded BMI core, whose headers have
 * the same names.
 *
 * Memory.  OrangeFS redefines malloc and free in what is compiled inside its tree.  So nothing
 * that was allocated here is ever freed by the engine and the other way round: the engine's
 * memory goes back through rme_ functions only.
 *
 * Locks.  OrangeFS calls set_info and get_info with a lock of its own (ref_mutex) held, and
 * takes that lock in the callbacks that a method may use.  The order is therefore
 *
 *     newcomer → the host's locks → lock → the engine's lock
 *
 * and the host's callbacks are never called with `lock` held.  `newcomer` is taken only where a
 * new peer is made known, which no host does with a lock held.
 *
 * A thread that forks takes `lock` and `complaint_lock` before it does, so that the child finds
 * them free and what they guard whole (shim.c): it is to hear from the engine that it is a
 * child, and may start the method again.  `newcomer`, which its holder may keep while it waits
 * for the host's locks, is initialized again in the child: what it guards are the parent's
 * messages, and an address that was being made known is in no ring.
 */
#ifndef RME_SHIM_H
#define RME_SHIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bmi-method-support.h"
#include "rme.h"

#define SHIM_GUARD   64 /* bytes */
#define SHIM_AT_ONCE 32 /* completions or messages handled in one go */
#define SHIM_PARKED  (4 * SHIM_AT_ONCE)

/*
 * What stands behind method_data.  OrangeFS chooses the method that answers query_addr_range by
 * the rule's scheme, not by the address's, so bmi_tcp may read this as its own structure and
 * call getpeername() on what it takes for a socket: the guard makes every int in reach -1.
 */
struct shim_addr {
    unsigned char guard[SHIM_GUARD]; /* 0xff */
    bmi_method_addr_p host;          /* the object that this is the data of */
    struct rme_addr *peer;
    int refs;            /* references the host has, and one of ours for the listen address */
    BMI_addr_t known_as; /* a peer that came to us: its number at the host */
    bool forgotten;      /* the host was told that it is over */
    struct shim_addr *prev, *next;
};

/* The state of the method.  It is zero, or -1, whenever the method is not initialized. */
static struct {
    pthread_mutex_t newcomer;
    pthread_mutex_t lock;     /* lookups, peers, cursor; all of struct shim_addr */
    struct shim_addr lookups; /* heads of rings */
    struct shim_addr peers;
    struct shim_addr *cursor;                  /* the peer that is checked next */
    struct rme_unexpected parked[SHIM_PARKED]; /* whose senders found no memory yet */
    atomic_int parked_count;                   /* both under `newcomer` */

    struct rme *rme;      /* NULL: not initialized */
    atomic_bool reached;  /* a lookup has found its server, or none has to */
    bool tells_why;       /* SHIM_TELLS_WHY */
    atomic_bool starting; /* the engine is being opened, or the first server looked for */
    pthread_mutex_t complaint_lock; /* a leaf; for: */
    char complaint[512]; /* the last one of a start that failed; also after finalize */
    int method_id;
    struct shim_addr *listen;

    struct bmi_method_addr op_addr; /* what every operation shows as its address */
    struct method_op op_template;   /* what the host reads of an operation that is free */
} self = {
    .newcomer = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .complaint_lock = PTHREAD_MUTEX_INITIALIZER,
    .method_id = -1,
    .lookups = {.prev = &self.lookups, .next = &self.lookups},
    .peers = {.prev = &self.peers, .next = &self.peers},
};

/* ---- shim.c ---- */

/* Around what a host repeats until it gives up: the same complaint is logged once until it went
 * well. */
static void shim_start(void);
static void shim_started(bool well);

/* A negative errno of the engine as a negative BMI code, one that makes OrangeFS retry; 0 for
 * 0. */
static bmi_error_code_t shim_error(int error);

/* ---- shim-addr.c ---- */

static void shim_drop_addr(bmi_method_addr_p host);

#endif
