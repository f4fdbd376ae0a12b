/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network interface of this process: what the parts of the emulation share.
 *
 * Who does what. A command queue is carried out by the thread that flushes it; small DMAs are
 * done there and then. What is left (long DMAs, refused ones, those held back) waits in the
 * context's table and is carried out by the engine: by any thread of the program that polls,
 * and by a thread of the library. What a DMA sets off in another process (a chain of commands,
 * a read) is carried out by the process that set it off, so that the other need not run.
 *
 * Locks, outermost first:
 *   cmdq.lock              one command queue
 *   proc.lock              peers, contexts, the registry
 *   kept DMAs' lock (engine.c)
 *   shm_ctx.lock           one context's state; in shared memory. Never two of them at a time.
 *   jobs' lock (engine.c), an allocator's lock
 * Nothing sleeps inside them but a thread that waits for a context's lock.
 */
#ifndef EMUL_ELAN4_EMU_H
#define EMUL_ELAN4_EMU_H

#include <elan4/library.h>
#include <pthread.h>
#include <stdbool.h>

#include "emul/elan4/knobs.h"
#include "emul/elan4/shm.h"

#define EMU4_NSEC UINT64_C(1000000000)

/* Kinds of Elan addresses, in bits 63:60. A pointer of a program has none. The last two stand
 * in lists only. */
enum region {
    REGION_MAIN = 1,
    REGION_SDRAM = 2,
    REGION_PORT = 3,
    REGION_TRAP = 6,
    REGION_STATE = 7
};
#define ADDR_REGION(a)       ((unsigned)((a) >> 60))
#define ADDR_TAG(a)          ((uint32_t)((a) >> 48) & 0xfff)
#define ADDR_OFFSET(a)       ((a) & ((UINT64_C(1) << 48) - 1))
#define ADDR(region, tag, o) ((uint64_t)(region) << 60 | (uint64_t)(tag) << 48 | (o))
#define PORT_BYTES           8192u

/* A process whose segment is mapped here; this one, too. */
struct emu4_peer {
    struct emu4_peer *next;
    struct shm_head *seg;
    uint64_t size, incarnation;
    uint64_t arena_off, arena_len, arena_va; /* checked copies */
    int pid, pidfd;
    _Atomic int bell; /* our copy of its eventfd, -1 until needed */
    uint32_t user;    /* our number there */
    _Atomic uint32_t refs;
    _Atomic bool dead;
    bool self;
};

/* A context of a process. */
struct emu4_end {
    struct emu4_peer *peer;
    struct shm_ctx *c;
    uint32_t generation;
};

/* Where some bytes are: at `ptr`, which may be touched, or at `va` of the process `pid`. */
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
    uint32_t index; /* in the segment */
    bool standard, required;
    unsigned node;
    int context; /* attached to, or -1 */
    int debugfd;
    char *ports; /* pages that stand for its command ports */
    struct emu4_cmdq *queues;
    struct emu4_handler handler[32];
    unsigned handlers;
    uint32_t trap_head;
    uint32_t space[EMU4_CQS]; /* internal queue: dwords reserved; 0 elsewhere */
    uint32_t space_size[EMU4_CQS];
    struct emu4_pool *pools;
};

/* How often contexts of a node were attached. */
typedef _Atomic uint64_t emu4_attaches;

#define EMU4_CACHE 4096u
struct emu4_cached {
    uint32_t route;
    struct emu4_end end;
    emu4_attaches *attaches; /* of the route's node */
    uint64_t count;          /* they were so many before `end` was looked up */
};

/* A part of the arena. */
struct emu4_hole {
    struct emu4_hole *next;
    uint64_t off, len;
};

struct emu4_node {
    struct emu4_node *next;
    unsigned node;
    int file; /* of the registry; it stays open */
    emu4_attaches *attaches;
};

