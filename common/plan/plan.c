/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Order of the decisions: 1.  Eager, if the message fits a buffer and the window, up to the
 * size where two copies cost more than the two additional messages of a rendezvous between
 * registered memories.  2.  A write into the eager ring, if there is room, up to a size
 * (rme_eager_rdma_most()).  3.  Each side copies through a bounce buffer ("packs") if the copy
 * costs less than the use of the memory in place.  In place, a list [001 5.1] costs look-up and
 * segments, on the receiver's side also the requests for its writes and memory windows, and a
 * part of a registration that later uses find cached.  Option `lists` may decide instead.  A
 * single segment is compared with a registration for one use, except where the memory is
 * registered, or where its registration stays cached and the message is large: the first use
 * pays for the later ones.  A comparison of the first use alone would always copy.  4.  Read or
 * write, by the first of the rules in read_or_write() that holds.  5.  The sender offers its
 * memory if the receiver could decide to read, except a list whose write costs far less in
 * requests.  A receiver whose receive is posted first invites if its memory is registered and
 * the planner would have the sender write.
 */
#include <inttypes.h>
#include <string.h>

#include "plan/plan.h"

#define PAGE 4096.0
/* bytes of copies above which their memory does not stay in caches */
#define COLD_FROM RME_PACK_FRAG
/* a copy of this size is cheaper than a message on all devices, by every measurement; default
 * of rx_size */
#define EAGER_LEAST 4608u
/* work requests cost "far less" if the others cost this factor more */
#define LESS_FACTOR 3
#define LESS_LEAST  8   /* and at least the cost of this number of requests more */
#define LIST_USES   8.0 /* expected uses of a list's cached registration */
/* ns of the look-up of a list in the registration cache; and for each of its segments, with 20
 * ns by which a segment of a request costs more than a segment of a copy */
#define FIND_NS       600
#define FIND_PIECE_NS 40

const struct rme_costs rme_costs_preset = {
    .copy_warm = 0.08,
    .copy_cold = 0.2,
    .reg_call = 10000,
    .reg_page = 250,
    .message = 2000,
    .request = 100,
};

const char *rme_proto_name(enum rme_proto proto)
{
    static const char *const names[RME_PROTO_COUNT] = {
        [RME_PROTO_EAGER] = "eager",
        [RME_PROTO_EAGER_RDMA] = "fast write",
        [RME_PROTO_RNDV_WRITE] = "rendezvous write",
        [RME_PROTO_RNDV_READ] = "rendezvous read",
    };

    return (unsigned)proto < RME_PROTO_COUNT ? names[proto] : "unknown";
}

/* ---- Thresholds ---- */

/* Solves for bytes: bytes * copied = call + (page + look-up) * segments + page * bytes / PAGE +
 * request * requests.  Without a solution a copy always costs less. */
static struct rme_pack_limit pack_limit(double copied, double call, double page, double find,
                                        double request)
{
    double each = copied - page / PAGE;

    if (each < 1e-9)
        each = 1e-9;
    return (struct rme_pack_limit){call / each, (page + find) / each, request / each};
}

void rme_plan_thresholds(const struct rme_costs *costs, struct rme_thresholds *out)
{
    *out = (struct rme_thresholds){
        .costs = *costs,
        .eager = costs->copy_warm > 0 ? costs->message / costs->copy_warm : UINT32_MAX,
        .read = (costs->request + costs->read) / costs->request,
    };
    for (int cold = 0; cold < 2; cold++) {
        double copied = cold ? costs->copy_cold : costs->copy_warm;

        out->pack[0][cold] =
            pack_limit(copied, costs->reg_call, costs->reg_page, 0, costs->request);
        out->pack[1][cold] =
            pack_limit(copied, costs->reg_call / LIST_USES + FIND_NS,
                       costs->reg_page / LIST_USES, FIND_PIECE_NS, costs->request);
    }
}

uint64_t rme_plan_eager_max(const struct rme_thresholds *limits, uint64_t fit, uint64_t most)
{
    double cross = limits->eager < EAGER_LEAST ? EAGER_LEAST : limits->eager;

    if (cross < (double)fit)
        fit = (uint64_t)cross;
    return fit < most ? fit : most;
}

/* ---- Decisions ---- */

static uint64_t segments(const struct rme_plan_side *side, bool pack)
{
    return pack || side->segments == 0 ? 1 : side->segments;
}

/* Is the memory registered, or will its registration stay cached for later messages? */
static bool stays_registered(const struct rme_plan_in *in, const struct rme_plan_side *side)
{
    return side->ready ||
           (side->kept && (side->segments > 1 ||
                           (in->pack_threshold != 0 && in->bytes >= in->pack_threshold)));
}

/* Number of work requests that connect `local` segments of one side with `remote` ones, with up
 * to max_sge local segments in each request. */
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

    return proto == RME_PROTO_RNDV_WRITE ? count_requests(send, recv, in->max_sge)
                                         : count_requests(recv, send, in->max_read_sge);
}

/* Does this side copy?  `requests`: work requests, in those of writes, that the use in place
 * costs more. */
