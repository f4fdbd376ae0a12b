/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queue pairs: receive queues, send queues, execution of work requests. */
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
    _Atomic uint64_t polled; /* completions polled by the program; only these free places */
    bool flushing;           /* QP failed and posters take no more receives; under the lock */
    uint64_t flushed;        /* if flushing: first place not yet flushed */
};

struct emu_srq {
    struct ibv_srq srq;
    struct emu_rq rq;
    uint32_t index;
    uint32_t limit; /* armed limit whose event was not raised; 0: none; under dev.lock */
    uint32_t async_events;
    bool failed; /* takes receives and uses none; under rq.lock */
    _Atomic int users;
};

enum sqe_state { SQE_QUEUED, SQE_READING, SQE_DONE };

/* Destination of datagrams. */
enum emu_av_where { AV_NONE, AV_NOWHERE, AV_HERE, AV_GROUP };

/* Address of a datagram. */
struct emu_av {
    union ibv_gid dgid;
    uint32_t qpn, qkey;
    uint32_t flow; /* label */
    uint32_t pd;   /* of the address handle */
    uint8_t where; /* enum emu_av_where; AV_NONE: no address in the request */
    uint8_t global, tclass, hop, sl;
    uint8_t source; /* number of the source port */
    uint8_t sgid;   /* index of its GID */
};

struct emu_ah {
    struct ibv_ah ah;
    struct emu_av av;
};