struct emu4_proc {
    struct emu4_knobs knobs;
    int pid;
    int seg_fd;
    int folder_fd; /* of emu4_folder_enter() */
    struct emu4_peer self;
    char *arena;
    pthread_mutex_t lock;
    struct emu4_peer *peers;
    struct emu4_node *nodes; /* that were met; they stay */
    struct emu4_cached cache[EMU4_CACHE];
    struct emu4_ctx *ctx[EMU4_CTXS];
    uint64_t arena_next, sdram_used;
    struct emu4_hole *holes; /* before it, that nobody has */
    uint32_t generation;
    uint32_t next_tag;
    uint64_t retry_round;              /* the service thread's: see emu4_cmdqs_retry */
    struct emu4_ctx *_Atomic trapping; /* a handler of this one is running */
};

/* proc.c */
/* This process's, made at the first call; NULL with errno when that fails. */
struct emu4_proc *emu4_proc(void);
/* The same if it has been made in this process, else NULL. */
struct emu4_proc *emu4_proc_peek(void);
/* The knobs, which need no segment. */
const struct emu4_knobs *emu4_knobs(void);
/* A folder entry of the rendezvous folder, which is made if need be; 0 or -1 with errno. */
int emu4_path(char *path, size_t size, const char *name);
uint64_t emu4_now(void);
uint32_t emu4_random(void);
/* Bytes of the arena: an offset, or -1 when it is full. Takes proc.lock. */
int64_t emu4_arena_take(struct emu4_proc *p, uint64_t bytes);
void emu4_arena_give(struct emu4_proc *p, uint64_t off, uint64_t bytes);

/* folder.c */
/* A descriptor of the rendezvous folder's version, which stays open as long as this process is
 * one of its network. -1 with errno, and a line that says why: others there are of another
 * version (EPROTO), or there is no folder. */
int emu4_folder_enter(void);

/* registry.c: who has which context of which node */
struct emu4_record {
    uint64_t magic, incarnation;
    int32_t pid, memfd;
    uint32_t index, generation;
};
/* Takes a context of a node: 0, or -1 with errno. Under proc.lock. */
int emu4_registry_take(struct emu4_proc *p, unsigned node, unsigned context,
                       const struct emu4_record *r);
void emu4_registry_give(struct emu4_proc *p, unsigned node, unsigned context);
/* Who has it now: false when nobody. Under proc.lock. */
bool emu4_registry_find(struct emu4_proc *p, unsigned node, unsigned context,
                        struct emu4_record *r);
/* Under proc.lock. NULL with errno: no memory, or no file. */
emu4_attaches *emu4_registry_attaches(struct emu4_proc *p, unsigned node);

/* peer.c */
bool emu4_process_gone(int pid);
/* Who is attached at a route, with a reference to its peer; false when nobody. */
bool emu4_target_get(struct emu4_proc *p, uint32_t route, struct emu4_end *end);
void emu4_peer_ref(struct emu4_peer *peer);
void emu4_peer_put(struct emu4_proc *p, struct emu4_peer *peer);
void emu4_peer_died(struct emu4_proc *p, struct emu4_peer *peer);
/* Wakes the engine's thread of a process if it sleeps. */
void emu4_ring(struct emu4_peer *peer);

/* addr.c */
/* False where the address cannot be of this context's memory. */
bool emu4_place(const struct emu4_end *e, E4_Addr a, uint64_t len, struct emu4_place *out);
/* 0, -EFAULT when the source, -ENXIO when the destination is not there, -ESRCH. */
int emu4_move(const struct emu4_place *src, const struct emu4_place *dst, uint64_t len);
/* Reads a context's memory: 0 or negative. */
int emu4_read(const struct emu4_end *e, E4_Addr a, void *buf, uint64_t len);

/* memory.c: in a forked child: its parent's lock may be held, and its memory is not its own. */
void emu4_memory_forked(void);

/* txn.c: one acquisition of a context's lock, and the list of stores that is made under it */
struct emu4_txn {
    struct emu4_end *e;
    uint64_t lock; /* its word since we have it: no other acquisition has the same */
    uint32_t n;
    uint64_t inbox_tail;
    bool bell; /* the owner has to be woken */
    bool lost; /* something was left out, as the lock was not ours any more */
};
/* Takes a context's lock; false when its holder keeps it, and the context is not ours. */
bool emu4_lock(struct emu4_txn *t, struct emu4_end *e);
void emu4_unlock(struct emu4_txn *t);
/* It is still ours: who was stopped for LOCK_MS has lost it, a thread of the owner as well. */
bool emu4_holds(const struct emu4_txn *t);
/* All of these under the lock. */
/* A store to an address that a program gave; it traps when it is carried out and is bad. */
void emu4_txn_store(struct emu4_txn *t, E4_Addr where, uint64_t value, uint32_t bytes);
/* Whatever `where` says; not for an address that a program gave. */
void emu4_txn_list(struct emu4_txn *t, uint64_t where, uint64_t value, uint32_t bytes);
/* A store to the context's state. */
void emu4_txn_state(struct emu4_txn *t, const volatile void *field, uint64_t value,
                    uint32_t bytes);
