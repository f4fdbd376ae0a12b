/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The process and its peers: the segment, the slots, the service thread and its timers, ports,
 * and what moves data. Objects that programs see embed the structure of verbs.h as their first
 * member.
 *
 * Locks (all private to the process), outermost first:
 *   emu_cq.ex_turn              iterator of one CQ, between two calls of the program
 *   cm.lock                     connection manager (cm.h)
 *   emu_dev.qp_life             a QP found by its index stays alive under it (service thread)
 *   emu_qp.sq_lock              send queue, state changes of one QP
 *   emu_dev.lock                object tables, peers, arena
 *   emu_cq.lock                 consumer side of one CQ
 *   timer lock (timer.c), async lock of a context, emu_peer.chan_lock
 * No lock is held while sleeping, but a turn at an iterator, which the program takes and gives;
 * and none is visible to another process.
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
    int tid;          /* the thread by which its memory is reached: its first may have ended */
    int pidfd;        /* -1 where the kernel has none */
    _Atomic int bell; /* our copy of its eventfd, -1 until needed */
    unsigned refs;
    uint64_t left_since; /* the service thread has seen that it has left; 0: it has not */
    _Atomic bool dead;
    bool self;
    _Atomic bool greeted;      /* it has been told of this process, as datagrams need it */
    pthread_mutex_t chan_lock; /* of the rest; of this process: its channels are there */
    struct emu_peer_chan {
        uint32_t gen;
        int fd;
    } * chan; /* our copies of its channels' eventfds, by index; made when first needed */
};

/* Something to do later, in the service thread or in a thread that polls meanwhile. */
struct emu_timer {
    struct emu_timer *next, *prev;
    uint64_t due; /* CLOCK_MONOTONIC, ns */
    void (*fn)(struct emu_timer *t);
    bool armed;
    unsigned running;
};

/*
 * A device as programs list it. All devices of a process share its tables of objects; which of
 * them an object belongs to is told by its context.
 */
struct emu_hca {
    struct ibv_device ibdev; /* first: programs' pointers lead here */
    uint32_t index;
    struct emu_dev *dev;
    struct emu_ctx *cm_ctx; /* the one that rdma_cm hands out */
    atomic_bool failed;     /* for the life of this process */
};

/* The device of this process. Of the objects in its tables only their floors know more. */
struct emu_dev {
    struct emu_knobs knobs;
    pthread_mutex_t lock, qp_life;
    int pid;
    int seg_fd;
    struct shm_head *seg;
    uint32_t slot;
    int slot_sock;
    struct emu_peer self;
    struct emu_peer *peers[EMU_MAX_SLOTS];
    uint64_t unmet[EMU_MAX_SLOTS / 64]; /* greeted, still to be looked up; service thread */
    uint64_t arena_next;
    struct arena_free *arena_free[48];

    struct emu_hca hca[EMU_MAX_DEVICES]; /* the first knobs.devices of them are there */
    struct emu_ports *ports;
    __be64 guid; /* of the machine */
    struct emu_ctx *contexts;

    uint32_t next_qp, next_cq, next_srq, next_chan, next_pd;
    uint32_t live_mr, live_mw;
    struct emu_ring *ring_heads;      /* free ones, without a ring; under lock */
    struct emu_cq *late_cqs;          /* destroyed, but posters may be in them; under lock */
    struct emu_group *groups;         /* that queue pairs of this process are in */
    struct emu_xrcd *xrcds;           /* open in this process; under lock */
    uint32_t random[64], random_left; /* drawn and not yet used */
    struct emu_qp *qp[EMU_MAX_QPS];
    uint64_t revoked[EMU_MAX_QPS]; /* last token taken away; outlives the QP, as posters may */
    struct emu_cq *cq[EMU_MAX_CQS];
    struct emu_srq *srq[EMU_MAX_SRQS];
    struct emu_mr *mr[EMU_MAX_MRS];
    struct emu_mw *mw[EMU_MAX_MWS];

    _Atomic uint32_t flows;    /* of raw packets, of this process; changed under lock */
    _Atomic uint64_t dm_used;  /* bytes of device memory that are allocated */
    _Atomic uint64_t wr_total; /* executed, for kill_after */
};

/*
 * What the floors above do when something happens to the process. Each has a row, given once
 * when the library is loaded, before any constructor that uses the device (initfirst); rows
 * are gone through from the lowest floor to the highest. A function that a floor has nothing
 * to do in is NULL.
 */
