/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How the decision is taken, in this order:
 *  1. each side copies through a bounce buffer ("packs") when it must, when its list is small
 * [001 5.1], or when a copy costs less than a registration for one use;
 *  2. read or write: what the option says; else a write where reads are slow; else the client
 * when the server is under heavy load [004 fig. 6]; else the side that needs far fewer work
 * requests; else the receiver reads when it is less loaded than the sender and the sender
 * writes when it is not [004 fig. 6];
 *  3. eager when it fits and is not slower than that.
 */
#include <inttypes.h>
#include <string.h>

#include "plan/plan.h"

#define PAGE         4096.0
#define MIN_UNIT     (64u << 10) /* smaller units cost more in requests than they hide */
#define READY_UNITS  64u /* memory that is registered moves in pieces of this many units */
#define FEWER_FACTOR 4u  /* "far fewer" work requests: this many times … */
#define FEWER_LEAST  8u  /* … and at least this many less */

const struct rme_costs rme_costs_preset = {
    .copy_byte = 0.12,
    .copy_piece = 20,
    .reg_call = 10000,
    .reg_page = 250,
    .message = 2000,
    .post = 100,
    .sge = 20,
    .read_extra = 1000,
    .wire_byte = 0.1,
};

const char *rme_proto_name(enum rme_proto proto)
{
    static const char *const names[RME_PROTO_COUNT] = {
        [RME_PROTO_EAGER] = "eager",
        [RME_PROTO_RNDV_WRITE] = "rendezvous write",
        [RME_PROTO_RNDV_READ] = "rendezvous read",
    };

    return (unsigned)proto < RME_PROTO_COUNT ? names[proto] : "unknown";
}

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

static uint64_t segments(const struct rme_plan_side *side, bool pack)
{
    return pack || side->segments == 0 ? 1 : side->segments;
}

static double copy_cost(const struct rme_costs *costs, const struct rme_plan_side *side,
                        double bytes)
{
    return bytes * costs->copy_byte + (double)segments(side, false) * costs->copy_piece;
}

static double reg_cost(const struct rme_costs *costs, const struct rme_plan_side *side,
                       double bytes)
{
    return side->ready ? 0
                       : costs->reg_call +
                             costs->reg_page * (bytes / PAGE + (double)segments(side, false));
}

static double prepare_cost(const struct rme_costs *costs, const struct rme_plan_side *side,
                           bool pack, double bytes)
{
    return pack ? copy_cost(costs, side, bytes) : reg_cost(costs, side, bytes);
}

/* Work requests when one side's `local` segments meet `remote` ones, up to max_sge local
 * segments in each request. */
static uint64_t count_requests(uint64_t local, uint64_t remote, uint32_t max_sge)
{
    uint64_t pieces = local + remote - 1;
    uint64_t requests = max_sge > 1 ? (pieces + max_sge - 1) / max_sge : pieces;

    return requests > remote ? requests : remote;
}

static uint64_t requests_of(const struct rme_plan_in *in, enum rme_proto proto, bool send_pack,
                            bool recv_pack)
{
    uint64_t send = segments(&in->send, send_pack), recv = segments(&in->recv, recv_pack);

    if (proto == RME_PROTO_EAGER)
        return 0;
    return proto == RME_PROTO_RNDV_WRITE ? count_requests(send, recv, in->max_sge)
                                         : count_requests(recv, send, in->max_read_sge);
}

static uint64_t unit_of(const struct rme_plan_in *in, bool send_pack, bool recv_pack)
{
    bool ready = (in->send.ready && !send_pack) && (in->recv.ready && !recv_pack);
    uint64_t unit = in->unit > MIN_UNIT ? in->unit : MIN_UNIT;
    uint64_t half = (in->bytes + 1) / 2;

    if (ready)
        return in->bytes < unit * READY_UNITS ? in->bytes : unit * READY_UNITS;
    if (half < MIN_UNIT)
        return in->bytes;
    return half < unit ? half : unit;
}

/*
 * Time until both sides are done.  Preparing a unit overlaps the transfer of the one before, so
 * the first preparation, the last transfer, and the slower of the two for each unit in between
 * remain [000 4.5.3].
 */
