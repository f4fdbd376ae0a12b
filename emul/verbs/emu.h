/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The device of this process: what its parts share. Objects that programs see embed the
 * structure of verbs.h as their first member.
 *
 * Locks (all private to the process), outermost first:
 *   cm.lock                     connection manager (cm.h)
 *   emu_dev.qp_life             a QP found by its index stays alive under it (service thread)
 *   emu_qp.sq_lock              send queue, state changes of one QP
 *   emu_dev.lock                object tables, peers, arena
 *   emu_cq.lock                 consumer side of one CQ
 *   timer lock (service.c), async lock of a context
 * No lock is held while sleeping, and none is visible to another process.
 */
#ifndef EMUL_VERBS_EMU_H
#define EMUL_VERBS_EMU_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "emul/verbs/base/counters.h"
#include "emul/verbs/base/fault.h"
#include "emul/verbs/base/knobs.h"
#include "emul/verbs/base/shm.h"

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
    int pidfd;        /* -1 where the kernel has none */
    _Atomic int bell; /* our copy of its eventfd, -1 until needed */
    unsigned refs;
    _Atomic bool dead;
    bool self;
    _Atomic bool greeted; /* it has been told of this process, as datagrams need it */
    pthread_mutex_t chan_lock;
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

struct emu_async {
    struct emu_async *next;
    struct ibv_async_event ev;
};

struct emu_ctx {
    pthread_mutex_t async_lock;
    struct emu_async *async_head, **async_tail;
    struct emu_ctx *next;   /* dev.contexts */
    struct verbs_context v; /* last: grows upwards */
};

struct emu_pd {
    struct ibv_pd pd;
    _Atomic int users;
    struct emu_pd *parent_of; /* of a parent domain: the domain that it is a name of */
    _Atomic int *td_users;    /* and its thread domain's, or NULL */
};

struct emu_mw_link {
    struct emu_mw_link *next, **pprev; /* pprev NULL: in no list */
};

struct emu_mr {
    struct ibv_mr mr;
    uint32_t index;
    struct emu_mw_link *windows; /* bound to it last; under dev.lock */
    _Atomic int *dm_users;       /* of the device memory that it is of, or NULL */
};

struct emu_mw {
    struct ibv_mw mw;
    uint32_t index;
    uint32_t key; /* without EMU_RKEY_BIT, while it is not bound, too; under dev.lock */
    struct emu_mw_link of_mr, of_qp;
};

struct emu_chan {
    struct ibv_comp_channel ch;
    uint32_t index;
    struct emu_cq *cqs; /* under dev.lock */
};

#define EMU_CQ_RINGS 24u /* each has twice the places of the one before, or more */

/* A ring in the segment with its head, which is never used for anything but a ring's head. */
struct emu_ring {
    struct emu_ring *next;
    struct shm_ring *s;
    uint64_t off_head, off, bytes;
};

struct emu_cq {
    union {
        struct ibv_cq cq;
        struct ibv_cq_ex ex;
    };
    struct emu_chan *chan;
    struct emu_cq *chan_next;
    pthread_mutex_t lock;
    struct shm_cq *s;
    uint32_t index;
    /* the one in use; NULL to who has not the lock while it is exchanged: cq_ring.c */
    _Atomic(struct shm_ring *) ring;
    struct emu_ring *rings[EMU_CQ_RINGS]; /* all that it ever used, the last is in use */
    unsigned nrings;
    _Atomic int users;
    uint32_t comp_events;  /* fetched */
    uint32_t async_events; /* raised */
    bool ex_ok;            /* created by ibv_create_cq_ex */
    struct ibv_wc ex_wc;
    uint64_t ex_time; /* of the last completion polled */
};

/* The owner's side of a receive ring. */
struct emu_rq {
    pthread_mutex_t lock;
    struct shm_rq *s;
    uint32_t max_wr, max_sge;
    uint64_t bytes;
    uint64_t posted;
    _Atomic uint64_t polled; /* completions that a program has seen: only these free a place */
    bool flushing;           /* the QP failed and no poster takes any more; under the lock */
    uint64_t flushed;        /* then: the first place that was not flushed yet */
};

struct emu_srq {
    struct ibv_srq srq;
    struct emu_rq rq;
    uint32_t index;
    uint32_t limit;
    uint32_t async_events;
    _Atomic int users;
};

