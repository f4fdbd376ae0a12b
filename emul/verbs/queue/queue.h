/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queue pairs: receive queues, send queues, and what executes a work request. */
#ifndef EMUL_VERBS_QUEUE_H
#define EMUL_VERBS_QUEUE_H

#include "emul/verbs/memory/memory.h"
#include "emul/verbs/queue/cq.h"

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
    uint32_t limit; /* asked for, and no event of it raised yet; under dev.lock */
    uint32_t async_events;
    _Atomic int users;
    /* of XRC */
    struct emu_xrcd *xrcd;
    struct emu_cq *cq;
    struct emu_srq *cq_next;
    uint64_t life;
};

static inline bool emu_is_xrc(enum ibv_qp_type type)
{
    return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

/* Has it no peer of its own, but many posters? */
static inline bool emu_is_datagram(enum ibv_qp_type type)
{
    return type == IBV_QPT_UD || type == IBV_QPT_RAW_PACKET;
}

enum sqe_state { SQE_QUEUED, SQE_READING, SQE_DONE };

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
            struct {
                uint64_t compare_add, swap;
            } atomic;
            uint32_t srqn; /* XRC: of the shared receive queue that it is for */
        };
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
    _Atomic unsigned sq_wanted; /* how many wait to have sq_lock before posters: see sq.c */
    struct shm_qp *s;
    uint32_t index;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct emu_peer *peer;     /* connected to; for datagrams that of the last one */
    struct emu_peer *srq_peer; /* XRC: of the last shared receive queue that was named */
    uint8_t source;            /* number of the port it was given; under sq_lock */
    uint32_t groups;           /* multicast groups that it is in, or flows; under dev.lock */

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
    uint64_t retry_until;   /* unanswered until then it fails; 0 when not retrying */
    uint64_t retry_seen;    /* the last try */
    uint64_t retry_ran;     /* so long the peer had run by then */
    struct emu_timer timer; /* for whatever of the above is next */
    bool lost;              /* knob kill_after hit: nothing gets through */
    bool est_told;          /* COMM_EST was raised; under sq_lock */
    bool drain_asked;       /* SQ_DRAINED is to be raised when it is not draining any more */

    struct emu_rq rq;
    struct emu_srq *srq;
    struct emu_cq *scq, *rcq; /* NULL: XRC has one of them or none */
    struct emu_xrcd *xrcd;    /* of one that receives by XRC */
    uint64_t reported;        /* token of the last receive that was polled; under rcq->lock */
    uint32_t async_events;
    struct emu_mw_link *windows; /* bound by it last; under dev.lock */

    void *gathered; /* inline data of the request being posted, not of RC; under sq_lock */

    /* ibv_wr_*: requests between wr_start and wr_complete */
    bool is_ex;
    int wr_err;
    uint32_t wr_count, wr_max;
    struct emu_wr_build **wr_build;
};

/* bind.c */
int emu_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* ah.c */
/* Puts the address of a datagram into a request; 0 or EINVAL. */
int emu_ah_fill(struct emu_wr *w, const struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);
#define EMU_FRAME_HEADERS 18u /* of Ethernet, beyond what the MTU counts */
#define EMU_GRH           40u /* bytes of a receive before a datagram's data */
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

/* Tells other processes that this one is to be found by the name of `gid`, or does not any more
 * when that was done as often: 0 or a positive errno. Under d->lock. */
int emu_mcast_hold(struct emu_dev *d, const union ibv_gid *gid);
void emu_mcast_drop(struct emu_dev *d, const union ibv_gid *gid);

/* raw.c: frames of Ethernet, and the flows that say who gets them */
bool emu_raw_permitted(void); /* to the process, by its rights */
struct ibv_flow *emu_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int emu_destroy_flow(struct ibv_flow *flow);
/* The queue pairs of a network that get a frame of `length` bytes; how many, at most `max`. */
uint32_t emu_flow_find(struct emu_dev *d, uint8_t fabric, const struct iovec *frame, unsigned n,
                       uint32_t length, uint32_t *qpn, uint32_t max);

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

