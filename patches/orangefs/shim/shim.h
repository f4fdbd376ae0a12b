/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shim.h - a BMI method on top of the engine (rme.h).
 *
 * Only the files of this folder include a host's BMI headers.  The build of any OrangeFS
 * release compiles these files in its tree, and our build compiles them beside the embedded BMI
 * core, whose headers have the same names.
 *
 * Memory.  OrangeFS redefines malloc and free for files of its tree.  So the engine never frees
 * memory that was allocated here, and the engine's memory is freed by rme_ functions only.
 *
 * Locks.  OrangeFS calls set_info and get_info with its lock ref_mutex held, and takes this
 * lock in the callbacks for methods.  So the order is
 *
 *     newcomer → the host's locks → lock → the engine's lock
 *
 * and callbacks of the host are never called with `lock` held.  `newcomer` is taken only to
 * register a new peer, which no host does with a lock held.
 *
 * A thread takes `lock` and `complaint_lock` before a fork, so that the child finds both free
 * and their data consistent (shim.c): the engine reports -ENODEV in a child, which may start
 * the method again.  A holder of `newcomer` may wait for the host's locks, so `newcomer` is
 * initialized again in the child: the parked messages belong to the parent, and an address that
 * was being registered is in no ring.
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
#define SHIM_CHAINS  16384 /* power of 2 */

/*
 * An address, in method_data.  OrangeFS selects the method that answers query_addr_range by the
 * scheme of the rule instead of the address.  So bmi_tcp may read this memory as its own
 * structure and call getpeername() on a supposed socket: each int in reach of that is -1, by
 * the guard.
 */
struct shim_addr {
    unsigned char guard[SHIM_GUARD]; /* 0xff */
    bmi_method_addr_p host;          /* the host's object, whose method_data this is */
    struct rme_addr *peer;
    int refs; /* references of the host, plus one of the shim for the listen address */
    BMI_addr_t known_as; /* a peer that connected to this side: its number at the host */
    bool forgotten;      /* the host was asked to forget the peer */
    struct shim_addr *prev, *next;
    struct shim_addr *chain; /* next lookup whose name has the same hash */
};

/* The state of the method.  Each member is zero, or -1, while the method is not initialized. */
static struct {
    pthread_mutex_t newcomer;
    pthread_mutex_t lock;                 /* peers, named, cursor; all of struct shim_addr */
    struct shim_addr peers;               /* head of their ring */
    struct shim_addr *named[SHIM_CHAINS]; /* lookups by name */
    struct shim_addr *cursor;             /* next peer to check */
    struct rme_unexpected parked[SHIM_PARKED]; /* no memory for their senders yet */
    atomic_int parked_count;                   /* both under `newcomer` */

    struct rme *rme;                /* NULL: not initialized */
    atomic_bool reached;            /* a lookup has reached its server, or lookups need not */
    bool log_notices;               /* SHIM_LOG_NOTICES */
    atomic_bool starting;           /* opening the engine, or looking for the first server */
    pthread_mutex_t complaint_lock; /* innermost lock; protects: */
    char complaint[512];            /* error of the last failed start; also after finalize */
    int method_id;
    struct shim_addr *listen;

    struct bmi_method_addr op_addr; /* address in every operation */
    struct method_op op_template;   /* a free operation as the host sees it */
} self = {
    .newcomer = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .complaint_lock = PTHREAD_MUTEX_INITIALIZER,
    .method_id = -1,
    .peers = {.prev = &self.peers, .next = &self.peers},
};

/* ---- shim.c ---- */

/* Enclose an attempt that a host repeats until it stops: an error is logged once until an
 * attempt succeeds. */
static void shim_start(void);
static void shim_started(bool well);

/* Returns the negative BMI code of a negative errno, one that makes OrangeFS retry; 0 for 0. */
static bmi_error_code_t shim_error(int error);

/* ---- shim-addr.c ---- */

static void shim_drop_addr(bmi_method_addr_p host);

#endif