struct emu_above {
    /* a message has come that is not for this floor; service thread */
    void (*told)(struct emu_dev *d, const struct shm_msg *m);
    /* some of these found no room, or their sender died before it sent them: what they were
     * about is in the segment; service thread */
    void (*untold)(struct emu_dev *d);
    /* takes back what the dead process of a slot held here; service thread */
    void (*slot_died)(struct emu_dev *d, uint32_t slot);
    /* the same of a peer that was known; after slot_died of all floors */
    void (*peer_died)(struct emu_dev *d, struct emu_peer *p);
    /* copies what has come for memory that is about to be deregistered */
    void (*settle)(struct emu_dev *d);
    /* in the child: what is there is its parent's */
    void (*forked)(struct emu_dev *d);
};

enum emu_floor_above { EMU_ABOVE_MEMORY, EMU_ABOVE_QUEUE, EMU_ABOVE_CM, EMU_FLOORS_ABOVE };

/* above.c; the names are those of the functions */
void emu_above_is(enum emu_floor_above floor, const struct emu_above *row);
void emu_above_told(struct emu_dev *d, const struct shm_msg *m);
void emu_above_untold(struct emu_dev *d);
void emu_above_slot_died(struct emu_dev *d, uint32_t slot);
void emu_above_peer_died(struct emu_dev *d, struct emu_peer *p);
void emu_above_settle(struct emu_dev *d);
void emu_above_forked(struct emu_dev *d);

/* process.c */
/* The device, made at the first call; NULL with errno set when that fails or there is none. */
struct emu_dev *emu_dev(void);
/* Only knobs and names: no segment, no thread. Never NULL. */
struct emu_dev *emu_dev_base(void);
extern _Atomic(struct emu_dev *) emu_device __attribute__((visibility("hidden")));
/* The device if it has been made, without making it. */
static inline struct emu_dev *emu_dev_peek(void)
{
    return atomic_load_explicit(&emu_device, memory_order_acquire);
}

static inline struct emu_hca *emu_hca_of(struct ibv_context *c)
{
    return (struct emu_hca *)c->device;
}

/* Has the device of this context failed?  Then it makes nothing new. */
static inline bool emu_has_failed(struct ibv_context *c)
{
    return atomic_load_explicit(&emu_hca_of(c)->failed, memory_order_relaxed);
}

/* The device that an object's context is of; NULL in a forked child when it is its parent's. */
static inline struct emu_dev *emu_dev_for(struct ibv_context *c)
{
    struct emu_dev *d = emu_hca_of(c)->dev;

    return d == emu_dev_peek() ? d : NULL;
}

/*
 * port.c: devices and ports by name and address. A port of this machine has a number, counted
 * over all devices: EMU_PORT(device, port).
 */
#define EMU_PORT(device, port) ((device)*EMU_MAX_PORTS + (port)-1)
#define EMU_PORT_DEVICE(n)     ((n) / EMU_MAX_PORTS)
#define EMU_PORT_OF(n)         ((uint8_t)((n) % EMU_MAX_PORTS + 1))
/* Names, GUIDs, and the addresses of the knob; `d` has its knobs. 0 or -ENOMEM. */
int emu_ports_init(struct emu_dev *d);
/* Whether a device has this port. */
static inline bool emu_port_there(const struct emu_dev *d, uint32_t port)
{
    return port >= 1 && port <= d->knobs.ports;
}
__be64 emu_guid(const struct emu_dev *d, uint32_t device, uint32_t port);
uint16_t emu_lid(const struct emu_dev *d, uint32_t number);                 /* 0 on Ethernet */
void emu_gid(const struct emu_dev *d, uint32_t number, union ibv_gid *gid); /* its only one */
/* The number of the port that has an IP address; the first port where none has. */
uint32_t emu_port_of_address(const struct emu_dev *d, const struct sockaddr *sa);
/* The network interface that has a port's address, or the loopback's for one of its; false when
 * there is none. `name` has IF_NAMESIZE bytes. */
