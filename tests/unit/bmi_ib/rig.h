/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rig.h - a fabric put together by hand over fake verbs, for the parts of bmi_ib that need no
 * device: accounting, building of requests, handling of connection events.
 *
 * Posted requests are written down in order; nothing completes by itself.  The fake functions
 * of librdmacm and libibverbs are linked before the real libraries.
 */
#ifndef RIG_H
#define RIG_H

#include "../common/unit.h"
#include "bmi_ib/link/links.h"
#include "bmi_ib/queue/wr_id.h"
#include "bmi_ib/wait.h"

#define RIG_POSTED 65536

struct rig_posted {
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    unsigned flags;
    int nsge;
    uint64_t raddr;
    uint32_t imm;
    uint64_t bytes;
};

struct rig {
    struct rme_fabric *f;
    struct rme_stats stats;
    struct rme_options *options;
    struct rig_posted *posted; /* sends, in order */
    unsigned nposted;
    unsigned nrecv;   /* receives posted */
    unsigned mrs;     /* registrations that exist */
    unsigned windows; /* that exist */
    unsigned doorbells;
    int fail_post;    /* errno of the next post call, 0: none */
    unsigned fail_at; /* the request of that call which is refused */
    bool completes;   /* whatever is posted is done at once */
    /* what rdma_cm was asked */
    unsigned created, destroyed, resolved_addr, resolved_route, connected, accepted, rejected,
        disconnected;
    unsigned qps, qps_gone, errors_set, timers_set;
    unsigned srqs, srqs_made;
    bool fail_modify, fail_resolve, fail_connect, fail_accept, fail_qp;
    bool fail_srq;
    const struct ibv_srq *srq_in_use;
    struct rdma_cm_event *pending; /* what rdma_get_cm_event returns next */
    unsigned behind;               /* so many more lie behind that one */
    unsigned acked;
    unsigned arms; /* completion queues that were asked for an event */
    bool fail_arm;
    unsigned comp_events; /* that wait in the channel */
    bool port_down;
    struct ibv_async_event *async; /* what ibv_get_async_event returns next */
    char line[512], lines[4096];   /* the last line of the log, and the first ones */
    struct ibv_qp_attr path;       /* what a queue pair says of its path */
    bool fail_query;
    struct ibv_gid_entry gid[32]; /* the device's table, of so many */
    unsigned ngid;
    struct sockaddr_storage source; /* of the last address that was resolved */
    int tos;                        /* that was set last, -1: none */
    int cqe;                        /* entries of the last completion queue that was made */
    struct ibv_context *listed;     /* what rdma_get_devices returns; NULL: that of the rig */
};

extern struct rig rig;

/* options: "key=value,…" for the fabric's own table; may be NULL. */
void rig_open(const char *options, uint32_t max_sge, uint32_t max_inline);
void rig_close(void);

/* A link with a queue pair, up, without addresses. */
struct rme_link *rig_link(void);
/* One of the given state, with what belongs to it. */
struct rme_link *rig_link_in(enum ib_link_state state);
/* Completes the first `n` posted requests of `l` that are not complete, as far as they are
 * signalled. */
void rig_complete(struct rme_link *l, unsigned upto);
/* Runs one poll: returns the number of events. */
int rig_poll(struct rme_event *events, int max);
/* Polls until nothing comes: returns how many events of a type there were; the last one is kept
 * in *last, unless that is NULL. */
int rig_count(enum rme_event_type type, struct rme_event *last);
/* Lets the device give the markers back. */
void rig_drain(struct rme_link *l);
/* Hands the fabric a connection event and polls. */
void rig_cm(struct rme_link *l, enum rdma_cm_event_type type, int status, const void *data,
            size_t length);
/* Polls a completion into the fabric. */
void rig_wc(struct ibv_wc wc);

#endif