enum sqe_state { SQE_QUEUED, SQE_READING, SQE_DONE };

/* What a bind has besides the range, which begins at raddr, and the new key, rkey. */
struct emu_bind {
    uint64_t length;
    uint32_t mw_key, mr_key; /* without EMU_RKEY_BIT */
    unsigned access;
};

/* Where datagrams to an address go. */
enum emu_av_where { AV_NONE, AV_NOWHERE, AV_HERE, AV_GROUP };

/* What a datagram has besides its data. */
struct emu_av {
    union ibv_gid dgid;
    uint32_t qpn, qkey;
    uint32_t flow; /* label */
    uint32_t pd;   /* the address handle's */
    uint8_t where; /* enum emu_av_where; AV_NONE: the request names no address */
    uint8_t global, tclass, hop, sl;
    uint8_t source; /* number of the port it leaves by */
};

struct emu_ah {
    struct ibv_ah ah;
    struct emu_av av;
};

static inline bool emu_is_atomic(enum ibv_wr_opcode op)
{
    return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* A work request as the executor sees it; `sge` may be the caller's list. */
struct emu_wr {
    uint64_t wr_id;
    uint64_t raddr;
    const struct ibv_sge *sge;
    const void *inl; /* inline data gathered already, or NULL */
    uint32_t nsge;
    uint32_t length;
    uint32_t rkey;
    uint32_t imm; /* or the key to be invalidated */
    uint32_t flags;
    enum ibv_wr_opcode opcode;
    union {
        struct emu_bind bind; /* IBV_WR_BIND_MW */
        struct emu_av av;     /* a send of a queue pair for datagrams */
        struct {
            uint64_t compare_add, swap;
        } atomic;
    };
};

struct emu_sqe {
    struct emu_wr wr;
    enum sqe_state state;
    bool started; /* counted and offered to fault injection already */
    enum ibv_wc_status status;
    uint64_t due; /* SQE_READING: when to fetch; on a link, before that: when it arrives */
    void *inl;    /* owned copy */
};

struct emu_qp {
    union {
        struct ibv_qp qp;
        struct ibv_qp_ex ex;
    };
    pthread_mutex_t sq_lock;
    struct shm_qp *s;
    uint32_t index;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct emu_peer *peer; /* connected to; for datagrams that of the last one */
    uint8_t source;        /* number of the port it was given; under sq_lock */
    uint32_t groups;       /* multicast groups that it is in; under dev.lock */

    /* send queue: retire <= exec <= tail; freed (by polling) <= retire */
    struct emu_sqe *sq;
    struct ibv_sge *sq_sge;
    uint32_t sq_mask;
    uint64_t sq_tail, sq_exec, sq_retire;
    uint64_t sq_told; /* the last request reported while it was executed, + 1 */
    bool sq_told_ok;  /* and its completion found room */
    _Atomic uint64_t sq_freed;
    uint32_t reads_out;
    uint64_t sq_sent;    /* with a link: before these all requests are under way or further */
    uint32_t reads_sent; /* of them, reads whose request has not arrived */
    int rnr_left;
    uint64_t rnr_due;       /* not before this time after an RNR */
    uint64_t retry_until;   /* unanswered since; 0 when not retrying */
    struct emu_timer timer; /* for whatever of the above is next */
    bool lost;              /* knob kill_after hit: nothing gets through */

    struct emu_rq rq;
    struct emu_srq *srq;
    struct emu_cq *scq, *rcq;
    uint64_t reported; /* token of the last receive that was polled; under rcq->lock */
    uint32_t async_events;
    struct emu_mw_link *windows; /* bound by it last; under dev.lock */

    /* ibv_wr_*: requests between wr_start and wr_complete */
    bool is_ex;
    int wr_err;
    uint32_t wr_count, wr_max;
    struct emu_wr_build **wr_build;
};

/*
 * A device as programs list it. All devices of a process share its tables of objects; which of
 * them an object belongs to is told by its context.
 */
struct emu_hca {
    struct ibv_device ibdev; /* first: programs' pointers lead here */
    uint32_t index;
    struct emu_ctx *cm_ctx; /* the one that rdma_cm hands out */
};

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
    uint64_t arena_next;
    struct arena_free *arena_free[48];

    struct emu_hca hca[EMU_MAX_DEVICES]; /* the first knobs.devices of them are there */
    struct emu_ports *ports;
    __be64 guid; /* of the machine */
    struct emu_ctx *contexts;

    uint32_t next_qp, next_cq, next_srq, next_chan, next_pd;
    uint32_t live_mr, live_mw;
    struct emu_ring *ring_heads;      /* free ones, without a ring; under lock */
    struct emu_group *groups;         /* that queue pairs of this process are in */
    uint32_t random[64], random_left; /* drawn and not yet used */
    struct emu_qp *qp[EMU_MAX_QPS];
    uint64_t revoked[EMU_MAX_QPS]; /* last token taken away; outlives the QP, as posters may */
    struct emu_cq *cq[EMU_MAX_CQS];
    struct emu_srq *srq[EMU_MAX_SRQS];
    struct emu_mr *mr[EMU_MAX_MRS];
    struct emu_mw *mw[EMU_MAX_MWS];

    _Atomic uint64_t dm_used;  /* bytes of device memory that are allocated */
    _Atomic uint64_t wr_total; /* executed, for kill_after */
};

