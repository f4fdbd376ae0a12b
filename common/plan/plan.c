/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Order of the decisions: 1.  Eager, if the message fits a buffer and the window, up to the
 * size where two copies cost more than the two additional messages of a rendezvous between
 * registered memories. 2.  A write into the eager ring, if there is room, up to a size
 * (rme_eager_rdma_most()). 3.  Each side copies through a
 * bounce buffer ("packs") if the copy costs less than the use of the memory in place.  In
 * place, a list [001 5.1] costs look-up and segments, on the receiver's side also the requests
 * for its writes and memory windows, and a part of a registration that later uses find cached.
 * Option `lists` may decide instead.  A single segment is compared with a registration for one
 * use, except where the memory is registered, or where its registration stays cached and the
 * message is large: the first use pays for the later ones.  A comparison of the first use alone
 * would always copy. 4.  Read or write: write, if the receiver cannot read; otherwise the
 * option decides; otherwise write, if reads are slow or no memory is offered yet; otherwise the
 * client posts RDMA, if the server is under heavy load [004 fig. 6]; otherwise the side whose
 * work requests cost far less; otherwise the receiver reads, if less loaded than the sender; or
 * if equally loaded and copying, because its processor then finds the data in its caches;
 * otherwise the sender writes [004 fig. 6].
 * 5.  The sender offers its memory if the receiver could decide to read, except a list whose
 * write costs far less in requests.  A receiver whose receive is posted first invites if its
 * memory is registered and the planner would have the sender write.
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

