/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The process and its peers: segment, slots, service thread, timers, ports, data movement.
 * Objects visible to programs embed the structure of verbs.h as their first member.
 *
 * Locks, all private to the process, outermost first:
 *   cm.lock                     connection manager (cm.h)
 *   emu_dev.qp_life             keeps a QP found by its index alive (service thread)
 *   emu_qp.sq_lock              send queue and state changes of one QP
 *   emu_dev.lock                object tables, peers, arena
 *   emu_cq.lock                 consumer side of one CQ
 *   timer lock (timer.c), async lock of a context, emu_peer.chan_lock
 * No thread sleeps with a lock held.
 */
#ifndef EMUL_VERBS_PROCESS_H
#define EMUL_VERBS_PROCESS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "emul/verbs/base/counters.h"
#include "emul/verbs/base/fault.h"
#include "emul/verbs/base/knobs.h"
#include "emul/verbs/base/shm.h"
#include "emul/verbs/base/stop.h"

#define EMU_EXPORT __attribute__((visibility("default")))

#define EMU_NSEC 1000000000ull

/* Another process, or this one. */
struct emu_peer {
    struct emu_peer *next; /* same slot, older incarnation still referenced by a QP */
    struct shm_head *seg;
    uint64_t incarnation;
    uint64_t size;
    uint32_t slot;
    int pid;
    /* thread through which memory is accessed, because the main thread may have ended */
    int tid;
    int pidfd;        /* -1 without kernel support */
    _Atomic int bell; /* this process's copy of its eventfd; -1 until needed */
    unsigned refs;
    uint64_t left_since; /* time at which the service thread saw it leave (ns); 0: not left */
    _Atomic bool dead;
    bool self;
    _Atomic bool greeted; /* this process is known to the peer, as needed before datagrams */
    /* protects the rest; in `self`: protects this process's channels */
    pthread_mutex_t chan_lock;
    struct emu_peer_chan {
        uint32_t gen;
        int fd;
    } * chan; /* copies of its channels' eventfds, by index; NULL until needed */
};

/* Deferred work, executed by the service thread or by a thread that polls. */
struct emu_timer {
    struct emu_timer *next, *prev;
    uint64_t due; /* CLOCK_MONOTONIC, ns */
    void (*fn)(struct emu_timer *t);
    bool armed;
    unsigned running;
};

/* A device as listed by programs. All devices of a process share the object tables; an object's
 * context determines its device. */
struct emu_hca {
    struct ibv_device ibdev; /* first: programs' pointers refer to it */
    uint32_t index;
    struct emu_dev *dev;
    struct emu_ctx *cm_ctx; /* the context that rdma_cm hands out; NULL until needed */
    struct ibv_pd *cm_pd;   /* its default protection domain; under cm.lock */
    atomic_bool failed;     /* never cleared: a device that returns is another one */
    atomic_bool gone;       /* removed, and no longer listed */
    atomic_uint down;       /* ports that are down, by bit */
    struct emu_hca *before; /* the removed device whose place this one has taken */
};

/* The device of this process. Types of the objects in the tables are defined by the layers
 * above. */
struct emu_dev {
    struct emu_knobs knobs;
    pthread_mutex_t lock, qp_life;
    int pid;
    int seg_fd;
    dev_t seg_dev; /* identity of the file */
    ino_t seg_ino;
    struct shm_head *seg;
    uint32_t slot;
    int slot_sock;
    struct emu_peer self;
    struct emu_peer *peers[EMU_MAX_SLOTS];
    /* slots greeted by unmapped processes; service thread */
    uint64_t unmet[EMU_MAX_SLOTS / 64];
    uint64_t arena_next, arena_shown; /* ends of the used and of the readable part */
    struct arena_free *arena_free[48];

    struct emu_hca first[EMU_MAX_DEVICES]; /* knobs.devices are used */
    /* those of now; a removed device stays until another one takes its place */
    _Atomic(struct emu_hca *) hca[EMU_MAX_DEVICES];
    struct emu_ports *ports;
    __be64 guid; /* of the machine */
    struct emu_ctx *contexts;