double rme_plan_cost(const struct rme_plan_in *in, enum rme_proto proto, bool send_pack,
                     bool recv_pack, uint64_t *requests)
{
    const struct rme_costs *costs = in->costs;
    double bytes = (double)in->bytes, unit, units, prepare, wire;
    uint64_t wrs = requests_of(in, proto, send_pack, recv_pack);

    if (requests != NULL)
        *requests = wrs;
    if (proto == RME_PROTO_EAGER)
        return costs->message + bytes * costs->wire_byte + copy_cost(costs, &in->send, bytes) +
               copy_cost(costs, &in->recv, bytes);

    unit = (double)unit_of(in, send_pack, recv_pack);
    units = unit > 0 ? max_of(1, bytes / unit) : 1;
    prepare = prepare_cost(costs, &in->send, send_pack, unit) +
              prepare_cost(costs, &in->recv, recv_pack, unit);
    wire = unit * costs->wire_byte +
           ((double)wrs * costs->post +
            (double)(segments(&in->send, send_pack) + segments(&in->recv, recv_pack)) *
                costs->sge) /
               units;
    return 3 * costs->message + (proto == RME_PROTO_RNDV_READ ? costs->read_extra : 0) +
           prepare + (units - 1) * max_of(prepare, wire) + wire;
}

/* ---- decisions ---- */

static bool should_pack(const struct rme_plan_in *in, const struct rme_plan_side *side,
                        uint32_t max_sge)
{
    double bytes = (double)in->bytes;

    if (side->cannot)
        return true;
    if (in->bytes == 0 || (side->ready && side->segments <= max_sge))
        return false;
    if (side->segments > 1 && in->pack_threshold > 0)
        return in->bytes < in->pack_threshold;
    return copy_cost(in->costs, side, bytes) <
           reg_cost(in->costs, side, bytes) + (double)segments(side, false) * in->costs->sge;
}

static bool is_heavy(const struct rme_plan_in *in, const struct rme_plan_side *side)
{
    return side->server && side->load_ops > in->heavy_ops;
}

static bool less_loaded(const struct rme_plan_side *a, const struct rme_plan_side *b)
{
    return a->load_ops != b->load_ops ? a->load_ops < b->load_ops
                                      : a->load_bytes < b->load_bytes;
}

static bool far_fewer(uint64_t a, uint64_t b)
{
    return a * FEWER_FACTOR <= b && b - a >= FEWER_LEAST;
}

/* What the device and the option decide, whatever the message.  False: nothing. */
static bool decided_beforehand(const struct rme_plan_in *in, enum rme_proto *proto,
                               const char **why)
{
    *proto = RME_PROTO_RNDV_WRITE;
    if (!in->has_read) {
        *why = "the device cannot read";
        return true;
    }
    if (in->prefer != RME_PREFER_AUTO) {
        *why = "option rndv";
        if (in->prefer == RME_PREFER_READ)
            *proto = RME_PROTO_RNDV_READ;
        return true;
    }
    *why = "the device reads much slower than it writes";
    return in->slow_read;
}

static enum rme_proto read_or_write(const struct rme_plan_in *in, bool send_pack,
                                    bool recv_pack, const char **why)
{
    uint64_t writes = requests_of(in, RME_PROTO_RNDV_WRITE, send_pack, recv_pack);
    uint64_t reads = requests_of(in, RME_PROTO_RNDV_READ, send_pack, recv_pack);
    enum rme_proto proto;

    if (decided_beforehand(in, &proto, why))
        return proto;
    if (is_heavy(in, &in->recv) && !in->send.server) {
        *why = "the server receives and is under heavy load: its client writes";
        return RME_PROTO_RNDV_WRITE;
    }
    if (is_heavy(in, &in->send) && !in->recv.server) {
        *why = "the server sends and is under heavy load: its client reads";
        return RME_PROTO_RNDV_READ;
    }
    if (far_fewer(writes, reads)) {
        *why = "writing takes far fewer work requests";
        return RME_PROTO_RNDV_WRITE;
    }
    if (far_fewer(reads, writes)) {
        *why = "reading takes far fewer work requests";
        return RME_PROTO_RNDV_READ;
    }
    if (less_loaded(&in->recv, &in->send)) {
        *why = "the receiver is less loaded: it reads";
        return RME_PROTO_RNDV_READ;
    }
    *why = "the receiver is not less loaded: the sender writes";
    return RME_PROTO_RNDV_WRITE;
}