/* device.c */
/* The device, made at the first call; NULL with errno set when that fails or there is none. */
struct emu_dev *emu_dev(void);
/* Only knobs and names: no segment, no thread. Never NULL. */
struct emu_dev *emu_dev_base(void);
/* The device if it has been made, without making it. */
struct emu_dev *emu_dev_peek(void);
/* The context of a device that rdma_cm hands out. */
struct emu_ctx *emu_ctx_get(struct emu_dev *d, uint32_t device);
static inline struct emu_ctx *emu_ctx_of(struct ibv_context *c)
{
    return (struct emu_ctx *)((char *)c - offsetof(struct emu_ctx, v.context));
}

static inline struct emu_hca *emu_hca_of(struct ibv_context *c)
{
    return (struct emu_hca *)c->device;
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
int emu_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                   size_t len);

/* segment.c: this process's segment */
int emu_segment_create(struct emu_dev *d); /* 0 or -errno */
/* Bytes in the segment at the returned offset, zeroed; 0 when it is full. Under no lock. */
uint64_t emu_arena_alloc(struct emu_dev *d, uint64_t bytes);
void emu_arena_free(struct emu_dev *d, uint64_t off, uint64_t bytes);

/* registry.c: slots and peers */
int emu_slot_claim(struct emu_dev *d); /* 0 or -errno */
/* Binds and listens on an abstract unix socket: its fd or -errno. */
int emu_listen_abstract(const char *name);
/* The process in `slot`, with a reference; NULL with errno when there is none or it is closed.
 */
struct emu_peer *emu_peer_get(struct emu_dev *d, uint32_t slot);
/* The process `pid`, likewise. */
struct emu_peer *emu_peer_by_pid(struct emu_dev *d, int pid);
void emu_peer_ref(struct emu_dev *d, struct emu_peer *p);
void emu_peer_put(struct emu_dev *d, struct emu_peer *p);
void emu_peer_died(struct emu_dev *d, struct emu_peer *p); /* service thread: its pidfd fired */
/* Takes back what the dead process of a slot held here. Service thread. */
void emu_peer_clear(struct emu_dev *d, uint32_t slot);
bool emu_peer_stopped(struct emu_peer *p); /* by a signal or a debugger, or dead */
/* Is it true of any that we know?  Under the device's lock. */
bool emu_peers_any(struct emu_dev *d,
                   bool (*is)(struct emu_dev *d, struct emu_peer *p, uint32_t arg),
                   uint32_t arg);
void emu_peers_check(struct emu_dev *d); /* service thread: finds dead peers without pidfd */
void emu_peer_ring_bell(struct emu_dev *d, struct emu_peer *p);
void emu_peer_signal_chan(struct emu_dev *d, struct emu_peer *p, uint32_t chan);
/* Puts a message into a peer's inbox and wakes its service thread; false when it is full. */
bool emu_peer_send(struct emu_dev *d, struct emu_peer *p, uint32_t kind, uint32_t index,
                   uint32_t arg, const void *payload, size_t len);
/* Explains, once per process, that the kernel forbids to reach another process's memory. */
void emu_explain_eperm(int pid);
/* Pid of the process that listens on an abstract socket, or -errno. */
int emu_listener_pid(const char *name);