bool emu_port_interface(const struct emu_dev *d, uint32_t number, char *name);
/* Whether ports of two devices are on one network. */
bool emu_port_meets(const struct emu_dev *d, uint32_t device, uint32_t other);
/* What a queue pair of a device says in shm_qp.fabric. */
uint8_t emu_fabric(const struct emu_dev *d, uint32_t device);
/* Whether a path from a device leads to a port of this machine, the only one there is. */
bool emu_reachable(const struct emu_dev *d, uint32_t device, const struct ibv_ah_attr *av);

/* port_query.c: what programs ask of ports */
int emu_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                   size_t len);

/* segment.c: this process's segment */
int emu_segment_create(struct emu_dev *d); /* 0 or -errno */
void emu_segment_destroy(struct emu_dev *d);
/* Are the parts of another process's segment, which may say anything, where ours are? */
bool emu_segment_fits(const struct shm_head *seg);
/* Bytes in the segment at the returned offset, zeroed; 0 when it is full. Under no lock. */
uint64_t emu_arena_alloc(struct emu_dev *d, uint64_t bytes);
void emu_arena_free(struct emu_dev *d, uint64_t off, uint64_t bytes);

/* turn.c: who has a processor */
bool emu_has_stopped(int pid); /* by a signal or a debugger, or dead */
bool emu_at_rest(int pid);     /* wants no processor */
/* As emu_peer_had_turn(). */
bool emu_had_turn(int pid, uint64_t *ran);
#define EMU_TURNS 8
/* Processes that wanted a processor. */
struct emu_turns {
    uint32_t n;
    struct {
        int pid;
        uint64_t ran;
    } of[EMU_TURNS];
};
/* Have all had a turn since the last call?  With `forget` only those stay that have not. */
bool emu_turns_had(struct emu_turns *t, bool forget);

/* registry.c: slots and peers */
/* Looks through the slots: processes that want to run now. */
void emu_turns_begin(const struct emu_dev *d, struct emu_turns *t);
int emu_slot_claim(struct emu_dev *d); /* 0 or -errno */
/* Binds and listens on an abstract unix socket: its fd or -errno. */
int emu_listen_abstract(const char *name);
/* The process in `slot`, with a reference; NULL with errno when there is none or it is closed.
 */
struct emu_peer *emu_peer_get(struct emu_dev *d, uint32_t slot);
/* The process `pid`, likewise. */
struct emu_peer *emu_peer_by_pid(struct emu_dev *d, int pid);
/* The same: the one that *last refers to, or another that takes its place there. */
struct emu_peer *emu_peer_of(struct emu_dev *d, struct emu_peer **last, uint32_t slot);
void emu_peer_ref(struct emu_dev *d, struct emu_peer *p);
void emu_peer_put(struct emu_dev *d, struct emu_peer *p);
/* Its pidfd fired, or it was found gone. Service thread, once for each peer. */
void emu_peer_died(struct emu_dev *d, struct emu_peer *p);
/* Takes back what the dead process of a slot held here. Service thread. */
void emu_peer_clear(struct emu_dev *d, uint32_t slot);
/* Does what is sent to it get an answer? Not of one that is gone, or silent by its knob. */
static inline bool emu_peer_answers(const struct emu_peer *p)
{
    return !atomic_load_explicit(&p->dead, memory_order_relaxed) &&
           !SHM_LEFT(atomic_load_explicit(&p->seg->keeper, memory_order_relaxed)) &&
           !atomic_load_explicit(&p->seg->silent, memory_order_relaxed);
}
bool emu_peer_stopped(struct emu_peer *p); /* by a signal or a debugger, or dead */
/* Has it run since it had run for `*ran`, or wanted nothing of a processor?  Sets *ran. */
bool emu_peer_had_turn(const struct emu_peer *p, uint64_t *ran);
/* Is it true of any that we know?  Under the device's lock. */
bool emu_peers_any(struct emu_dev *d,
                   bool (*is)(struct emu_dev *d, struct emu_peer *p, void *arg), void *arg);
/* One that became another program, or is dead without a pidfd that says so; NULL when there is
 * none. It stays in the table until emu_peer_died(). Service thread. */
struct emu_peer *emu_peer_unseen(struct emu_dev *d);
void emu_peer_ring_bell(struct emu_dev *d, struct emu_peer *p);
void emu_peer_signal_chan(struct emu_dev *d, struct emu_peer *p, uint32_t chan);
/* Puts a message into a peer's inbox and wakes its service thread; false when it is full. Then
 * one of INBOX_CM or INBOX_HELLO is the caller's to repeat; what another one is about the owner
 * finds in its segment by itself. */
