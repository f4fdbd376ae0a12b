/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network interface of this process: internal interfaces of the emulation.
 *
 * A command queue is executed by the thread that flushes it, including small DMAs. Other DMAs
 * (long, refused or held back) are executed by the engine: by any polling thread of the
 * program, and by a thread of the library. A read is executed by the process that requested
 * it, so that the other need not run.
 *
 * Locks, outermost first:
 *   cmdq.lock              one command queue
 *   proc.lock              peers, contexts, the registry
 *   shm_ctx.lock           state of one context, in shared memory; never two at a time
 *   the engine's lock, an allocator's lock
 * No thread sleeps under a lock, except to wait for a context's lock.
 */
#ifndef EMUL_ELAN4_EMU_H
#define EMUL_ELAN4_EMU_H

#include <elan4/library.h>
#include <pthread.h>
#include <stdbool.h>

#include "emul/elan4/knobs.h"
#include "emul/elan4/shm.h"

#define EMU4_NSEC UINT64_C(1000000000)

/* Kinds of Elan addresses, in bits 63:60; 0 in a pointer of a program. The last kind occurs
 * only in lists of stores. */
enum region { REGION_MAIN = 1, REGION_SDRAM = 2, REGION_PORT = 3, REGION_STATE = 7 };
#define ADDR_REGION(a)       ((unsigned)((a) >> 60))
#define ADDR_TAG(a)          ((uint32_t)((a) >> 48) & 0xfff)
#define ADDR_OFFSET(a)       ((a) & ((UINT64_C(1) << 48) - 1))
#define ADDR(region, tag, o) ((uint64_t)(region) << 60 | (uint64_t)(tag) << 48 | (o))
#define PORT_BYTES           8192u

/* A process whose segment is mapped here, or this process. */
struct emu4_peer {
    struct emu4_peer *next;
    struct shm_head *seg;
    uint64_t size, incarnation;
    uint64_t arena_off, arena_len, arena_va; /* checked copies */
    int pid, pidfd;
    _Atomic int bell; /* this process's descriptor of the peer's eventfd; -1 until needed */
    uint32_t user;    /* this process's user number in `seg` */
    _Atomic uint32_t refs;
    _Atomic bool dead;
    bool self;
};

/* One attachment of a context of a process. */
struct emu4_end {
    struct emu4_peer *peer;
    struct shm_ctx *c;
    uint32_t generation;
};

/* Location of bytes: directly accessible at `ptr`, or, if `ptr` is NULL, at `va` of the process
 * `pid`. */
struct emu4_place {
    void *ptr;
    uint64_t va;
    int pid;
};

struct emu4_handler {
    int type, proc;
    ELAN4_TRAP_HANDLER fn;
    void *arg;
};

struct emu4_cmdq;
struct emu4_pool;

struct emu4_ctx {
    ELAN4_CTX pub; /* first */
    struct emu4_end end;
    uint32_t index; /* index of the context in the segment */
    bool standard, required;
    unsigned node;
    int context; /* attached context number, or -1 */
    char *ports; /* pages; their addresses represent the command ports */
    struct emu4_cmdq *queues;
    struct emu4_handler handler[32];
    unsigned handlers;
    uint32_t trap_head;
    uint32_t space[EMU4_CQS]; /* internal queue: dwords reserved; other queues: 0 */
    uint32_t space_size[EMU4_CQS];
    struct emu4_pool *pools;
};

/* Number of times that contexts of a node were attached. */
typedef _Atomic uint64_t emu4_attaches;

#define EMU4_CACHE 4096u
struct emu4_cached {
    uint32_t route;
    struct emu4_end end;
    emu4_attaches *attaches; /* of the route's node */
    uint64_t count;          /* value of `attaches` before `end` was looked up */
};

/* A free range of the arena. */
struct emu4_hole {
    struct emu4_hole *next;
    uint64_t off, len;
};

struct emu4_node {
    struct emu4_node *next;
    unsigned node;
    int file; /* registry file, open until exit */
    dev_t dev;
    ino_t ino;
    emu4_attaches *attaches;
};

struct emu4_proc {
    struct emu4_knobs knobs;
    int pid;
    int seg_fd;
    int folder_fd; /* from emu4_folder_enter() */
    struct emu4_peer self;
    char *arena;
    pthread_mutex_t lock;
    struct emu4_peer *peers;
    struct emu4_node *nodes; /* all nodes looked up so far */
    struct emu4_cached cache[EMU4_CACHE];
    struct emu4_ctx *ctx[EMU4_CTXS];
    uint64_t arena_next, sdram_used;
    struct emu4_hole *holes; /* free ranges below `arena_next` */
    uint32_t generation;
    uint32_t next_tag;
    uint64_t retry_round;              /* service thread only, see emu4_cmdqs_retry() */
    struct emu4_ctx *_Atomic trapping; /* context whose trap handler runs, or NULL */
};

/* proc.c */
/* Returns the interface of this process, created at the first call; NULL with errno on
 * failure. */