    uint32_t next_qp, next_cq, next_srq, next_chan, next_pd;
    uint32_t live_mr, live_mw;
    struct emu_ring *ring_heads; /* free ring heads without a ring; under lock */
    struct emu_cq *late_cqs;     /* destroyed CQs that posters may still access; under lock */
    struct emu_group *groups;    /* groups with QPs of this process */
    uint32_t random[64], random_left; /* random numbers not yet used */
    struct emu_qp *qp[EMU_MAX_QPS];
    /* last revoked token per place; outlives the QP, as late posters may */
    uint64_t revoked[EMU_MAX_QPS];
    struct emu_cq *cq[EMU_MAX_CQS];
    struct emu_srq *srq[EMU_MAX_SRQS];
    struct emu_mr *mr[EMU_MAX_MRS];
    struct emu_mw *mw[EMU_MAX_MWS];
};

/*
 * Callbacks of the layers above for events of the process. Each layer registers one row when
 * the library is loaded, before any constructor that uses the device (initfirst). Rows are
 * called from the lowest layer to the highest. Unused callbacks are NULL.
 */
struct emu_above {
    /* handles a message for the layer; service thread */
    void (*told)(struct emu_dev *d, const struct shm_msg *m);
    /* checks the segment for the subjects of lost messages: the inbox was full, or the sender
     * died before sending; service thread */
    void (*untold)(struct emu_dev *d);
    /* releases what the dead process of a slot held here; service thread */
    void (*slot_died)(struct emu_dev *d, uint32_t slot);
    /* the same for a mapped peer; after slot_died of all layers */
    void (*peer_died)(struct emu_dev *d, struct emu_peer *p);
    /* copies pending payloads before memory is deregistered */
    void (*settle)(struct emu_dev *d);
    /* in a forked child: drops the parent's state */
    void (*forked)(struct emu_dev *d);
};

enum emu_floor_above { EMU_ABOVE_MEMORY, EMU_ABOVE_QUEUE, EMU_ABOVE_CM, EMU_FLOORS_ABOVE };

/* above.c; named after the callbacks */
void emu_above_is(enum emu_floor_above floor, const struct emu_above *row);
void emu_above_notified(struct emu_dev *d, const struct shm_msg *m);
void emu_above_untold(struct emu_dev *d);
void emu_above_slot_died(struct emu_dev *d, uint32_t slot);
void emu_above_peer_died(struct emu_dev *d, struct emu_peer *p);
void emu_above_settle(struct emu_dev *d);
void emu_above_forked(struct emu_dev *d);

/* process.c */
/* Returns the device, created at the first call; NULL with errno on failure or without
 * devices. */
struct emu_dev *emu_dev(void);
/* Returns the device with knobs and names only, without segment and thread. Never NULL. */
struct emu_dev *emu_dev_base(void);
extern _Atomic(struct emu_dev *) emu_device __attribute__((visibility("hidden")));
/* Returns the device if already created, else NULL. */
static inline struct emu_dev *emu_dev_peek(void)
{
    return atomic_load_explicit(&emu_device, memory_order_acquire);
}

static inline struct emu_hca *emu_hca_of(struct ibv_context *c)
{
    return (struct emu_hca *)c->device;
}

/* Returns whether the device of this context has failed; object creation then also fails. */
static inline bool emu_has_failed(struct ibv_context *c)
{
    return atomic_load_explicit(&emu_hca_of(c)->failed, memory_order_relaxed);
}

/* Returns whether a port of this device takes part in nothing. */
static inline bool emu_port_is_down(const struct emu_hca *h, uint32_t port)
{
    return atomic_load(&h->failed) || (atomic_load(&h->down) >> port & 1);
}

/* Returns the device of an object's context; NULL in a forked child if the context is the
 * parent's. */
static inline struct emu_dev *emu_dev_for(struct ibv_context *c)
{
    struct emu_dev *d = emu_hca_of(c)->dev;

    return d == emu_dev_peek() ? d : NULL;
}

/* port.c: devices and ports by name and address. Ports are numbered over all devices of the
 * machine: EMU_PORT(device, port). */
#define EMU_PORT(device, port) ((device)*EMU_MAX_PORTS + (port)-1)
#define EMU_PORT_DEVICE(n)     ((n) / EMU_MAX_PORTS)
#define EMU_PORT_OF(n)         ((uint8_t)((n) % EMU_MAX_PORTS + 1))
/* Initializes names, GUIDs and addresses from the knobs in `d`. Returns 0 or -ENOMEM. */
int emu_ports_init(struct emu_dev *d);
/* Returns whether a device has this port. */
static inline bool emu_port_there(const struct emu_dev *d, uint32_t port)
{
    return port >= 1 && port <= d->knobs.ports;
}
__be64 emu_guid(const struct emu_dev *d, uint32_t device, uint32_t port);
uint16_t emu_lid(const struct emu_dev *d, uint32_t number); /* 0 on Ethernet */
/* the only GID of the port */
/* The GID table of each port. On Ethernet the last entry, which rdma_cm uses, is RoCE v2 of
 * the IP address. */