/* service.c: the one thread, and timers */
int emu_service_start(struct emu_dev *d); /* 0 or -errno */
void emu_service_watch_peer(struct emu_dev *d, struct emu_peer *p);
void emu_service_unwatch_peer(struct emu_dev *d, struct emu_peer *p);
int emu_service_watch_listener(int sock);
void emu_service_wake(struct emu_dev *d);
void emu_service_stop(void);
void emu_service_forked(void); /* in the child, where the thread does not exist */
/*
 * Handles what is in the inbox; the service thread does. Whatever a message says, it harms
 * nobody but its sender and the connections between the two.
 */
void emu_inbox_read(struct emu_dev *d);
uint64_t emu_now(void);
void emu_timer_arm(struct emu_dev *d, struct emu_timer *t, uint64_t due);
/* The same, but a timer that is armed for an earlier time stays as it is. */
void emu_timer_sooner(struct emu_dev *d, struct emu_timer *t, uint64_t due);
/* Disarms, and waits until a run in another thread is over. */
void emu_timer_cancel(struct emu_timer *t);
/* Runs what is due, unless another thread does; called by threads that poll and find nothing.
 */
void emu_timers_poll(void);

/* mr.c */
/* A protection domain that no count knows; NULL with errno set. */
struct ibv_pd *emu_pd_new(struct ibv_context *context);
/* A new key with a free place in the table; 0 when there is none. Under d->lock. */
uint32_t emu_mr_draw_key(struct emu_dev *d, bool window);
/* Waits for the accesses to a region or window that began before its key was taken away. */
void emu_mr_drain(struct emu_dev *d, uint32_t index);
/* Registers memory, also none. NULL with errno. */
struct ibv_mr *emu_mr_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                          unsigned access);
/* Checks a segment of a local work request; `access` are rights it needs. 0 or -1. */
int emu_mr_local(struct emu_dev *d, uint32_t pd, const struct ibv_sge *sge, uint32_t access,
                 struct iovec *out);
/*
 * Checks an access by key to memory of the process `p`, through its queue pair `rs`, and pins
 * the table entry of the region or window: it is unpinned by emu_mr_unpin. 0, or -1 for a bad
 * key, range, PD, queue pair or right.
 */
struct emu_pin {
    struct shm_mr *mr;      /* NULL: nothing pinned */
    _Atomic uint32_t *note; /* holds `entry`, unless the owner undid the pin */
    uint32_t entry;         /* 0: there was no room, the note is one more in `unnoted` */
};
int emu_mr_pin(struct emu_dev *d, struct emu_peer *p, uint32_t key, bool remote,
               const struct shm_qp *rs, uint64_t addr, uint64_t len, uint32_t access,
               struct iovec *out, struct emu_pin *pin);
void emu_mr_unpin(struct emu_pin *pin);
/* Undoes the pins of a process that died on regions of this one. */
void emu_mr_peer_died(struct emu_dev *d, struct emu_peer *p);

/* mw.c */
struct ibv_mw *emu_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int emu_dealloc_mw(struct ibv_mw *mw);
int emu_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
/* Puts into a request what it binds to what; 0 or EINVAL. */
int emu_mw_request(struct emu_wr *w, const struct ibv_mw *mw, uint32_t rkey,
                   const struct ibv_mw_bind_info *info);
/* Execute a bind, and an invalidation by the owner. Under the QP's sq_lock. */
enum ibv_wc_status emu_mw_bind(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr);
enum ibv_wc_status emu_mw_invalidate(struct emu_dev *d, struct emu_qp *qp, uint32_t key);
/* Invalidates a window of `p` that is bound to its queue pair, by the poster there; false when
 * there is none. */
bool emu_mw_invalidate_remote(struct emu_peer *p, uint32_t qpn, uint32_t rkey);
/* Is a window bound to the region? Under d->lock. */
bool emu_mw_any(struct emu_dev *d, struct emu_mr *mr);
/* Takes the keys of a QP's windows away; nobody executes into it any more. */
void emu_mw_qp_gone(struct emu_dev *d, struct emu_qp *qp);

/* ah.c */
/* Puts the address of a datagram into a request; 0 or EINVAL. */
int emu_ah_fill(struct emu_wr *w, const struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);
#define EMU_GRH 40u /* bytes of a receive before a datagram's data */
/* Writes what a datagram's receiver finds there; `payload` are the bytes that follow. */
void emu_ah_header(struct emu_dev *d, const struct emu_av *av, uint32_t payload,
                   unsigned char header[EMU_GRH]);