bool emu_peer_send(struct emu_dev *d, struct emu_peer *p, uint32_t kind, uint32_t index,
                   uint32_t arg, const void *payload, size_t len);
/* Tells a process of this one, before something is put there that it must clear up should this
 * one die: it may know nothing of it otherwise. False when its inbox is full. */
bool emu_peer_greet(struct emu_dev *d, struct emu_peer *p);
/* Explains, once per process, that the kernel forbids to reach another process's memory. */
void emu_explain_eperm(int pid);
/* Pid of the process that listens on an abstract socket, or -errno. */
int emu_listener_pid(const char *name); /* -EPERM: of another PID namespace */

/* service.c: the one thread */
int emu_service_start(struct emu_dev *d); /* 0 or -errno */
/* Ends the thread: for tests that do its work by themselves, and hold no lock of ours. */
void emu_service_stop(struct emu_dev *d);
void emu_service_forked(void); /* in the child, where the thread does not exist */
/*
 * Handles what is in the inbox; the service thread does. Whatever a message says, it harms
 * nobody but its sender and the connections between the two.
 */
void emu_inbox_read(struct emu_dev *d);

/* watch.c: what the service thread waits for */
enum emu_watch {
    EMU_WATCH_BELL,
    EMU_WATCH_TIMER,
    EMU_WATCH_SLOT,
    EMU_WATCH_LISTENER,
    EMU_WATCH_PEER
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
void emu_watch_forked(void);                /* in the child: it was its parent's */
int emu_watch(int fd, enum emu_watch what); /* not for peers; 0 or -errno */
/* Closes a descriptor that may be watched. Its number may be another's right after that, so the
 * service thread uses a listener's only between emu_watch_hold() and emu_watch_let_go(). */
void emu_unwatch_close(int fd);
/* False when one was closed since the last wait began. Else none is until it lets go. */
bool emu_watch_hold(void);
void emu_watch_let_go(void);
void emu_watch_peer(struct emu_dev *d, struct emu_peer *p);
void emu_unwatch_peer(struct emu_peer *p);
/* How often peers, and what they have said, have to be looked after; ns. */
uint64_t emu_watch_period(void);
/* Waits until there is something; how much, at most `most`, or -1 with errno. */
int emu_watch_wait(struct emu_watched *seen, int most);
void emu_service_wake(struct emu_dev *d);
/* Makes an eventfd readable; false when that was not possible. */
bool emu_kick(int fd);

/* timer.c: the clock, and timers */
uint64_t emu_now(void);
/* A descriptor that is readable when a timer is due, or -errno. */
int emu_timers_open(const struct emu_dev *d);
void emu_timers_forked(void); /* in the child: they are its parent's */
void emu_timer_arm(struct emu_dev *d, struct emu_timer *t, uint64_t due);
/* The same, but a timer that is armed for an earlier time stays as it is. */
void emu_timer_sooner(struct emu_dev *d, struct emu_timer *t, uint64_t due);
/* Disarms, and waits until a run in another thread is over. */
void emu_timer_cancel(struct emu_timer *t);
/* Runs what is due. On a link one thread does at a time: another waits for its turn or not. */
void emu_timers_run(bool wait);
/* Runs what is due, unless another thread does; called by threads that poll and find nothing.
 */
void emu_timers_poll(void);

/* link.c */
static inline bool emu_link_on(const struct emu_dev *d)
{
    return d->knobs.link_mb_s != 0;
}
/* So many bytes come to a process's engine for this device at the time `from`; when they have
 * arrived. */
uint64_t emu_link_leave(const struct emu_dev *d, struct shm_head *of, uint8_t device,
                        uint64_t from, uint64_t bytes);

/* copy.c */
/* Moves `total` bytes between local and remote vectors: 0, -EFAULT (remote), -EINVAL (local),
 * -EPERM, -ESRCH. The vectors are consumed. */
int emu_copy_to(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                unsigned nr, uint64_t total);
int emu_copy_from(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                  unsigned nr, uint64_t total);
/* Gathers `length` bytes that the program itself can read: 0, EFAULT where it cannot, ENOMEM.
 * `from` is not consumed, and has `length` bytes. */
int emu_copy_own(void *to, const struct iovec *from, unsigned n, size_t length);

#endif