uint32_t emu_gids(const struct emu_dev *d);
enum ibv_gid_type emu_gid_type(const struct emu_dev *d, uint32_t index);
void emu_gid_at(const struct emu_dev *d, uint32_t number, uint32_t index, union ibv_gid *gid);
void emu_gid(const struct emu_dev *d, uint32_t number, union ibv_gid *gid); /* the last one */
/* Returns the number of the port with an IP address, or of the first port if none has it. */
uint32_t emu_port_of_address(const struct emu_dev *d, const struct sockaddr *sa);
/* Finds the network interface with a port's address, or the loopback interface for its
 * addresses; false if there is none. `name` has IF_NAMESIZE bytes. */
bool emu_port_interface(const struct emu_dev *d, uint32_t number, char *name);
/* Returns whether a path from a device leads to a port of this machine. */
bool emu_reachable(const struct emu_dev *d, const struct ibv_ah_attr *av);

/* Gives the first port of a device another IP address; false: not an address. */
bool emu_port_readdress(struct emu_dev *d, uint32_t device, const char *text);

/* port_query.c: port attributes */
int emu_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                   size_t len);

/* segment.c: this process's segment */
int emu_segment_create(struct emu_dev *d); /* 0 or -errno */
void emu_segment_destroy(struct emu_dev *d);
/* In a forked child: makes the parent's segment a private copy. */
void emu_segment_forked(struct emu_dev *d);
/*
 * Maps a segment, own or of a peer; MAP_FAILED with errno. Reading all of the sparse file would
 * populate it for all its processes, so core dumps leave the mapping out, and so do leak
 * checkers (valgrind), which pass over mappings without PROT_READ: the processors read what
 * they may write.
 */
void *emu_segment_map(void *at, uint64_t size, int flags, int fd);
/* Checks that the layout of another process's segment, which may contain anything, is that of
 * this process. */
bool emu_segment_fits(const struct shm_head *seg);
/* Returns the bytes for rings and bounce buffers, also before there is a segment, as in a child
 * that has the parent's context. */
uint64_t emu_segment_arena(const struct emu_dev *d);
/* Allocates zeroed bytes of the segment; returns their offset, or 0 when full. Under no
 * lock. */
uint64_t emu_arena_alloc(struct emu_dev *d, uint64_t bytes);
/* Returns the bytes of the segment that such an allocation takes. */
uint64_t emu_arena_takes(uint64_t bytes);
void emu_arena_free(struct emu_dev *d, uint64_t off, uint64_t bytes);

/* turn.c: processor time of other processes */
bool emu_has_stopped(int pid); /* by a signal or a debugger, or dead */
bool emu_at_rest(int pid);     /* wants no processor */
/* As emu_peer_had_turn(). */
bool emu_had_turn(int pid, uint64_t *ran);
/* Processes that wanted a processor. Zero-initialised. */
struct emu_turns {
    uint32_t n, room;
    struct emu_turn {
        int pid;
        uint64_t ran;
    } * of;
};
/* Returns whether all have run since the last call; `forget` drops those that have. */
bool emu_turns_had(struct emu_turns *t, bool forget);
void emu_turns_end(struct emu_turns *t);

/* claim.c: names that processes hold */
/* Chooses a folder for the names, or abstract names (""); returns 0 or -errno. */
int emu_names_use(const char *path);
/* Returns whether the names are files, which other network namespaces may see. */
bool emu_names_are_files(void);
/* Holds a name; returns an own descriptor, or -errno (-EADDRINUSE: a process holds it). */
int emu_name_hold(const char *name);
/* Makes `other` a second name of the holder of `name`, if the names are files. */
void emu_name_add(const char *name, const char *other);
/* Returns the process that holds a name, or -errno: -ECONNREFUSED: none, -EPERM: one in another
 * PID namespace. */
int emu_name_holder(const char *name);
/* Listens on an abstract unix socket; returns an own descriptor or -errno. */
int emu_listen_abstract(const char *name);

/* registry.c: slots and peers */
/* Searches the slots for processes that want to run now. */
void emu_turns_begin(const struct emu_dev *d, struct emu_turns *t);
int emu_slot_claim(struct emu_dev *d); /* 0 or -errno */
/* Returns the process in `slot`, with a reference; NULL with errno if absent or
 * inaccessible. */