struct emu4_proc *emu4_proc(void);
/* Returns the interface if this process has created it, else NULL. */
struct emu4_proc *emu4_proc_peek(void);
/* Returns the knobs; needs no segment. */
const struct emu4_knobs *emu4_knobs(void);
/* Writes the path of an entry of the rendezvous folder, which is created if missing; 0, or -1
 * with errno. */
int emu4_path(char *path, size_t size, const char *name);
uint64_t emu4_now(void);
uint32_t emu4_random(void);
/* Allocates bytes of the arena; returns an offset, or -1 when the arena is full. Takes
 * proc.lock. */
int64_t emu4_arena_take(struct emu4_proc *p, uint64_t bytes);
void emu4_arena_give(struct emu4_proc *p, uint64_t off, uint64_t bytes);

/* folder.c */
/*
 * Joins the rendezvous folder: returns a descriptor of its version file, open as long as the
 * process is part of the network. Returns -1 with errno, and reports the reason, if the folder
 * is used with another version (EPROTO) or cannot be opened.
 */
int emu4_folder_enter(void);

/* registry.c: owners of the contexts of each node */
struct emu4_record {
    uint64_t magic, incarnation;
    int32_t pid, memfd;
    uint32_t index, generation;
};
/* Registers as the owner of a context of a node; 0, or -1 with errno. Under proc.lock. */
int emu4_registry_take(struct emu4_proc *p, unsigned node, unsigned context,
                       const struct emu4_record *r);
void emu4_registry_give(struct emu4_proc *p, unsigned node, unsigned context);
/* Looks up the owner of a context; false if there is none. Under proc.lock. */
bool emu4_registry_find(struct emu4_proc *p, unsigned node, unsigned context,
                        struct emu4_record *r);
/* Under proc.lock. NULL with errno: no memory, or no file. */
emu4_attaches *emu4_registry_attaches(struct emu4_proc *p, unsigned node);

/* peer.c */
bool emu4_process_dead(int pid);
/* Looks up the context attached at a route, with a reference to its peer; false if none is. */
bool emu4_target_get(struct emu4_proc *p, uint32_t route, struct emu4_end *end);
void emu4_peer_ref(struct emu4_peer *peer);
void emu4_peer_put(struct emu4_proc *p, struct emu4_peer *peer);
void emu4_peer_died(struct emu4_proc *p, struct emu4_peer *peer);
/* Wakes the engine's thread of a process if asleep. */
void emu4_ring(struct emu4_peer *peer);

/* addr.c */
/* Resolves an Elan address; false if the address is outside of the context's memory. */
bool emu4_place(const struct emu4_end *e, E4_Addr a, uint64_t len, struct emu4_place *out);
/* Returns 0, -EFAULT if the source is unmapped, -ENXIO if the destination is, or -ESRCH. */
int emu4_move(const struct emu4_place *src, const struct emu4_place *dst, uint64_t len);
/* Reads memory of a context; 0 or negative. */
int emu4_read(const struct emu4_end *e, E4_Addr a, void *buf, uint64_t len);

/* memory.c: reinitializes the allocators in a forked child: the parent's lock may be held, and
 * the arena belongs to the parent. */
void emu4_memory_forked(void);

/* txn.c: one acquisition of a context's lock, and the list of stores built under it */
struct emu4_txn {
    struct emu4_end *e;
    uint32_t n, trap_tail;
    uint64_t inbox_tail;
    bool bell, interrupt; /* wake the owner's engine thread, its sleepers, after unlocking */
};
/* Takes a context's lock; false when its holder does not release it and the context belongs to
 * another process. */
bool emu4_lock(struct emu4_txn *t, struct emu4_end *e);
void emu4_unlock(struct emu4_txn *t);
/* The following functions are called under the lock. */
/* Lists a store to an address given by a program, or a trap if the address is invalid. */
void emu4_txn_store(struct emu4_txn *t, E4_Addr where, uint64_t value, uint32_t bytes);
/* Lists a store to any address; not for addresses given by a program. */
void emu4_txn_list(struct emu4_txn *t, uint64_t where, uint64_t value, uint32_t bytes);
/* Lists a store to the context's state. */
void emu4_txn_state(struct emu4_txn *t, const volatile void *field, uint64_t value,
                    uint32_t bytes);
#define EMU4_TXN_SET(t, field, value) emu4_txn_state((t), &(field), (value), sizeof(field))
/* Applies the list and empties it. */
void emu4_txn_commit(struct emu4_txn *t);
/* Completes what a dead user had begun here. Owner's engine thread only. */
void emu4_txn_drop_user(struct emu4_proc *p, uint32_t user);

/* trap.c: under the context's lock */
/* Lists a trap, delivered exactly once if the list is committed. */
void emu4_trap(struct emu4_txn *t, int type, int proc, uint64_t a0, uint64_t a1);
/* Delivers a trap without a transaction; takes the lock. False: the lock of another process's
 * context is not available. */
