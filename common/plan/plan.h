/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The planner: how one message travels.  A pure function of sizes, shapes, loads and a device's
 * cost table; the flow chart of [004 5.1] decides who does the RDMA, the costs decide the rest.
 * Times are nanoseconds.
 *
 * It is asked twice: by the sender when a message is posted (the receiver's side unknown), for
 * eager or rendezvous and for its own memory; and by the receiver when it has matched a
 * rendezvous, for read or write and for its own memory.
 */
#ifndef RME_PLAN_H
#define RME_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct rme_caps;
struct rme_fabric;
struct rme_fabric_ops;

/* What things cost on this device and machine. */
struct rme_costs {
    double copy_byte;  /* the processor copies a byte */
    double copy_piece; /* overhead of a piece copied */
    double reg_call;   /* registration + deregistration: overhead (b of T = a*p + b) */
    double reg_page;   /* and per page (a) */
    double message;    /* a small message from post to arrival */
    double post;       /* one RDMA work request */
    double sge;        /* one more local segment in it */
    double read_extra; /* a read's round trip beyond a write */
    double wire_byte;  /* the device moves a byte */
};

enum rme_proto { RME_PROTO_EAGER, RME_PROTO_RNDV_WRITE, RME_PROTO_RNDV_READ, RME_PROTO_COUNT };
enum rme_prefer { RME_PREFER_AUTO, RME_PREFER_WRITE, RME_PREFER_READ }; /* the option `rndv` */

/* Large messages that one process has to move, from the decision until they are over. */
struct rme_load {
    uint32_t ops;
    uint64_t bytes;
};

/* One side of a transfer. */
struct rme_plan_side {
    uint64_t segments; /* 0: unknown */
    bool ready;        /* its memory is registered already (zone, cache) */
    bool cannot;       /* its memory cannot be registered: it must copy */
    bool server;
    uint64_t load_ops;   /* RDMA operations outstanding */
    uint64_t load_bytes; /* bytes outstanding */
};

struct rme_plan_in {
    uint64_t bytes;
    struct rme_plan_side send, recv;
    uint64_t eager_max;      /* payload of one eager message */
    uint64_t unit;           /* option: bytes of a pipeline unit */
    uint64_t pack_threshold; /* option: lists below it are packed, larger ones gathered; 0: by
                                costs */
    uint64_t
        heavy_ops; /* option: a server with more operations outstanding is under heavy load */
    enum rme_prefer prefer;
    uint32_t max_sge, max_read_sge;
    bool has_read;
    bool slow_read; /* reads move bytes much slower than writes on this device */
    const struct rme_costs *costs;
};

struct rme_plan {
    enum rme_proto proto;
    bool send_pack, recv_pack; /* copy through a registered bounce buffer on that side */
    uint64_t unit;             /* bytes of a unit; the whole message when it is not pipelined */
    uint64_t requests; /* RDMA work requests it will take (estimate when a side is unknown) */
    double ns;         /* predicted time */
    const char *why;   /* the rule that decided, a constant string */
};

/* Decides.  Pure: no state, no lock, no failure. */
void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan);

/* Predicted time of one protocol with given packing; `requests` may be NULL.  For explain and
 * tests. */
double rme_plan_cost(const struct rme_plan_in *in, enum rme_proto proto, bool send_pack,
                     bool recv_pack, uint64_t *requests);

/* Whether the receiver could come to read what this side offers, whatever its load and shape. */
bool rme_plan_may_read(const struct rme_plan_in *in);

const char *rme_proto_name(enum rme_proto proto);

/* Preset costs, before anything is measured. */
extern const struct rme_costs rme_costs_preset;

/*
 * Measures copy rate and registration on an open fabric, at most 20 ms; constants for the rest.
 * No lock held.  What cannot be measured keeps its preset.
 */
void rme_costs_measure(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                       struct rme_costs *out);

/* Prints cost table, predicted times of every protocol and the choice, for in->bytes; a line
 * each. */
void rme_plan_explain(FILE *out, const struct rme_plan_in *in);

#endif