struct emu_peer *emu_peer_get(struct emu_dev *d, uint32_t slot);
/* Returns the process `pid` in the same way. */
struct emu_peer *emu_peer_by_pid(struct emu_dev *d, int pid);
/* Returns the process in `slot` through the cached reference *last, which is replaced if it is
 * another process. */
struct emu_peer *emu_peer_of(struct emu_dev *d, struct emu_peer **last, uint32_t slot);
void emu_peer_ref(struct emu_dev *d, struct emu_peer *p);
void emu_peer_put(struct emu_dev *d, struct emu_peer *p);
/* Handles the death of a peer, noticed by its pidfd or a check. Service thread, once per
 * peer. */
void emu_peer_died(struct emu_dev *d, struct emu_peer *p);
/* Releases what the dead process of a slot held here. Service thread. */
void emu_peer_clear(struct emu_dev *d, uint32_t slot);
/* Returns whether a peer answers: not if dead, replaced by exec, or silenced by the knob. */
static inline bool emu_peer_answers(const struct emu_peer *p)
{
    return !atomic_load_explicit(&p->dead, memory_order_relaxed) &&
           !SHM_LEFT(atomic_load_explicit(&p->seg->keeper, memory_order_relaxed)) &&
           !atomic_load_explicit(&p->seg->silent, memory_order_relaxed);
}
bool emu_peer_stopped(struct emu_peer *p); /* stopped by a signal or a debugger, or dead */
/* Returns whether a peer has run since its run time was *ran, or was not waiting for a
 * processor. Updates *ran. */
bool emu_peer_had_turn(const struct emu_peer *p, uint64_t *ran);
/* Returns whether `is` holds for any known peer. Under the device's lock. */
bool emu_peers_any(struct emu_dev *d,
                   bool (*is)(struct emu_dev *d, struct emu_peer *p, void *arg), void *arg);
/* Returns a peer that has executed another program, or died without a pidfd; NULL if there is
 * none. The peer stays in the table until emu_peer_died(). Service thread. */
struct emu_peer *emu_peer_unseen(struct emu_dev *d);
void emu_peer_ring_bell(struct emu_dev *d, struct emu_peer *p);
void emu_peer_signal_chan(struct emu_dev *d, struct emu_peer *p, uint32_t chan);
/*
 * Puts a message into a peer's inbox and wakes its service thread; false when the inbox is
 * full. Then the caller repeats messages of kind INBOX_CM and INBOX_HELLO; the owner finds the
 * subjects of other kinds in its segment.
 */
bool emu_peer_send(struct emu_dev *d, struct emu_peer *p, uint32_t kind, uint32_t index,
                   uint32_t arg, const void *payload, size_t len);
/* Announces this process to a peer before leaving state there that the peer must clear if this
 * process dies. False when the inbox is full. */
bool emu_peer_greet(struct emu_dev *d, struct emu_peer *p);
/* Explains, once per process, that the kernel forbids access to another process's memory. */
void emu_explain_eperm(int pid);

/* service.c: the service thread */
int emu_service_start(struct emu_dev *d); /* 0 or -errno */
/* Ends the thread. For tests that do its work themselves; no lock may be held. */
void emu_service_stop(struct emu_dev *d);
void emu_service_forked(void); /* in a forked child, which has no such thread */
/* Ends the thread with the process, for which its stack would be lost memory. Gives up after a
 * second, as exit() may have been called under a lock. */
void emu_service_end(struct emu_dev *d);
/* Handles all inbox messages; called by the service thread. An invalid message affects only its
 * sender and the connections between both processes. */
void emu_inbox_read(struct emu_dev *d);

/* watch.c: descriptors watched by the service thread */
enum emu_watch {
    EMU_WATCH_BELL,
    EMU_WATCH_TIMER,
    EMU_WATCH_SLOT,
    EMU_WATCH_LISTENER,
    EMU_WATCH_PEER,
    EMU_WATCH_OWN /* only marks a descriptor as the library's, without events */
};
#define EMU_WATCHED_MAX 32
struct emu_watched {
    enum emu_watch what;
    union {
        struct emu_peer *peer; /* EMU_WATCH_PEER */
        int fd;                /* the others */
    };
};
int emu_watch_open(void); /* 0 or -errno */
void emu_watch_close(void);
void emu_watch_forked(void); /* in a forked child: drops the parent's descriptor */
/* Watches a descriptor, not of a peer; BELL and TIMER are not to be read. 0 or -errno. */
int emu_watch(int fd, enum emu_watch what);
/* Closes an own descriptor that may be watched. The number may be reused immediately, so the
 * service thread uses a listener's descriptor only between emu_watch_hold() and
 * emu_watch_let_go(). */
