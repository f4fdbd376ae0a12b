/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What processes share: the segment of a process is the memory and the state of its network
 * interface. Others map it and do there what the hardware would have done, so that data moves
 * into a process that does not run.
 *
 * Whoever maps a segment may write anything into it. So nothing in it is a pointer, every
 * number is copied once and checked before it is used, the memfd is sealed against shrinking,
 * and what an allocator needs to know is private to the owner. The lock of a context is a word
 * of its own making: a C library's lock in shared memory would contain pointers.
 *
 * A context's state changes under its lock by a log: all stores that belong together are
 * listed, the list is made valid by one store, then they are carried out. Whoever takes the
 * lock from a dead process carries out a valid list once more.  Each store is of an absolute
 * value, and nobody believes or clears one while the list is valid (txn.c).
 *
 * What is not changed by a list has one writer, the owner, and an order:
 *   tag          when the context is made, under proc.lock. Another process believes it when it
 *                has found `attached` to be the generation that it looked up, and is in the
 *                registry only after that; so it sees the tag of that generation or of a
 *                later one, by which its addresses are none (but for one time in 4,095).
 *   route[]      word by word, before and after attaching. A DMA reaches another process by the
 *                lock, behind the routes that its program made before it; an entry is believed
 *                as it stands when it is read, and 0 is no route.
 *   cq[]         under proc.lock; interrupt[] under the lock, and by its own words.
 *   attached, blocked   blocked under the lock; attached is set before the registry tells of
 *                it, and cleared under the lock before the registry's place is given up.
 * Counters, `busy`, `news` and `asleep` are atomic words of their own; a user's entry is its
 * process's until it is TAKEN, and the owner's from then on.
 */
#ifndef EMUL_ELAN4_SHM_H
#define EMUL_ELAN4_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#include "emul/elan4/counters.h"

#define EMU4_MAGIC    UINT64_C(0x346e616c45756d65)
#define EMU4_VERSION  7u    /* of what processes share, in the folder, too */
#define EMU4_CTXS     16u   /* contexts of one process */
#define EMU4_USERS    2048u /* processes that map one segment */
#define EMU4_VPS      8192u
#define EMU4_CQS      256u
#define EMU4_DMAS     4096u
#define EMU4_INBOX    16384u /* dwords */
#define EMU4_LOG      300u
#define EMU4_INTS     64u
#define EMU4_TRAPS    256u
#define EMU4_CONTEXTS 2048u /* context numbers of a node */
#define EMU4_MARKS    16u   /* DMAs of others that a process may have claimed at a time */

/* A packet that may fire an event is refused when there is less room than this. */
#define EMU4_INBOX_RESERVE (EMU4_INBOX / 2)

#define EMU4_ROUTE(node, context) (UINT32_C(0x80000000) | (uint32_t)(node) << 11 | (context))
#define EMU4_ROUTE_NODE(r)        ((r) >> 11 & 0xfff)
#define EMU4_ROUTE_CONTEXT(r)     ((r)&0x7ff)

/*
 * The word of a context's lock: user + 1 of who holds it, 0 when nobody does; the stores of its
 * list that is valid, 0 when none is; and a ticket, by which no two acquisitions are the same,
 * of one process neither. (A thread would have to be stopped for 2^32 of them to take another
 * one's for its own.)
 */
#define EMU4_LOCK(ticket, stores, holder)                                                      \
    ((uint64_t)(uint32_t)(ticket) << 32 | (uint64_t)(stores) << 16 | (holder))
#define EMU4_LOCK_TICKET(w) ((uint32_t)((w) >> 32))
#define EMU4_LOCK_STORES(w) ((uint32_t)(w) >> 16)
#define EMU4_LOCK_HOLDER(w) ((uint32_t)(w)&0xffff)

struct shm_store {
    uint64_t where; /* an Elan address of the context, REGION_STATE, or REGION_TRAP */
    uint64_t value;
    uint32_t bytes;
    uint32_t pad;
};