/* Is it the address of a multicast group? */
bool emu_gid_is_group(const union ibv_gid *gid);

/* mcast.c */
void emu_mcast_forked(struct emu_dev *d); /* in the child: these are its parent's */
#define EMU_MCAST_QPN 0xffffffu
/* The slots of other processes with members of a group; how many, at most `max`. */
unsigned emu_mcast_slots(struct emu_dev *d, const union ibv_gid *gid, uint32_t *slots,
                         unsigned max);

/* cq_ring.c */
/* A ring of at least so many places, of which `cap` may be used; NULL without memory. */
struct emu_ring *emu_cq_ring_new(struct emu_dev *d, uint32_t cap);
void emu_cq_ring_free(struct emu_dev *d, struct emu_ring *r);
/* The i-th unread completion, or NULL. Under cq->lock. */
static inline struct shm_cqe *emu_cq_unread(struct emu_dev *d, struct emu_cq *cq, uint64_t i)
{
    return shm_ring_peek(d->seg, atomic_load_explicit(&cq->ring, memory_order_relaxed), i);
}
/* Whether there is none, for who has not the lock; true is reliable. */
static inline bool emu_cq_empty(struct emu_dev *d, struct emu_cq *cq)
{
    struct shm_ring *r = atomic_load_explicit(&cq->ring, memory_order_acquire);

    return r && !shm_ring_peek(d->seg, r, 0) &&
           atomic_load_explicit(&cq->ring, memory_order_relaxed) == r;
}
/*
 * Adds a completion to a CQ of any process. When the CQ is full the completion is lost, its
 * owner is told, and false is returned.
 */
bool emu_cq_push(struct emu_dev *d, struct emu_peer *owner, uint32_t cq,
                 const struct shm_cqe *c);

/* dm.c: device memory */
struct ibv_dm *emu_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int emu_free_dm(struct ibv_dm *dm);
struct ibv_mr *emu_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t off, size_t length,
                             unsigned int access);

/* domain.c: thread domains and parent domains */
struct ibv_td *emu_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int emu_dealloc_td(struct ibv_td *td);
struct ibv_pd *emu_alloc_parent_domain(struct ibv_context *context,
                                       struct ibv_parent_domain_init_attr *attr);

/* cq.c */
/* After a push: raises the event if the CQ is armed. `solicited` also for errors. */
void emu_cq_notify(struct emu_dev *d, struct emu_peer *owner, uint32_t cq, bool solicited);
/* Forgets the completions of a QP that is going away. */
void emu_cq_purge(struct emu_dev *d, struct emu_cq *cq, uint32_t qpn, struct emu_srq *srq,
                  struct emu_rq *rq);
/* Copies payloads still in bounce slots to where they belong, before memory is deregistered. */
void emu_cq_settle(struct emu_dev *d);
/* Whether it holds something that a QP received and nobody has polled. */
bool emu_cq_unseen(struct emu_dev *d, struct emu_cq *cq, uint32_t qpn);
void emu_cq_peer_died(struct emu_dev *d, uint32_t slot);
int emu_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int emu_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* NULL with errno set. `stamps`: each completion bears its time. */
struct emu_cq *emu_cq_create(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector, bool stamps);

/* cq_ex.c */
struct ibv_cq_ex *emu_create_cq_ex(struct ibv_context *context,
                                   struct ibv_cq_init_attr_ex *attr);
int emu_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* async.c */
void emu_async_raise(struct emu_ctx *ctx, const struct ibv_async_event *ev);
void emu_async_purge(struct emu_ctx *ctx, const void *element);
void emu_async_cq(struct emu_cq *cq, enum ibv_event_type type);
void emu_async_qp(struct emu_qp *qp, enum ibv_event_type type);
void emu_async_srq(struct emu_srq *srq, enum ibv_event_type type);

/* rq.c */
int emu_rq_init(struct emu_dev *d, struct emu_rq *rq, struct shm_rq *s, uint32_t max_wr,
                uint32_t max_sge);
void emu_rq_fini(struct emu_dev *d, struct emu_rq *rq);
/* Posts one receive; 0 or a positive errno. Caller holds rq->lock. */
int emu_rq_post(struct emu_dev *d, struct emu_rq *rq, const struct ibv_recv_wr *wr);
/* Reads the oldest receive of a ring in any process; false when there is none. */
bool emu_rq_peek(struct shm_head *seg, const struct shm_rq *rq, uint64_t *at, uint64_t *wr_id,
                 uint32_t *nsge, struct shm_sge *sge);