static inline bool emu_is_atomic(enum ibv_wr_opcode op)
{
    return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* A work request as executed; `sge` may be the caller's list. */
struct emu_wr {
    uint64_t wr_id;
    uint64_t raddr;
    const struct ibv_sge *sge;
    const void *inl; /* gathered inline data, or NULL */
    uint32_t nsge;
    uint32_t length;
    uint32_t rkey;
    uint32_t imm; /* or the key to be invalidated */
    uint32_t flags;
    enum ibv_wr_opcode opcode;
    union {
        struct emu_bind bind; /* IBV_WR_BIND_MW */
        struct emu_av av;     /* datagram sends */
        struct {
            uint64_t compare_add, swap;
        } atomic;
    };
};

struct emu_sqe {
    struct emu_wr wr;
    enum sqe_state state;
    bool started; /* counted and passed to fault injection */
    enum ibv_wc_status status;
    /* ns. SQE_READING: time of the fetch; link model, before that: time of arrival */
    uint64_t due;
    void *inl; /* owned copy, or NULL */
};

struct emu_qp {
    union {
        struct ibv_qp qp;
        struct ibv_qp_ex ex;
    };
    pthread_mutex_t sq_lock;
    /* number of threads that wait with priority over posters, see sq.c */
    _Atomic unsigned sq_wanted;
    struct shm_qp *s;
    uint32_t index;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct emu_peer *peer; /* connected peer; UD: peer of the last datagram */
    uint8_t source;        /* number of the QP's port; under sq_lock */
    uint32_t groups;       /* memberships in multicast groups; under dev.lock */

    /* send queue: retire <= exec <= tail; freed (by polling) <= retire */
    struct emu_sqe *sq;
    struct ibv_sge *sq_sge;
    uint32_t sq_mask;
    uint64_t sq_tail, sq_exec, sq_retire;
    uint64_t sq_reported; /* last request reported during its execution, + 1 */
    bool sq_reported_ok;  /* its completion fitted into the CQ */
    _Atomic uint64_t sq_freed;
    uint32_t reads_out;
    uint64_t sq_sent;    /* link model: requests below are in flight, or further */
    uint32_t reads_sent; /* of these, reads whose request has not arrived */
    int rnr_left;
    uint64_t rnr_due;       /* ns; no retry after an RNR before this time */
    uint64_t retry_until;   /* ns; an unanswered request fails at this time; 0: not retrying */
    uint64_t retry_seen;    /* ns; last try */
    uint64_t retry_ran;     /* run time of the peer at that time */
    struct emu_timer timer; /* for the next of the above times */
    bool est_reported;      /* COMM_EST was raised; under sq_lock */
    bool drain_asked;       /* raise SQ_DRAINED at the end of draining */

    struct emu_rq rq;
    struct emu_srq *srq;
    struct emu_cq *scq, *rcq;
    uint64_t reported; /* token of the last polled receive; under rcq->lock */
    uint32_t async_events;
    struct emu_mw_link *windows; /* last bound by this QP; under dev.lock */

    void *gathered; /* inline data of the request being posted, except RC; under sq_lock */

    /* ibv_wr_*: requests between wr_start and wr_complete */
    bool is_ex;
    int wr_err;
    uint32_t wr_count, wr_max;
    struct emu_wr_build **wr_build;
};

/* ah.c */
/* Fills in the address of a datagram; returns 0 or EINVAL. */
int emu_ah_fill(struct emu_wr *w, const struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);
#define EMU_GRH 40u /* bytes of a receive before a datagram's data */
/* Composes the 40 bytes before a datagram's data; `payload` is the number of bytes that
 * follow. */
void emu_ah_header(struct emu_dev *d, const struct emu_av *av, uint32_t payload,
                   unsigned char header[EMU_GRH]);

/* Returns whether a GID is a multicast group. */
bool emu_gid_is_group(const union ibv_gid *gid);

/* mcast.c */
void emu_mcast_forked(struct emu_dev *d); /* in a forked child: drops the parent's groups */
#define EMU_MCAST_QPN 0xffffffu
/* Finds the slots of other processes with members of a group; returns their number, at most
 * `max`. */
unsigned emu_mcast_slots(struct emu_dev *d, const union ibv_gid *gid, uint32_t *slots,
                         unsigned max);

/* rq.c */
int emu_rq_init(struct emu_dev *d, struct emu_rq *rq, struct shm_rq *s, uint32_t max_wr,
                uint32_t max_sge);
void emu_rq_fini(struct emu_dev *d, struct emu_rq *rq);
/* Posts one receive; returns 0 or a positive errno. Caller holds rq->lock. */
int emu_rq_post(struct emu_dev *d, struct emu_rq *rq, const struct ibv_recv_wr *wr);
/* Reads the oldest receive of a ring in any process; false if there is none. */
bool emu_rq_peek(struct shm_head *seg, const struct shm_rq *rq, uint64_t *at, uint64_t *wr_id,
                 uint32_t *nsge, struct shm_sge *sge);
/* Takes the receive read at `at`; false if another poster was faster. */
bool emu_rq_take(struct shm_rq *rq, uint64_t at);
/* Returns the wr_id of a receive of the owner's ring that was taken and not completed. */
uint64_t emu_rq_wr_id(struct emu_dev *d, const struct emu_rq *rq, uint64_t at);
/* Completes all receives of a failed QP from the place `from` on, and those posted later, with
 * a flush error. Posters complete none of them. */
void emu_rq_flush(struct emu_dev *d, struct emu_qp *qp, uint64_t from);
/* Empties the queue of a QP without active posters, without completions. */
void emu_rq_reset(struct emu_rq *rq);
int emu_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* srq.c */
struct ibv_srq *emu_create_srq_ex(struct ibv_context *context,
                                  struct ibv_srq_init_attr_ex *attr);
int emu_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* qp.c */
struct ibv_qp *emu_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/* Returns whether completions of received messages may not have been polled yet. */
bool emu_qp_unseen(struct emu_dev *d, uint32_t qpn);

/* qp_end.c */
/* Moves a QP to the error state and flushes it; raises `event` unless -1. Does nothing if
 * already in the error state. Under sq_lock. */
void emu_qp_to_error(struct emu_dev *d, struct emu_qp *qp, int event);
/* Moves a QP to RESET: empties queues, drops completions, releases the peer. Takes sq_lock. */
void emu_qp_reset(struct emu_dev *d, struct emu_qp *qp);
/* Clears what a dead process has left in UD QPs. */
void emu_qp_peer_died(struct emu_dev *d, uint32_t slot);
/* Moves the QPs of a local device to the error state. */
void emu_qp_device_failed(struct emu_dev *d, const struct emu_hca *h);

/* sq.c */
/* Takes sq_lock for posting; lets a waiting service thread go first. */
void emu_sq_lock(struct emu_qp *qp);
/* Takes sq_lock with priority over posters, for work not requested by the program. */
void emu_sq_lock_first(struct emu_qp *qp);
static inline struct emu_sqe *emu_sqe(struct emu_qp *qp, uint64_t i)
{
    return &qp->sq[i & qp->sq_mask];
}
/* Reports request `i` if required. False when the CQ was full. */
bool emu_sq_complete(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr,
                     enum ibv_wc_status status);
/* Reports request `i`, being executed, as successful, before its peer sees the message. */
void emu_sq_report(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr);
void emu_sq_flush(struct emu_dev *d, struct emu_qp *qp); /* under sq_lock */
void emu_sq_release(struct emu_sqe *e);                  /* frees its copy of inline data */

/* post.c */
int emu_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* Posts one normalized request. Under sq_lock. Returns 0 or a positive errno. */
int emu_sq_post(struct emu_dev *d, struct emu_qp *qp, struct emu_wr *wr);
/* Checks whether a request can be posted; returns 0 or a positive errno. */
int emu_sq_check(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr);
/* Continues the queue; link model: with requests that arrive until `due`. Under sq_lock. */
void emu_sq_progress(struct emu_dev *d, struct emu_qp *qp, uint64_t due);
/* Returns whether the QP is in SQD with unfinished requests. Under sq_lock. */
bool emu_sq_draining(struct emu_qp *qp);
void emu_sq_timer(struct emu_timer *t);
/* Fills in window, region and range of a bind request; returns 0 or EINVAL. */
int emu_mw_request(struct emu_wr *w, const struct ibv_mw *mw, uint32_t rkey,
                   const struct ibv_mw_bind_info *info);

/* EMU_TURN_CHECK: time until a waiting poster examines the holder; EMU_TURN_WAIT: until it
 * stops waiting. */
#define EMU_TURN_CHECK (EMU_NSEC / 50)
#define EMU_TURN_WAIT  (EMU_NSEC * 2)

/*
 * atomic.c: executes an atomic operation on the peer's pinned memory `remote`; stores the
 * previous value in `old`. Returns 0 or a negative errno; -ESRCH: time-out of the wait for a
 * turn.
 */
int emu_atomic(struct emu_dev *d, struct emu_peer *p, const struct emu_wr *wr,
               struct iovec remote, uint64_t *old);

/* exec.c */
enum exec_result { EXEC_DONE, EXEC_RNR, EXEC_NO_ANSWER };
/* Executes request `i` at the peer. Under sq_lock. Sets `status` with EXEC_DONE. `oldest`: no
 * earlier request is unreported. */
enum exec_result emu_exec(struct emu_dev *d, struct emu_qp *qp, uint64_t i,
                          const struct emu_wr *wr, bool oldest, enum ibv_wc_status *status,
                          uint32_t *rnr_timer);
/* Enters the responder of a connection as emu_exec() does; returns 0, or a token to be passed
 * to emu_exec_leave(). */
uint64_t emu_exec_enter(struct emu_dev *d, struct emu_qp *qp, struct shm_qp **responder);
void emu_exec_leave(struct shm_qp *responder, uint64_t token);

/* chain.c */
/* Executes up to EMU_CHAIN_MAX consecutive writes. False: none is complete, although data may
 * have been moved; the caller uses emu_exec() for each. Under sq_lock. */
bool emu_exec_writes(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr, unsigned n);

/* wr_api.c */
void emu_wr_api_init(struct emu_qp *qp);
void emu_wr_api_fini(struct emu_qp *qp);

#endif
