/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rig.h - a fabric over fake verbs, for the parts of bmi_ib that need no device: accounting and
 * connection events.
 *
 * No request completes by itself. The fake functions of librdmacm and libibverbs are linked
 * before the real libraries.
 */
#ifndef RIG_H
#define RIG_H

#include "../common/unit.h"
#include "bmi_ib/link/links.h"

struct rig {
    enum ibv_fork_status fork;
    struct rme_fabric *f;
    struct ib_rail *rail; /* its only one */
    struct rme_stats stats;
    struct rme_options *options;
    unsigned nrecv; /* receives posted */
    unsigned mrs;   /* current registrations */
    unsigned mws;   /* current windows */
    /* calls of rdma_cm */
    unsigned created, destroyed, resolved_addr, resolved_route, connected, rejected;
    unsigned qps, qps_gone;
    bool fail_modify, fail_resolve;
    struct rdma_cm_event *pending; /* next result of rdma_get_cm_event */
    unsigned acked;
    unsigned arms; /* calls that armed a CQ */
    bool fail_arm;
    unsigned comp_events;          /* events that wait in the channel */
    struct ibv_async_event *async; /* next result of ibv_get_async_event */
    char line[512], lines[4096];   /* the last line of the log, and the first ones */
    struct ibv_qp_attr path;       /* path attributes of QPs */
    bool fail_query;
    struct ibv_gid_entry gid[32]; /* the device's GID table */
    unsigned ngid;
    struct sockaddr_storage source; /* source of the last resolved address */
    int tos;                        /* the last one set, -1: none */
    int ack;                        /* the last ACK timeout that was set */
    int vector;                     /* of the last CQ created */
    int access;                     /* of the last registration */
    int cqe;                        /* entries of the last CQ created or resized */
    bool fixed_cq;                  /* CQs cannot be resized */
    struct ibv_context *listed;     /* result of rdma_get_devices; NULL: the rig's */
};

extern struct rig rig;

/* Opens the fabric. options: "key=value,…" for its own table; may be NULL. */
void rig_open(const char *options, uint32_t max_sge, uint32_t max_inline);
void rig_close(void);

/* Makes a link with a QP, up, without addresses. */
struct rme_link *rig_link(void);
/* Makes a link in the given state, with the objects of that state. */
struct rme_link *rig_link_in(enum ib_link_state state);
/* Polls once; returns the number of events. */
int rig_poll(struct rme_event *events, int max);
/* Polls until there are no events; returns the number of events of the type, the last one in
 * *last unless NULL. */
int rig_count(enum rme_event_type type, struct rme_event *last);
/* Completes the link's drain markers. */
void rig_drain(struct rme_link *l);
/* Delivers a connection event to the fabric and polls. */
void rig_cm(struct rme_link *l, enum rdma_cm_event_type type, int status, const void *data,
            size_t length);
/* Delivers a completion to the fabric and polls. */
void rig_wc(struct ibv_wc wc);

#endif