bool rme_plan_may_read(const struct rme_plan_in *in)
{
    enum rme_proto proto;
    const char *why;

    return !decided_beforehand(in, &proto, &why) || proto == RME_PROTO_RNDV_READ;
}

void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan)
{
    double eager;

    memset(plan, 0, sizeof(*plan));
    plan->send_pack = should_pack(in, &in->send, in->max_sge);
    plan->recv_pack = should_pack(in, &in->recv, in->max_read_sge);
    plan->proto = read_or_write(in, plan->send_pack, plan->recv_pack, &plan->why);
    plan->unit = unit_of(in, plan->send_pack, plan->recv_pack);
    plan->ns =
        rme_plan_cost(in, plan->proto, plan->send_pack, plan->recv_pack, &plan->requests);
    if (in->bytes > in->eager_max)
        return;
    eager = rme_plan_cost(in, RME_PROTO_EAGER, false, false, NULL);
    if (in->bytes > 0 && eager > plan->ns)
        return;
    *plan = (struct rme_plan){
        .proto = RME_PROTO_EAGER,
        .unit = in->bytes,
        .ns = eager,
        .why = in->bytes == 0 ? "nothing to move" : "it fits one buffer and is not slower",
    };
}

/* ---- showing it ---- */

static void explain_side(FILE *out, const char *name, const struct rme_plan_side *side)
{
    fprintf(out,
            "%-9s %" PRIu64 " segments%s, %s%s, load %" PRIu64 " operations %" PRIu64
            " bytes\n",
            name, side->segments, side->segments == 0 ? " (unknown)" : "",
            side->cannot  ? "cannot be registered"
            : side->ready ? "registered"
                          : "not registered",
            side->server ? ", server" : "", side->load_ops, side->load_bytes);
}

void rme_plan_explain(FILE *out, const struct rme_plan_in *in)
{
    const struct rme_costs *costs = in->costs;
    struct rme_plan plan;

    rme_plan(in, &plan);
    fprintf(out, "message   %" PRIu64 " bytes\n", in->bytes);
    explain_side(out, "sender", &in->send);
    explain_side(out, "receiver", &in->recv);
    fprintf(out,
            "costs     copy %.3f ns/byte + %.0f ns/piece, register %.0f ns + %.0f ns/page, "
            "message %.0f ns, request %.0f ns "
            "+ %.0f ns/segment, read +%.0f ns, wire %.3f ns/byte\n",
            costs->copy_byte, costs->copy_piece, costs->reg_call, costs->reg_page,
            costs->message, costs->post, costs->sge, costs->read_extra, costs->wire_byte);
    fprintf(out, "%-18s %-7s %-9s %9s %12s\n", "protocol", "sender", "receiver", "requests",
            "microseconds");
    for (int proto = 0; proto < RME_PROTO_COUNT; proto++) {
        for (int packs = 0; packs < (proto == RME_PROTO_EAGER ? 1 : 4); packs++) {
            bool send_pack = packs & 1, recv_pack = packs & 2;
            uint64_t requests;
            double ns =
                rme_plan_cost(in, (enum rme_proto)proto, send_pack, recv_pack, &requests);
            bool chosen = (int)plan.proto == proto && plan.send_pack == send_pack &&
                          plan.recv_pack == recv_pack;

            if (proto == RME_PROTO_EAGER && in->bytes > in->eager_max)
                continue;
            fprintf(out, "%-18s %-7s %-9s %9" PRIu64 " %12.2f%s\n",
                    rme_proto_name((enum rme_proto)proto),
                    proto == RME_PROTO_EAGER || send_pack ? "copy" : "direct",
                    proto == RME_PROTO_EAGER || recv_pack ? "copy" : "direct", requests,
                    ns / 1000, chosen ? "  <- chosen" : "");
        }
    }
    fprintf(out, "because   %s; units of %" PRIu64 " bytes\n", plan.why, plan.unit);
}