bool emu4_trap_now(struct emu4_end *e, int type, int proc, uint64_t a0, uint64_t a1);
/* Passes received traps to the handlers. Owner's engine thread only. */
void emu4_traps_deliver(struct emu4_proc *p);
bool emu4_traps_wait(struct emu4_proc *p);
const char *emu4_trap_name(int type);

/* event.c: within a transaction */
/* Sets an event. The low five bits of the address are the count; 0 is a whole set. */
void emu4_event_set(struct emu4_txn *t, E4_Addr event);
void emu4_event_wait(struct emu4_txn *t, E4_Addr event, uint64_t count_type, uint64_t p0,
                     uint64_t p1);
/* Returns whether the inbox has room for the commands that an event may start. */
bool emu4_inbox_room(const struct shm_ctx *c);

/* port.c */
/* Returns the dwords of the command that begins with `w`; 0 for an unknown command. */
unsigned emu4_command_length(uint64_t w);
/* Returns the permission that the command needs, or 0. */
uint32_t emu4_command_permission(uint64_t w);
/* Executes a command that affects this context only. Within a transaction. */
bool emu4_command_local(struct emu4_txn *t, const uint64_t *w);
/* Wakes the threads that sleep for an interrupt of the context. */
void emu4_sleepers_wake(struct shm_ctx *c);
/* Executes up to `max` commands sent to ports, except DMAs of another process's context;
 * returns whether it executed one. Locked. */
bool emu4_inbox_run(struct emu4_txn *t, unsigned max);

/* dma.c */
enum dma_end { DMA_DONE, DMA_MORE, DMA_NACK, DMA_ABSENT, DMA_DEAD };
/* Moves up to `limit` bytes of a DMA of `from`, and delivers the DMA after the last byte. */
enum dma_end emu4_dma_step(struct emu4_proc *p, struct emu4_end *from, const uint64_t w[7],
                           uint64_t *done, uint64_t limit);
/* Sets the source event of a delivered DMA. False: the lock of another process's context is not
 * available. */
bool emu4_dma_delivered(struct emu4_end *from, const uint64_t w[7]);
/* Executes a DMA of a local command queue, or leaves it to the engine. */
void emu4_dma_start(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7],
                    uint64_t *budget);
/* Returns whether a DMA can share one system call with the first of a chain. */
bool emu4_dma_joins(const struct emu4_proc *p, const uint64_t w[7], const uint64_t first[7]);
/* Acts as emu4_dma_start() for a chain of DMAs within the budget. Overwrites `w`. */
void emu4_dma_chain(struct emu4_proc *p, struct emu4_ctx *x, uint64_t (*w)[7], unsigned n);
/* Leaves to the engine a DMA out of the memory of the context at a route. Returns DMA_DONE,
 * DMA_NACK, DMA_ABSENT or DMA_DEAD. */
enum dma_end emu4_dma_remote(struct emu4_proc *p, struct emu4_end *from, uint32_t vp,
                             const uint64_t w[7]);

/* engine.c */
/* Works for up to `budget` bytes; true if runnable work remains. */
bool emu4_engine_run(struct emu4_proc *p, uint64_t budget);
/* Runs the engine in its thread; remaining work is left for the next round. */
void emu4_engine_serve(struct emu4_proc *p);
/* Adds a DMA, of which `done` bytes are moved, to be executed from `due` on (0: at once); false
 * if out of memory. */
bool emu4_engine_put(const struct emu4_end *from, const uint64_t w[7], uint64_t done,
                     uint64_t due);
/*
 * Returns the bytes that a thread of the program moves itself: `burst` and one slice, so that
 * the events of a DMA of `burst` bytes are also handled. Waking the engine's thread would cost
 * more.
 */
uint64_t emu4_burst(const struct emu4_proc *p);
bool emu4_engine_has_work(struct emu4_proc *p); /* a hint */
uint64_t emu4_engine_next_due(void);            /* 0: nothing waits */
/* Drops the DMAs in a forked child, because they belong to the parent. */
void emu4_engine_forked(void);

/* service.c */
/* Marks an eventfd or pidfd as the library's. emu4_is_own() is false after the program has
 * closed the descriptor, whatever has its number then. */
void emu4_own(int fd);
bool emu4_is_own(int fd);
void emu4_own_close(int fd); /* closes it if it is still the library's */
int emu4_service_start(struct emu4_proc *p);
void emu4_service_watch(struct emu4_peer *peer);
void emu4_service_unwatch(struct emu4_peer *peer);
/* Wakes the engine's thread. */
void emu4_service_wake(struct emu4_proc *p);

/* cmdq.c */
/* Retries stalled queues; true if some remain stalled. */
bool emu4_cmdqs_retry(struct emu4_proc *p);
void emu4_cmdqs_free(struct emu4_ctx *x);

/* wait.c */
void emu4_pools_free(struct emu4_ctx *x);

/* context.c */
static inline struct emu4_ctx *emu4_ctx_of(ELAN4_CTX *ctx)
{
    return (struct emu4_ctx *)ctx;
}

#define EMU4_EXPORT __attribute__((visibility("default")))

/* Writes one line to stderr, prefixed by "emuelan4: ". */
void emu4_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