#define EMU4_TXN_SET(t, field, value) emu4_txn_state((t), &(field), (value), sizeof(field))
/* The list is empty then, and the next may begin. False: nothing has changed, as the lock was
 * taken from us while we were stopped. */
bool emu4_txn_commit(struct emu4_txn *t);
/* Takes back what a dead user left here. Owner's engine thread only. */
void emu4_txn_forget_user(struct emu4_proc *p, uint32_t user);

/* trap.c: under the context's lock */
/* Lists a trap: it is told with what else the list changes, once. */
void emu4_trap(struct emu4_txn *t, int type, int proc, uint64_t a0, uint64_t a1);
/* Tells one that is listed, the store `i` of `n`; `again`: the list may have been carried out
 * before. */
void emu4_trap_listed(struct emu4_txn *t, uint32_t i, uint32_t n, bool again);
/* Tells that the store `i` of a list met no memory. */
void emu4_trap_stored(struct emu4_txn *t, uint32_t i, uint64_t where, bool again);
/* The same without a transaction; takes the lock. False: it is not to be had, which another
 * process's may be. */
bool emu4_trap_now(struct emu4_end *e, int type, int proc, uint64_t a0, uint64_t a1);
/* Hands over what has come. Owner's engine thread only. */
void emu4_traps_deliver(struct emu4_proc *p);
bool emu4_traps_wait(struct emu4_proc *p);
const char *emu4_trap_name(int type);

/* event.c: within a transaction */
/* Sets it; the low five bits of the address say how much, 0 is a whole set. */
void emu4_event_set(struct emu4_txn *t, E4_Addr event);
void emu4_event_wait(struct emu4_txn *t, E4_Addr event, uint64_t count_type, uint64_t p0,
                     uint64_t p1);
/* Whether there is room for what an event may set off. */
bool emu4_inbox_room(const struct shm_ctx *c);

/* port.c */
/* Dwords of the command that begins with `w`; 0 when there is no such command. */
unsigned emu4_command_length(uint64_t w);
/* The permission that it needs, 0 for none. */
uint32_t emu4_command_permission(uint64_t w);
/* Carries out a command that concerns this context alone. Within a transaction. */
bool emu4_command_local(struct emu4_txn *t, const uint64_t *w);
/* Raises an interrupt; false when nobody has the cookie. */
bool emu4_interrupt(struct emu4_end *e, uint64_t cookie);
/* Carries out commands that came to ports, up to `max`; false when there are none. Locked. */
bool emu4_inbox_run(struct emu4_txn *t, unsigned max);

/* table.c: the DMAs of a context that wait. All under its lock, within a transaction. */
int emu4_table_put(struct emu4_txn *t, const uint64_t w[7], uint64_t done, uint64_t due,
                   uint32_t claim);
enum table_to { TABLE_READY, TABLE_WAIT, TABLE_GONE };
void emu4_table_move(struct emu4_txn *t, unsigned i, enum table_to to);
/* Claims one that can run; -1 when there is none. */
/* `by`: of those that wait only what is due by then. */
int emu4_table_claim(struct emu4_txn *t, bool waiting, uint64_t by, uint64_t *next_due);
/* One that waits as it was refused, the next from there; -1: there is none. */
int emu4_table_refused(const struct shm_ctx *c, unsigned from);
/* A refused one waits: those that would go to the same place wait as long. */
void emu4_table_wait_with(struct shm_ctx *c, unsigned i);
bool emu4_table_idle(const struct shm_ctx *c);  /* nothing ready; any time, as a hint */
bool emu4_table_waits(const struct shm_ctx *c); /* some wait; likewise */
static inline bool emu4_bit(const uint64_t *map, unsigned i)
{
    return map[i / 64] >> (i % 64) & 1;
}