static bool packs(const struct rme_plan_in *in, const struct rme_plan_side *side,
                  double requests, const char **why)
{
    bool list = side->segments > 1, kept = stays_registered(in, side), copies;
    const struct rme_pack_limit *limit =
        &in->limits->pack[kept][in->bytes + side->packed > COLD_FROM];

    if (list && !side->ready && in->lists != RME_LISTS_AUTO) {
        *why = "option lists";
        return in->lists == RME_LISTS_PACK;
    }
    if (side->ready || (kept && !list)) {
        *why = side->ready ? "the memory is registered already"
                           : "the registration stays cached for later messages";
        return false;
    }
    copies = (double)in->bytes < limit->base + limit->segment * (double)segments(side, false) +
                                     limit->request * requests;
    *why = copies ? "a copy costs less" : "a copy costs more";
    return copies;
}

/* Further requests for the sender's segments when the data is used in place. */
static double sender_requests(const struct rme_plan_in *in)
{
    return (double)count_requests(segments(&in->send, false), 1, in->max_sge) - 1;
}

/* Likewise for the receiver's segments, by the plan's protocol; those of writes are bound and
 * invalidated, too. */
static double receiver_requests(const struct rme_plan_in *in, const struct rme_plan *plan)
{
    double more = (double)requests_of(in, plan->proto, plan->send_pack, false) -
                  (double)requests_of(in, plan->proto, plan->send_pack, true);

    if (plan->proto == RME_PROTO_RNDV_READ)
        return more * in->limits->read;
    return more + (in->opens ? 2 * (double)(segments(&in->recv, false) - 1) : 0);
}

static bool is_heavy(const struct rme_plan_side *side)
{
    return side->server && side->load_ops > RME_HEAVY_OPS;
}

static bool less_loaded(const struct rme_plan_side *a, const struct rme_plan_side *b)
{
    return a->load_ops != b->load_ops ? a->load_ops < b->load_ops
                                      : a->load_bytes < b->load_bytes;
}

/* Does the device have far less work with `one` than with `other` requests? */
static bool far_less(double one, double other)
{
    return one * LESS_FACTOR <= other && other - one >= LESS_LEAST;
}

/* The side that posts RDMA; returns false if loads have no influence. */
static bool read_or_write(const struct rme_plan_in *in, bool send_pack, bool recv_pack,
                          struct rme_plan *plan)
{
    double writes = (double)requests_of(in, RME_PROTO_RNDV_WRITE, send_pack, recv_pack);
    double reads =
        in->limits->read * (double)requests_of(in, RME_PROTO_RNDV_READ, send_pack, recv_pack);
    enum { FIXED = 3 }; /* the first rules */
    const struct {
        bool holds, reads;
        const char *why;
    } rules[] = {
        {!in->has_read, false, "the receiver cannot read"},
        {in->prefer != RME_PREFER_AUTO, in->prefer == RME_PREFER_READ, "option rndv"},
        {in->slow_read, false, "the device reads much slower than it writes"},
        {in->nothing_to_read, false, "the sender advertised nothing to read"},
        {is_heavy(&in->recv) && !in->send.server, false,
         "the receiver is a loaded server: the client writes"},
        {is_heavy(&in->send) && !in->recv.server, true,
         "the sender is a loaded server: the client reads"},
        {far_less(writes, reads), false, "the work requests of writing cost far less"},
        {far_less(reads, writes), true, "the work requests of reading cost far less"},
        {recv_pack && !less_loaded(&in->send, &in->recv), true,
         "the receiver copies and is not more loaded than the sender: the receiver reads"},
        {less_loaded(&in->recv, &in->send), true,
         "the receiver is less loaded: the receiver reads"},
        {true, false, "the receiver is not less loaded: the sender writes"},
    };
    int rule = 0;

    while (!rules[rule].holds)
        rule++;
    plan->proto = rules[rule].reads ? RME_PROTO_RNDV_READ : RME_PROTO_RNDV_WRITE;
    plan->why = rules[rule].why;
    return rule >= FIXED;
}

/* Would the receiver ask for a write in spite of the offer, unless loads decide? */
static bool offered_in_vain(const struct rme_plan_in *in, bool send_pack)
{
    return segments(&in->send, send_pack) > 1 && !is_heavy(&in->send) &&
           far_less((double)requests_of(in, RME_PROTO_RNDV_WRITE, send_pack, false),
                    in->limits->read *
                        (double)requests_of(in, RME_PROTO_RNDV_READ, send_pack, false));
}

/* Is the message copied through buffers of the engine on both sides? */
static bool is_copied(const struct rme_plan_in *in, struct rme_plan *plan)
{
    bool eager = in->bytes <= in->eager_max;

    if (!eager && in->bytes > in->eager_rdma_max)
        return false;
    plan->proto = eager ? RME_PROTO_EAGER : RME_PROTO_EAGER_RDMA;
    plan->send_pack = plan->recv_pack = true;
    plan->requests = !eager;
    plan->why = eager ? "the message fits one buffer, and rendezvous is not faster"
                      : "the message fits the eager ring, and rendezvous is not faster";
    plan->why_send = plan->why_recv = eager ? "an eager message uses a buffer of the engine"
                                            : "the eager ring is memory of the engine";
    return true;
}