void emu_unwatch_close(int fd);
/* Blocks closing; false if a descriptor was closed since the last wait began. */
bool emu_watch_hold(void);
void emu_watch_let_go(void);
void emu_watch_peer(struct emu_dev *d, struct emu_peer *p);
void emu_unwatch_peer(struct emu_peer *p);
/* Returns the interval for checking peers and their lost messages, in ns. */
uint64_t emu_watch_period(void);
/* Waits for events; returns their number, at most `most`, or -1 with errno. */
int emu_watch_wait(struct emu_watched *seen, int most);
void emu_service_wake(struct emu_dev *d);
/* Marks a descriptor, not of a regular file, as the library's, as emu_watch() does.
 * emu_is_own() is false after the program has closed the descriptor, whatever has its number
 * then. */
void emu_own(int fd);
bool emu_is_own(int fd);
void emu_own_close(int fd); /* closes it if it is still the library's */
/* The same in a forked child, where the marks are the parent's. */
void emu_own_drop(int fd);
/* Creates a descriptor for programs, which is readable while its counter, a semaphore, is not
 * 0, and never writable: an epoll set with the counter's eventfd. Returns the descriptor, or -1
 * with errno. */
int emu_events_open(int *counter, int flags);
void emu_events_close(int fd, int counter);
/* Decrements the counter; waits for that unless `fd` is non-blocking. 0, or -1 with errno. */
int emu_events_take(int fd, int counter);
/* Increments an own eventfd, which it makes readable; false on failure. */
bool emu_kick(int fd);

/* timer.c: clock and timers */
uint64_t emu_now(void);

/* Trace (trace.c): work requests and completions, if `emu_tracing`. `queue`: "qp" or "srq". */
extern bool emu_tracing;
void emu_trace_init(const struct emu_knobs *k);
void emu_trace_request(uint32_t qpn, enum ibv_wr_opcode opcode, uint32_t bytes, uint64_t wr_id);
void emu_trace_receive(const char *queue, uint32_t number, const struct ibv_recv_wr *wr);
void emu_trace_completion(const struct shm_cqe *c);
/* Returns a descriptor that becomes readable when a timer is due, or -errno. */
int emu_timers_open(const struct emu_dev *d);
void emu_timers_forked(void); /* in a forked child: drops the parent's timers */
void emu_timer_arm(struct emu_dev *d, struct emu_timer *t, uint64_t due);
/* Arms a timer unless it is armed for an earlier time. */
void emu_timer_sooner(struct emu_dev *d, struct emu_timer *t, uint64_t due);
/* Arms a timer whose object was locked: soon, or at the next step of a stopped clock. */
void emu_timer_again(struct emu_dev *d, struct emu_timer *t);
/* Disarms a timer and waits for a run in another thread to end. */
void emu_timer_cancel(struct emu_timer *t);
/* Runs due timers. With the link model one thread at a time does; others wait if `wait`, or
 * return. */
void emu_timers_run(bool wait);
/* Runs due timers unless another thread does; called by threads that poll an empty CQ. */
void emu_timers_poll(void);

/* link.c */
static inline bool emu_link_on(const struct emu_dev *d)
{
    return d->knobs.link_mb_s != 0;
}
/* Passes `bytes` to a process's engine for a device at the time `from`; returns the arrival
 * time. */
uint64_t emu_link_leave(const struct emu_dev *d, struct shm_head *of, uint8_t device,
                        uint64_t from, uint64_t bytes);

/* copy.c */
/* Move `total` bytes between local and remote vectors, which are modified. Return 0, -EFAULT
 * (remote memory), -EINVAL (local memory), -EPERM or -ESRCH. */
int emu_copy_to(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                unsigned nr, uint64_t total);
int emu_copy_from(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                  unsigned nr, uint64_t total);
/* Gathers `length` bytes of the program's readable memory. Returns 0, EFAULT or ENOMEM. `from`
 * is not modified, and has `length` bytes. */
int emu_copy_own(void *to, const struct iovec *from, unsigned n, size_t length);

#endif