/* dma.c */
enum dma_end { DMA_DONE, DMA_MORE, DMA_NACK, DMA_ABSENT, DMA_DEAD };
/* What a process has claimed of another one: the DMA's name, its entry, and which of our marks
 * it has. */
struct emu4_claim {
    uint64_t seq;
    unsigned entry, mark;
};
/*
 * Moves up to `limit` bytes of a DMA of `from`, and delivers its end. `claim` is NULL where the
 * owner is this process.
 */
enum dma_end emu4_dma_step(struct emu4_proc *p, struct emu4_end *from, const uint64_t w[7],
                           uint64_t *done, uint64_t limit, const struct emu4_claim *claim);
/* A DMA from a command queue of ours: does it, or puts it into the table. */
void emu4_dma_start(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7],
                    uint64_t *budget);
/* Whether it may be done together with the first one, in one call. */
bool emu4_dma_joins(const struct emu4_proc *p, const uint64_t w[7], const uint64_t first[7]);
/* The same as emu4_dma_start() for several that join the first, which are in the budget. What
 * they say is used up. */
void emu4_dma_chain(struct emu4_proc *p, struct emu4_ctx *x, uint64_t (*w)[7], unsigned n);
/* Asks the context at a route to run a DMA: DMA_DONE, DMA_NACK, DMA_ABSENT, DMA_DEAD. */
enum dma_end emu4_dma_remote(struct emu4_proc *p, struct emu4_end *from, uint32_t vp,
                             const uint64_t w[7]);
/*
 * Takes back what a dead user had claimed of our DMAs. False: of some it is not known yet
 * whether they were delivered, and it is to be tried again.
 */
bool emu4_dma_reclaim(struct emu4_proc *p, uint32_t user, uint64_t incarnation);

/* engine.c */
/* Works for up to `budget` bytes; true when something is left that can run now. */
bool emu4_engine_run(struct emu4_proc *p, uint64_t budget);
/* The same for the engine's thread, which then looks at what else there is, and comes again. */
void emu4_engine_serve(struct emu4_proc *p);
/* One of ours waits until there is room in its table; false: nor is there memory. */
bool emu4_engine_keep(const struct emu4_end *own, const uint64_t w[7], uint64_t done,
                      uint64_t due);
/* What a thread of the program moves itself. More than one DMA of `burst`, so that what that
 * sets off is done as well: to wake the engine's thread costs more than to do it. */
uint64_t emu4_burst(const struct emu4_proc *p);
bool emu4_engine_has_work(struct emu4_proc *p); /* a hint */
/* Another process's context has something to do that we set off. */
void emu4_engine_help(struct emu4_proc *p, const struct emu4_end *e);
uint64_t emu4_engine_next_due(void); /* 0: nothing waits */
void emu4_engine_due(
    uint64_t due); /* something waits until then; wakes the thread if need be */
/* In a forked child: neither its parent's jobs nor the marks of its threads are its own. */
void emu4_engine_forked(void);
void emu4_engine_due_passed(void); /* the thread looks again for what waits */

/* service.c */
int emu4_service_start(struct emu4_proc *p);
void emu4_service_watch(struct emu4_peer *peer);
void emu4_service_unwatch(struct emu4_peer *peer);
/* The engine's thread has something to do. */
void emu4_service_wake(struct emu4_proc *p);

/* cmdq.c */
/* Goes on with queues whose packet was refused; true when some still wait. */
bool emu4_cmdqs_retry(struct emu4_proc *p);
void emu4_cmdqs_free(struct emu4_ctx *x);

/* wait.c */
void emu4_pools_free(struct emu4_ctx *x);

/* cap.c: whether a capability like this was created, whatever its context */
bool emu4_cap_created(const ELAN_CAPABILITY *cap);

/* context.c */
static inline struct emu4_ctx *emu4_ctx_of(ELAN4_CTX *ctx)
{
    return (struct emu4_ctx *)ctx;
}

#define EMU4_EXPORT __attribute__((visibility("default")))

/* One line on stderr, "emuelan4: ...". */
void emu4_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