/* xrc.c */
struct ibv_xrcd *emu_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int emu_close_xrcd(struct ibv_xrcd *xrcd);
void emu_xrc_forked(struct emu_dev *d); /* in the child: these are its parent's */
/* A queue pair begins or ends to use a domain. */
void emu_xrcd_hold(struct emu_xrcd *x, struct shm_xrcd *id);
void emu_xrcd_drop(struct emu_xrcd *x);
int emu_get_srq_num(struct ibv_srq *srq, uint32_t *number);
/* Makes a new SRQ one of XRC, and gives it its life. */
void emu_xrc_srq_begins(struct emu_dev *d, struct emu_srq *srq, struct ibv_xrcd *xrcd,
                        struct ibv_cq *cq);
/* Takes from an SRQ of XRC, about to be destroyed, its number and what is posted. */
void emu_xrc_srq_gone(struct emu_dev *d, struct emu_srq *srq);
/* The SRQ that a request names; it and its CQ are not freed while it is pinned. */
struct emu_named {
    struct emu_pin pin;
    uint64_t life;
    uint32_t index, cq;
    struct shm_user user; /* as whom the request reaches memory there */
    uint64_t before;      /* shm_qp.taken as the request found it */
    bool said;            /* there, what it has taken */
};
/* The process that has, or had, the SRQ of this number; NULL with errno. Under sq_lock. */
struct emu_peer *emu_xrc_peer(struct emu_dev *d, struct emu_qp *qp, uint32_t srqn);
/*
 * Finds the SRQ of this number for a request of `qp` to the responder `rs`, whose token the
 * caller has, and pins it: 0, ENOENT when there is none in the responder's domain, or EAGAIN
 * when its process cannot be reached now; then nothing is pinned. Under sq_lock.
 */
int emu_xrc_find(struct emu_dev *d, struct emu_qp *qp, const struct shm_qp *rs, uint32_t srqn,
                 struct emu_named *n);
/* Is the SRQ that was found still there? */
static inline bool emu_xrc_found(const struct shm_head *seg, const struct emu_named *n)
{
    return atomic_load(&shm_srq(seg, n->index)->life) == n->life;
}
/* Says that the poster with this token has taken a receive, of the process in `slot`. */
void emu_xrc_say(struct shm_qp *rs, uint64_t token, struct emu_named *n, uint32_t slot,
                 uint64_t wr_id);
/* Who wins completes the receive that `token` has taken, if that was said. */
static inline bool emu_xrc_claim(struct shm_qp *rs, uint64_t token)
{
    return atomic_compare_exchange_strong(&rs->taken, &token, token | RX_DONE);
}
/* Takes the token away from a poster that does not come back, and flushes what it had taken.
 * False when it has come back meanwhile. */
bool emu_xrc_revoke(struct emu_dev *d, struct emu_qp *qp, uint64_t token);
/* Flushes what a poster has said that it took after its token was taken away. */
void emu_xrc_settle(struct emu_dev *d, struct emu_qp *qp);

/* srq.c */
struct ibv_srq *emu_create_srq_ex(struct ibv_context *context,
                                  struct ibv_srq_init_attr_ex *attr);
int emu_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* qp.c */
struct ibv_qp *emu_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/* Whether something that a QP of this process received has not been polled, or may not have. */
bool emu_qp_unseen(struct emu_dev *d, uint32_t qpn);

/* qp_end.c */
/*
 * Moves a QP to the error state and flushes it; `event` is raised unless it is -1. Under
 * sq_lock. Does nothing when the QP is already there.
 */