void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan)
{
    bool loads;

    memset(plan, 0, sizeof(*plan));
    if (is_copied(in, plan))
        return;
    plan->send_pack = packs(in, &in->send, sender_requests(in), &plan->why_send);
    read_or_write(in, plan->send_pack, false, plan);
    plan->recv_pack = packs(in, &in->recv, receiver_requests(in, plan), &plan->why_recv);
    loads = read_or_write(in, plan->send_pack, plan->recv_pack, plan);
    plan->offer = in->bytes > 0 && (loads ? !offered_in_vain(in, plan->send_pack)
                                          : plan->proto == RME_PROTO_RNDV_READ);
    plan->requests = requests_of(in, plan->proto, plan->send_pack, plan->recv_pack);
    plan->invite = in->invites && plan->proto == RME_PROTO_RNDV_WRITE && !plan->recv_pack &&
                   in->bytes >= RME_INVITE_LEAST && stays_registered(in, &in->recv);
}

/* ---- Explanation ---- */

static void explain_limits(FILE *out, const struct rme_thresholds *limits)
{
    const struct rme_costs *costs = &limits->costs;

    fprintf(out,
            "costs     copy %.3f ns/byte warm, %.3f cold; register %.0f ns + %.0f ns/page; "
            "message %.0f ns; request %.0f ns, to read %.0f ns\n",
            costs->copy_warm, costs->copy_cold, costs->reg_call, costs->reg_page,
            costs->message, costs->request, costs->request + costs->read);
    for (int kept = 0; kept < 2; kept++)
        for (int cold = 0; cold < 2; cold++) {
            const struct rme_pack_limit *limit = &limits->pack[kept][cold];

            fprintf(out, "%s, %s: copied ",
                    kept ? "cached registration of a list" : "registration for one use",
                    cold ? "copies above 256 KiB" : "copies in caches");
            if (limit->base > 1e12)
                fprintf(out, "at any size\n");
            else
                fprintf(out, "below %.0f bytes + %.0f/segment + %.0f/further request\n",
                        limit->base, limit->segment, limit->request);
        }
}

/* Bytes of a fragment.  Cached registrations were made in fragments, too, and are used in
 * fragments. */
static uint64_t frag_size_of(const struct rme_plan_in *in, const struct rme_plan_side *side,
                             bool pack)
{
    uint64_t frag_size = rme_plan_frag_size(in->frag_size, pack);

    return (!pack && side->ready) || frag_size > in->bytes ? in->bytes : frag_size;
}

static void explain_side(FILE *out, const char *name, const struct rme_plan_in *in,
                         const struct rme_plan_side *side, bool pack, const char *why)
{
    fprintf(out, "%-9s %s in units of %" PRIu64 " bytes, as %s\n", name,
            pack ? "copied" : "used in place", frag_size_of(in, side, pack), why);
}

void rme_plan_explain(FILE *out, const struct rme_plan_in *send, const struct rme_plan_in *recv)
{
    struct rme_plan_in asked = *recv, inviting = *recv;
    struct rme_plan first, plan, invitation;

    rme_plan(send, &first);
    asked.send.ready =
        first.offer && frag_size_of(send, &send->send, first.send_pack) == send->bytes;
    asked.send.segments =
        asked.send.ready ? segments(&send->send, first.send_pack) : send->send.segments;
    asked.send.kept = false;
    asked.nothing_to_read = !first.offer;
    asked.eager_rdma_max = 0; /* the sender decides on that */
    rme_plan(&asked, &plan);
    if (first.proto == RME_PROTO_EAGER_RDMA) /* the receiver has no decision */
        plan = first;
    inviting.eager_rdma_max = send->eager_rdma_max;
    inviting.send =
        rme_plan_unseen_sender(recv->send.server, recv->send.load_ops, recv->send.load_bytes);
    rme_plan(&inviting, &invitation);

    fprintf(out, "message   %" PRIu64 " bytes, eager up to %" PRIu64 "\n", send->bytes,
            send->eager_max);
    explain_limits(out, send->limits);
    fprintf(out, "%-18s %-7s %-9s %9s\n%-18s %-7s %-9s %9" PRIu64 "  <- chosen\n", "protocol",
            "sender", "receiver", "requests", rme_proto_name(plan.proto),
            first.send_pack ? "copy" : "direct", plan.recv_pack ? "copy" : "direct",
            plan.requests);
    explain_side(out, "sender", send, &send->send, first.send_pack, first.why_send);
    explain_side(out, "receiver", recv, &recv->recv, plan.recv_pack, plan.why_recv);
    fprintf(out, "because   %s\n", plan.why);
    if (plan.proto >= RME_PROTO_RNDV_WRITE)
        fprintf(out, "RTS %s%s; a receive that is posted first, on an idle link, %s\n",
                first.offer ? "advertises the sender's memory" : "advertises nothing, as ",
                first.offer ? "" : first.why,
                invitation.invite ? "advertises its memory at once" : "waits for the RTS");
}