const struct rme_costs rme_costs_preset = {
    .copy_warm = 0.08,
    .copy_cold = 0.2,
    .copy_piece = 20,
    .reg_call = 10000,
    .reg_page = 250,
    .message = 2000,
    .post = 100,
    .sge = 20,
    .find = 700,
    .find_piece = 50,
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

/* Does the protocol use buffers of the engine on both sides? */
static bool is_copied(int proto)
{
    return proto == RME_PROTO_EAGER || proto == RME_PROTO_EAGER_RDMA;
}

static uint64_t segments(const struct rme_plan_side *side, bool pack)
{
    return pack || side->segments == 0 ? 1 : side->segments;
}

/* Do costs decide between copying a list and its use in place? */
static bool is_priced(const struct rme_plan_in *in, const struct rme_plan_side *side)
{
    return side->segments > 1 && in->lists == RME_LISTS_AUTO;
}

/* Is the memory registered, or will its registration stay cached for later messages? */
static bool stays_registered(const struct rme_plan_in *in, const struct rme_plan_side *side)
{
    if (side->ready || !side->kept)
        return side->ready;
    return side->segments > 1 ? in->lists != RME_LISTS_PACK
                              : in->pack_threshold != 0 && in->bytes >= in->pack_threshold;
}

/* Cost of copying `bytes` bytes.  The copy uses other buffers than the copies in progress, so
 * the sum of both decides between warm and cold. */
static double copy_cost(const struct rme_plan_in *in, const struct rme_plan_side *side,
                        double bytes)
{
    const struct rme_costs *costs = in->costs;

    return bytes *
               (in->bytes + side->packed > COLD_FROM ? costs->copy_cold : costs->copy_warm) +
           (double)segments(side, false) * costs->copy_piece;
}

static double reg_cost(const struct rme_plan_in *in, const struct rme_plan_side *side,
                       double bytes)
{
    const struct rme_costs *costs = in->costs;
    double pieces = (double)segments(side, false);
    double all = costs->reg_call + costs->reg_page * (bytes / PAGE + pieces);

    if (!stays_registered(in, side))
        return all;
    return side->ready || !is_priced(in, side)
               ? 0
               : all / LIST_USES + costs->find + (pieces - 1) * costs->find_piece;
}

/* Cost of binding and invalidating memory for the peer, for the segments after the first. */
static double open_cost(const struct rme_plan_in *in, const struct rme_plan_side *side,
                        bool pack)
{
    return in->opens ? 2 * in->costs->post * (double)(segments(side, pack) - 1) : 0;
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

    if (proto == RME_PROTO_EAGER)
        return 0;
    if (proto == RME_PROTO_EAGER_RDMA)
        return count_requests(send, 1, in->max_sge);
    return proto == RME_PROTO_RNDV_WRITE ? count_requests(send, recv, in->max_sge)
                                         : count_requests(recv, send, in->max_read_sge);
}

/* Cost of `n` work requests of this protocol. */
static double cost_of_requests(const struct rme_costs *costs, enum rme_proto proto, double n)
{
    return n * (costs->post + (proto == RME_PROTO_RNDV_READ ? costs->read : 0));
}

/* Bytes of a fragment.  Cached registrations were made in fragments, too, and are used in
 * fragments. */
static uint64_t frag_size_of(const struct rme_plan_in *in, const struct rme_plan_side *side,
                             bool pack)
{
    uint64_t frag_size = rme_plan_frag_size(in->frag_size, pack);

    return (!pack && side->ready) || frag_size > in->bytes ? in->bytes : frag_size;
}

static double prepare_cost(const struct rme_plan_in *in, const struct rme_plan_side *side,
                           bool pack)
{
    double bytes = (double)in->bytes;

    return pack ? copy_cost(in, side, bytes) : reg_cost(in, side, bytes);
}

double rme_plan_cost(const struct rme_plan_in *in, enum rme_proto proto, bool send_pack,
                     bool recv_pack, uint64_t *requests)
{
    const struct rme_costs *costs = in->costs;
    uint64_t wrs = requests_of(in, proto, send_pack, recv_pack);
    double posts = cost_of_requests(costs, proto, (double)wrs);

    if (requests != NULL)
        *requests = wrs;
    if (is_copied(proto))
        return costs->message + posts + prepare_cost(in, &in->send, true) +
               prepare_cost(in, &in->recv, true);
    return 3 * costs->message + posts +
           (double)(segments(&in->send, send_pack) + segments(&in->recv, recv_pack)) *
               costs->sge +
           (proto == RME_PROTO_RNDV_WRITE ? open_cost(in, &in->recv, recv_pack)
                                          : open_cost(in, &in->send, send_pack)) +
           prepare_cost(in, &in->send, send_pack) + prepare_cost(in, &in->recv, recv_pack);
}

/* ---- Decisions ---- */

uint64_t rme_plan_eager_max(const struct rme_costs *costs, uint64_t fit, uint64_t most)
{
    double cross = costs->copy_warm > 0 ? costs->message / costs->copy_warm : (double)fit;

    if (cross < EAGER_LEAST)
        cross = EAGER_LEAST;
    if (cross < (double)fit)
        fit = (uint64_t)cross;
    return fit < most ? fit : most;
}

/* Does this side copy?  `further`: cost of its segments after the first, apart from their
 * preparation. */
static bool packs(const struct rme_plan_in *in, const struct rme_plan_side *side,
                  double further, const char **why)
{
    double bytes = (double)in->bytes;
    bool priced = is_priced(in, side), copies;

    if (!priced && !side->ready && side->segments > 1) {
        *why = "option lists";
        return in->lists == RME_LISTS_PACK;
    }
    if (!priced && stays_registered(in, side)) {
        *why = side->ready ? "the memory is registered already"
                           : "the registration stays cached for later messages";
        return false;
    }
    copies = copy_cost(in, side, bytes) < reg_cost(in, side, bytes) + further;
    if (priced)
        *why =
            copies ? "a copy costs less than the pieces" : "the pieces cost less than a copy";
    else
        *why = copies ? "a copy costs less than a registration"
                      : "a registration costs less than a copy";
    return copies;
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

/* Does the device have far less work by protocol a than by b? */
static bool far_less(const struct rme_plan_in *in, enum rme_proto a, enum rme_proto b,
                     bool send_pack, bool recv_pack)
{
    double one =
        cost_of_requests(in->costs, a, (double)requests_of(in, a, send_pack, recv_pack));
    double other =
        cost_of_requests(in->costs, b, (double)requests_of(in, b, send_pack, recv_pack));

    return one * LESS_FACTOR <= other && other - one >= LESS_LEAST * in->costs->post;
}

/* Decides by the device and the options alone.  False: undecided. */
static bool decided_beforehand(const struct rme_plan_in *in, enum rme_proto *proto,
                               const char **why)
{
    *proto = RME_PROTO_RNDV_WRITE;
    if (!in->has_read) {
        *why = "the receiver cannot read";
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
    if (in->nothing_to_read) {
        *why = "the sender advertised nothing to read";
        return RME_PROTO_RNDV_WRITE;
    }
    if (is_heavy(&in->recv) && !in->send.server) {
        *why = "the receiver is a loaded server: the client writes";
        return RME_PROTO_RNDV_WRITE;
    }
    if (is_heavy(&in->send) && !in->recv.server) {
        *why = "the sender is a loaded server: the client reads";
        return RME_PROTO_RNDV_READ;
    }
    if (far_less(in, RME_PROTO_RNDV_WRITE, RME_PROTO_RNDV_READ, send_pack, recv_pack)) {
        *why = "the work requests of writing cost far less";
        return RME_PROTO_RNDV_WRITE;
    }
    if (far_less(in, RME_PROTO_RNDV_READ, RME_PROTO_RNDV_WRITE, send_pack, recv_pack)) {
        *why = "the work requests of reading cost far less";
        return RME_PROTO_RNDV_READ;
    }
    if (recv_pack && !less_loaded(&in->send, &in->recv)) {
        *why = "the receiver copies and is not more loaded than the sender: the receiver reads";
        return RME_PROTO_RNDV_READ;
    }
    if (less_loaded(&in->recv, &in->send)) {
        *why = "the receiver is less loaded: the receiver reads";
        return RME_PROTO_RNDV_READ;
    }
    *why = "the receiver is not less loaded: the sender writes";
    return RME_PROTO_RNDV_WRITE;
}

/* Cost of the sender's segments when the data is used in place. */
static double sender_pieces(const struct rme_plan_in *in)
{
    uint64_t pieces = segments(&in->send, false);

    return (double)pieces * in->costs->sge +
           (double)(count_requests(pieces, 1, in->max_sge) - 1) * in->costs->post;
}

/* Likewise for the receiver's segments, by the plan's protocol. */
static double receiver_pieces(const struct rme_plan_in *in, const struct rme_plan *plan)
{
    double more = (double)requests_of(in, plan->proto, plan->send_pack, false) -
                  (double)requests_of(in, plan->proto, plan->send_pack, true);

    return (double)segments(&in->recv, false) * in->costs->sge +
           cost_of_requests(in->costs, plan->proto, more) +
           (plan->proto == RME_PROTO_RNDV_WRITE ? open_cost(in, &in->recv, false) : 0);
}

/* Would the receiver ask for a write in spite of the offer, unless loads decide? */
static bool offer_fail_streak(const struct rme_plan_in *in, bool send_pack)
{
    return segments(&in->send, send_pack) > 1 && !is_heavy(&in->send) &&
           far_less(in, RME_PROTO_RNDV_WRITE, RME_PROTO_RNDV_READ, send_pack, false);
}

void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan)
{
    bool decided;

    memset(plan, 0, sizeof(*plan));
    if (in->bytes <= in->eager_max) {
        plan->why = "the message fits one buffer, and rendezvous is not faster";
        plan->why_send = plan->why_recv = "an eager message uses a buffer of the engine";
        return;
    }
    if (in->bytes <= in->eager_rdma_max) {
        plan->proto = RME_PROTO_EAGER_RDMA;
        plan->send_pack = plan->recv_pack = true;
        plan->requests = 1;
        plan->why = "the message fits the eager ring, and rendezvous is not faster";
        plan->why_send = plan->why_recv = "the eager ring is memory of the engine";
        return;
    }
    decided = decided_beforehand(in, &plan->proto, &plan->why);
    plan->send_pack = packs(in, &in->send, sender_pieces(in), &plan->why_send);
    if (!decided)
        plan->proto = read_or_write(in, plan->send_pack, false, &plan->why);
    plan->recv_pack = packs(in, &in->recv, receiver_pieces(in, plan), &plan->why_recv);
    if (!decided)
        plan->proto = read_or_write(in, plan->send_pack, plan->recv_pack, &plan->why);
    plan->offer = in->bytes > 0 && (decided ? plan->proto == RME_PROTO_RNDV_READ
                                            : !offer_fail_streak(in, plan->send_pack));
    plan->requests = requests_of(in, plan->proto, plan->send_pack, plan->recv_pack);
    plan->invite = in->invites && plan->proto == RME_PROTO_RNDV_WRITE && !plan->recv_pack &&
                   in->bytes >= RME_INVITE_LEAST && stays_registered(in, &in->recv);
}

/* ---- Explanation ---- */

static void explain_costs(FILE *out, const struct rme_costs *costs)
{
    fprintf(
        out,
        "costs     copy %.3f ns/byte warm, %.3f cold, + %.0f ns/piece; register %.0f ns + %.0f "
        "ns/page; look up in the registration cache %.0f ns + %.0f ns/piece; "
        "message %.0f ns; request %.0f ns, to read %.0f ns, + %.0f ns/segment\n",
        costs->copy_warm, costs->copy_cold, costs->copy_piece, costs->reg_call, costs->reg_page,
        costs->find, costs->find_piece, costs->message, costs->post, costs->post + costs->read,
        costs->sge);
}

static void explain_side(FILE *out, const char *name, const struct rme_plan_in *in,
                         const struct rme_plan_side *side, enum rme_proto proto, bool pack,
                         const char *why)
{
    uint64_t frag_size = frag_size_of(in, side, pack);

    fprintf(out,
            "%-9s %" PRIu64 " segment%s%s, load %" PRIu64 " operations %" PRIu64 " bytes: ",
            name, side->segments, side->segments == 1 ? "" : "s",
            side->server ? ", server" : "", side->load_ops, side->load_bytes);
    if (side->packed != 0)
        fprintf(out, "with %" PRIu64 " bytes copied already, ", side->packed);
    if (is_copied(proto))
        fprintf(out, "copied, as %s\n", why);
    else
        fprintf(out, "%s in units of %" PRIu64 " bytes%s, as %s\n",
                pack ? "copied" : "used in place", frag_size,
                frag_size < in->bytes ? ", each with a request or more" : "", why);
}

static void explain_row(FILE *out, const struct rme_plan_in *in, enum rme_proto proto,
                        int packed, bool chosen)
{
    bool send_pack = packed & 1, recv_pack = packed & 2;
    uint64_t requests;
    double ns = rme_plan_cost(in, proto, send_pack, recv_pack, &requests);

    fprintf(out, "%-18s %-7s %-9s %9" PRIu64 " %12.2f%s\n", rme_proto_name(proto),
            send_pack ? "copy" : "direct", recv_pack ? "copy" : "direct", requests, ns / 1000,
            chosen ? "  <- chosen" : "");
}

static bool is_possible(const struct rme_plan_in *in, int proto)
{
    return !is_copied(proto) ||
           in->bytes <= (proto == RME_PROTO_EAGER ? in->eager_max : in->eager_rdma_max);
}

void rme_plan_explain(FILE *out, const struct rme_plan_in *send, const struct rme_plan_in *recv)
{
    struct rme_plan_in shown = *recv, asked = *recv, inviting = *recv;
    struct rme_plan first, plan, invitation;

    rme_plan(send, &first);
    asked.send.ready =
        first.offer && frag_size_of(send, &send->send, first.send_pack) == send->bytes;
    asked.send.segments =
        asked.send.ready ? segments(&send->send, first.send_pack) : send->send.segments;
    asked.send.kept = false;
    asked.nothing_to_read = !first.offer;
    asked.eager_rdma_max = 0; /* the sender decides on that */
    inviting.eager_rdma_max = send->eager_rdma_max;
    rme_plan(&asked, &plan);
    if (first.proto == RME_PROTO_EAGER_RDMA) /* the receiver has no decision */
        plan = first;
    inviting.send =
        rme_plan_unseen_sender(recv->send.server, recv->send.load_ops, recv->send.load_bytes);
    rme_plan(&inviting, &invitation);
    shown.send = send->send;

    fprintf(out, "message   %" PRIu64 " bytes, eager up to %" PRIu64 "\n", send->bytes,
            send->eager_max);
    explain_costs(out, send->costs);
    fprintf(out, "%-18s %-7s %-9s %9s %12s\n", "protocol", "sender", "receiver", "requests",
            "microseconds");
    for (int proto = 0; proto < RME_PROTO_COUNT; proto++)
        for (int packed = is_copied(proto) ? 3 : 0; packed < 4; packed++)
            if (is_possible(send, proto))
                explain_row(
                    out, &shown, (enum rme_proto)proto, packed,
                    (int)plan.proto == proto &&
                        (proto == RME_PROTO_EAGER ||
                         packed == (first.send_pack ? 1 : 0) + (plan.recv_pack ? 2 : 0)));
    explain_side(out, "sender", send, &send->send, plan.proto,
                 first.send_pack || plan.proto == RME_PROTO_EAGER, first.why_send);
    explain_side(out, "receiver", recv, &recv->recv, plan.proto,
                 plan.recv_pack || is_copied(plan.proto), plan.why_recv);
    fprintf(out, "because   %s\n", plan.why);
    if (!is_copied(plan.proto))
        fprintf(out, "RTS %s%s; a receive that is posted first, on an idle link, %s\n",
                first.offer ? "advertises the sender's memory" : "advertises nothing, as ",
                first.offer ? "" : first.why,
                invitation.invite ? "advertises its memory at once" : "waits for the RTS");
}