/* One DMA that waits for an engine. `seq` names it among all of its process, for good. */
struct shm_dma {
    uint64_t word[7]; /* struct E4_DMA */
    uint64_t seq;
    _Atomic uint64_t done; /* bytes that have moved */
    uint64_t due;          /* CLOCK_MONOTONIC, ns */
    uint32_t backoff_us;
    _Atomic uint32_t claim; /* user + 1 of who executes it */
};

struct shm_trap {
    int32_t type, proc;
    uint64_t args[2];
    uint32_t store; /* the one of its list that told it */
    uint32_t pad;
};

struct shm_cq {
    uint32_t in_use;
    uint32_t perms;
};

struct shm_int {
    _Atomic uint32_t in_use;
    _Atomic uint32_t count; /* of interrupts; a futex */
    _Atomic uint32_t sleepers;
    uint32_t pad;
    uint64_t cookie;
};

/* What a user delivered here last for somebody else with one of its claims, or what was refused
 * here, in case it dies before it can write down what has become of it. */
struct shm_mark {
    uint64_t incarnation; /* of the DMA's owner */
    uint64_t seq;         /* and EMU4_MARK_REFUSED */
};
#define EMU4_MARK_REFUSED (UINT64_C(1) << 63)

#define EMU4_WORDS (EMU4_DMAS / 64)

struct shm_ctx {
    _Alignas(64) _Atomic uint64_t lock; /* see EMU4_LOCK */
    _Atomic uint32_t attached;          /* generation, 0: nobody */
    _Atomic uint32_t blocked;
    uint32_t tag; /* part of its addresses */
    uint32_t node, context;
    /* stores of the list carried out so far, and above that the ticket of who did */
    _Alignas(64) _Atomic uint64_t log_at;
    uint32_t log_traps; /* trap_tail when the list was made valid */
    struct shm_store log[EMU4_LOG];

    /* commands that events sent to command ports */
    _Alignas(64) uint64_t inbox_head;
    uint64_t inbox_tail;
    uint64_t inbox_left; /* dwords of the batch at the head not yet executed */
    uint64_t inbox_cq;   /* that batch's queue */
    uint64_t inbox[EMU4_INBOX];

    /* DMAs: a bit in `used`; and in `ready` or `wait` unless somebody has claimed it */
    _Alignas(64) uint64_t used[EMU4_WORDS];
    uint64_t ready[EMU4_WORDS];
    uint64_t wait[EMU4_WORDS];
    uint64_t ready_words; /* a bit for each word above that is not 0 */
    uint64_t wait_words;
    uint64_t dma_seq;
    uint32_t put_cursor, get_cursor;
    struct shm_dma dma[EMU4_DMAS];

    struct shm_trap trap[EMU4_TRAPS];
    uint32_t trap_tail;
    struct shm_int interrupt[EMU4_INTS];
    struct shm_cq cq[EMU4_CQS];
    uint32_t route[EMU4_VPS];
    struct shm_mark mark[EMU4_USERS][EMU4_MARKS];
};

/* A process that maps this segment. Number 0 is the owner. */
struct shm_user {
    _Atomic uint64_t state; /* enum user_state */
    _Atomic uint64_t incarnation;
    _Atomic int32_t pid;
    _Atomic uint32_t busy; /* pieces of data on their way */
    uint32_t pad[10];
};

/* ENTERING: it has the place, and who it is does not stand there yet; above the state is its
 * number, so that others see when it has died. */
enum user_state { USER_FREE, USER_ENTERING, USER_TAKEN, USER_KNOWN, USER_GONE };

struct shm_head {
    uint64_t magic;
    uint32_t version;
    int32_t pid;
    uint64_t incarnation;
    uint64_t size;
    uint64_t arena_off, arena_len;
    uint64_t arena_va;                    /* where the owner has it */
    int32_t bell_fd;                      /* the owner's eventfd */
    _Alignas(64) _Atomic uint32_t asleep; /* the engine's thread needs the bell */
    _Atomic uint32_t news;                /* users have come, or a DMA has been put off */
    _Alignas(64) struct emu4_counters counters;
    _Alignas(64) struct shm_user user[EMU4_USERS];
    struct shm_ctx ctx[EMU4_CTXS];
};

#endif
