/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shared memory: the segment of a process is the memory and state of its network interface.
 * Other processes map the segment and act there as the hardware would, so that data moves into
 * a process that does not run.
 *
 * A segment contains no pointers, and numbers are checked before use, so that a stray store of
 * another process does not crash the library. Allocator records are private to the owner. A
 * context's lock is a word of the emulation's own design: its holder may die.
 *
 * A context's state changes under its lock through a log: the stores of a change are listed,
 * one store makes the list valid, then the stores are applied. A process that takes the lock
 * from a dead holder applies a valid list again. Each store has an absolute value, and no
 * reader trusts or clears a stored word while the list is valid (txn.c).
 *
 * State that is not changed by lists is written by the owner alone, in this order:
 *   tag          when the context is created, under proc.lock. Another process uses the tag
 *                after it has seen `attached` equal to the generation found in the registry.
 *                The tag is then of that generation or a later one, whose tag makes the
 *                addresses invalid (except once in 4,095).
 *   route[]      word by word, before and after attaching. An entry is used as read; 0: no
 *                route.
 *   cq[]         under proc.lock
 *   interrupt[]  under the lock; its atomic words at any time
 *   blocked      under the lock
 *   attached     set before the registry entry is made, cleared under the lock before the
 *                entry is removed
 * Counters, `busy`, `news` and `asleep` are independent atomic words. A user entry belongs to
 * its process until the state is TAKEN, and to the owner afterwards.
 */
#ifndef EMUL_ELAN4_SHM_H
#define EMUL_ELAN4_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#include "emul/elan4/counters.h"

#define EMU4_MAGIC    UINT64_C(0x346e616c45756d65)
#define EMU4_VERSION  9u    /* version of the shared data, also in the folder's file */
#define EMU4_CTXS     16u   /* contexts of one process */
#define EMU4_USERS    2048u /* processes that map one segment */
#define EMU4_VPS      8192u
#define EMU4_CQS      256u
#define EMU4_INBOX    16384u /* dwords */
#define EMU4_LOG      300u
#define EMU4_INTS     64u
#define EMU4_TRAPS    256u
#define EMU4_CONTEXTS 2048u /* context numbers of a node */

/* A packet that may fire an event is refused when the inbox has less room. */
#define EMU4_INBOX_RESERVE (EMU4_INBOX / 2)

#define EMU4_ROUTE(node, context) (UINT32_C(0x80000000) | (uint32_t)(node) << 11 | (context))
#define EMU4_ROUTE_NODE(r)        ((r) >> 11 & 0xfff)
#define EMU4_ROUTE_CONTEXT(r)     ((r)&0x7ff)

/* Word of a context's lock: the holder's user number + 1, 0 if unlocked, and the number of
 * stores of the valid list, 0 if no list is valid. */
#define EMU4_LOCK(stores, holder) ((uint64_t)(stores) << 16 | (holder))
#define EMU4_LOCK_STORES(w)       ((uint32_t)((w) >> 16))
#define EMU4_LOCK_HOLDER(w)       ((uint32_t)(w)&0xffff)

struct shm_store {
    uint64_t where; /* an Elan address of the context, or REGION_STATE */
    uint64_t value;
    uint32_t bytes;
    uint32_t pad;
};

struct shm_trap {
    int32_t type, proc;
    uint64_t args[2];
};

struct shm_cq {
    uint32_t in_use;
    uint32_t perms;
};

struct shm_int {
    _Atomic uint32_t in_use;
    _Atomic uint32_t count; /* number of interrupts; a futex */
    _Atomic uint32_t sleepers;
    uint32_t pad;
    uint64_t cookie;
};

struct shm_ctx {
    _Alignas(64) _Atomic uint64_t lock; /* see EMU4_LOCK; its low half is a futex */
    _Atomic uint32_t lock_awaited;      /* a process sleeps until the lock is free */
    _Atomic uint32_t attached;          /* generation; 0: not attached */
    _Atomic uint32_t blocked;
    uint32_t tag; /* tag of the context's addresses */
    uint32_t node, context;
    struct shm_store log[EMU4_LOG];

    /* commands that events sent to command ports */
    _Alignas(64) uint64_t inbox_head;
    uint64_t inbox_tail;
    uint64_t inbox_left; /* dwords of the first batch not yet executed */
    uint64_t inbox_cq;   /* queue of that batch */
    uint64_t inbox[EMU4_INBOX];

    struct shm_trap trap[EMU4_TRAPS];
    uint32_t trap_tail;
    struct shm_int interrupt[EMU4_INTS];
    struct shm_cq cq[EMU4_CQS];
    uint32_t route[EMU4_VPS];
};

/* A process that maps this segment. Number 0 is the owner. */
struct shm_user {
    _Atomic uint64_t state; /* enum user_state */
    _Atomic int32_t pid;
    _Atomic uint32_t busy; /* pieces of data being written */
    uint32_t pad[12];
};

/* ENTERING: the entry is taken and not yet filled in; the process ID is in the upper half, so
 * that others can notice its death. */
enum user_state { USER_FREE, USER_ENTERING, USER_TAKEN, USER_KNOWN, USER_LEFT };

struct shm_head {
    uint64_t magic;
    uint32_t version;
    int32_t pid;
    uint64_t incarnation;
    uint64_t size;
    uint64_t arena_off, arena_len;
    uint64_t arena_va;                    /* address of the arena in the owner */
    int32_t bell_fd;                      /* eventfd of the owner */
    _Alignas(64) _Atomic uint32_t asleep; /* the engine's thread must be woken by the eventfd */
    _Atomic uint32_t news;                /* users have entered, or a DMA has been delayed */
    _Alignas(64) struct emu4_counters counters;
    _Alignas(64) struct shm_user user[EMU4_USERS];
    struct shm_ctx ctx[EMU4_CTXS];
};

#endif