/* Takes the receive that was read at `at`; false when somebody else did. */
bool emu_rq_take(struct shm_rq *rq, uint64_t at);
/* The id of the receive at a place of the owner's ring, taken but not completed yet. */
uint64_t emu_rq_wr_id(struct emu_dev *d, const struct emu_rq *rq, uint64_t at);
/*
 * Completes with a flush error every receive of a failed QP from the place `from` on, and what
 * is posted later. No poster completes one of them any more.
 */
void emu_rq_flush(struct emu_dev *d, struct emu_qp *qp, uint64_t from);
/* Empties the queue of a QP that no poster executes into, without completions. */
void emu_rq_reset(struct emu_rq *rq);
int emu_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int emu_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* qp.c, qp_state.c */
struct ibv_qp *emu_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/*
 * Moves a QP to the error state and flushes it; `event` is raised unless it is -1. Under
 * sq_lock. Does nothing when the QP is already there.
 */
void emu_qp_to_error(struct emu_dev *d, struct emu_qp *qp, int event);
/* Moves a QP to RESET: queues emptied, completions forgotten, peer released. Takes sq_lock. */
void emu_qp_reset(struct emu_dev *d, struct emu_qp *qp);
/* Clears up in queue pairs for datagrams what a process that died had begun there. */
void emu_qp_peer_died(struct emu_dev *d, uint32_t slot);
/* Whether something that a QP of this process received has not been polled, or may not have. */
bool emu_qp_unseen(struct emu_dev *d, uint32_t qpn);
/* Failing one from the service thread, by table index, when a peer asked for it. */
void emu_qp_remote_error(struct emu_dev *d, uint32_t index, uint32_t qpn, int event);
void emu_qp_remote_event(struct emu_dev *d, uint32_t index, uint32_t qpn, int event);

/* post.c */
int emu_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* Hands over one normalised request. Under sq_lock. 0 or a positive errno. */
int emu_sq_post(struct emu_dev *d, struct emu_qp *qp, struct emu_wr *wr);
/* Checks that a request can be posted at all: 0 or a positive errno. */
int emu_sq_check(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr);
/* Goes on; on a link with what has arrived at the time `due`. Under sq_lock. */
void emu_sq_progress(struct emu_dev *d, struct emu_qp *qp, uint64_t due);
void emu_sq_flush(struct emu_dev *d, struct emu_qp *qp); /* under sq_lock */
void emu_sq_timer(struct emu_timer *t);
/* Reports request `i`, being executed, as successful: before its peer gets to know of it. */
void emu_sq_tell(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr);

/* link.c */
static inline bool emu_link_on(const struct emu_dev *d)
{
    return d->knobs.link_mb_s != 0;
}
/* So many bytes come to the engine of a process at the time `from`; when they have arrived. */
uint64_t emu_link_leave(const struct emu_dev *d, struct shm_head *of, uint64_t from,
                        uint64_t bytes);

/* exec.c */
enum exec_result { EXEC_DONE, EXEC_RNR, EXEC_NO_ANSWER };
/*
 * Executes request `i` against the peer. Under sq_lock. `status` is set for EXEC_DONE. `oldest`
 * says that no other request's completion is owed before this one's.
 */
enum exec_result emu_exec(struct emu_dev *d, struct emu_qp *qp, uint64_t i,
                          const struct emu_wr *wr, bool oldest, enum ibv_wc_status *status,
                          uint32_t *rnr_timer);

/* copy.c */
/* Moves `total` bytes between local and remote vectors: 0, -EFAULT (remote), -EINVAL (local),
 * -EPERM, -ESRCH. The vectors are consumed. */
int emu_copy_to(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                unsigned nr, uint64_t total);
int emu_copy_from(struct emu_peer *p, struct iovec *local, unsigned nl, struct iovec *remote,
                  unsigned nr, uint64_t total);

/* wr_api.c */
void emu_wr_api_init(struct emu_qp *qp);
void emu_wr_api_fini(struct emu_qp *qp);

/* cm */
void emu_cm_inbox(struct emu_dev *d, const void *payload, size_t len);
void emu_cm_peer_died(struct emu_dev *d, struct emu_peer *p);
void emu_cm_forked(void);

#endif