void emu_qp_to_error(struct emu_dev *d, struct emu_qp *qp, int event);
/* Moves a QP to RESET: queues emptied, completions forgotten, peer released. Takes sq_lock. */
void emu_qp_reset(struct emu_dev *d, struct emu_qp *qp);
/* Clears up in queue pairs for datagrams what a process that died had begun there. */
void emu_qp_peer_died(struct emu_dev *d, uint32_t slot);
/* Those of a device of ours end in the error state. */
void emu_qp_device_failed(struct emu_dev *d, uint32_t device);

/* sq.c */
/* Takes sq_lock to post; lets the service thread by that waits for it. */
void emu_sq_lock(struct emu_qp *qp);
/* Takes sq_lock before those who post: for what is not asked for by the program. */
void emu_sq_lock_first(struct emu_qp *qp);
static inline struct emu_sqe *emu_sqe(struct emu_qp *qp, uint64_t i)
{
    return &qp->sq[i & qp->sq_mask];
}
/* Reports request `i` if it must be reported. False when the completion queue was full. */
bool emu_sq_complete(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr,
                     enum ibv_wc_status status);
/* Reports request `i`, being executed, as successful: before its peer gets to know of it. */
void emu_sq_tell(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr);
void emu_sq_flush(struct emu_dev *d, struct emu_qp *qp); /* under sq_lock */
void emu_sq_forget(struct emu_sqe *e);                   /* its copy of inline data */

/* post.c */
int emu_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* Hands over one normalised request. Under sq_lock. 0 or a positive errno. */
int emu_sq_post(struct emu_dev *d, struct emu_qp *qp, struct emu_wr *wr);
/* Checks that a request can be posted at all: 0 or a positive errno. */
int emu_sq_check(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr);
/* Goes on; on a link with what has arrived at the time `due`. Under sq_lock. */
void emu_sq_progress(struct emu_dev *d, struct emu_qp *qp, uint64_t due);
/* Is it in SQD, with something that was started before and is not complete? Under sq_lock. */
bool emu_sq_draining(struct emu_qp *qp);
void emu_sq_timer(struct emu_timer *t);
/* Puts into a request what it binds to what; 0 or EINVAL. */
int emu_mw_request(struct emu_wr *w, const struct ibv_mw *mw, uint32_t rkey,
                   const struct ibv_mw_bind_info *info);

/* How long a poster waits for its turn, and after what time it looks who is in its way. */
#define EMU_TURN_LOOK (EMU_NSEC / 50)
#define EMU_TURN_WAIT (EMU_NSEC * 2)

/*
 * atomic.c: does an atomic operation on a word of the peer, as whose memory `remote` was
 * pinned; `old` is what was there. 0 or a negative errno; ESRCH: its turn did not come.
 */
int emu_atomic(struct emu_dev *d, struct emu_peer *p, const struct emu_wr *wr,
               struct iovec remote, uint64_t *old);

/* exec.c */
enum exec_result { EXEC_DONE, EXEC_RNR, EXEC_NO_ANSWER };
/*
 * Executes request `i` against the peer. Under sq_lock. `status` is set for EXEC_DONE. `oldest`
 * says that no other request's completion is owed before this one's.
 */
enum exec_result emu_exec(struct emu_dev *d, struct emu_qp *qp, uint64_t i,
                          const struct emu_wr *wr, bool oldest, enum ibv_wc_status *status,
                          uint32_t *rnr_timer);
/* Enters the responder of a connection as emu_exec() does: 0, or a token that is given back by
 * emu_exec_leave(). */
uint64_t emu_exec_enter(struct emu_dev *d, struct emu_qp *qp, struct shm_qp **responder);
void emu_exec_leave(struct shm_qp *responder, uint64_t token);

/* chain.c */
/*
 * Executes writes that follow each other, all or none of which this says: false leaves them to
 * emu_exec(), one by one, whatever has been moved. At most EMU_CHAIN_MAX, under sq_lock.
 */
bool emu_exec_writes(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr, unsigned n);

/* wr_api.c */
void emu_wr_api_init(struct emu_qp *qp);
void emu_wr_api_fini(struct emu_qp *qp);

#endif
