/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How the decision is taken, in this order:
 *  1. eager when it fits a buffer and the window, up to the size where two copies cost more
 *     than the two messages that a rendezvous between registered memories has more;
 *  2. written into memory that the receiver has lent when there is room, and the copies on both
 *     sides cost less than the two messages that a rendezvous has more, and what that copies or
 *     registers itself.  With many under way nobody waits for these two: they cost little more
 *     than their requests, so large messages that a rendezvous need not copy do not go there.
 *     The sender does not copy but gathers where its memory may be registered already, and to
 *     find and hold that costs less;
 *  3. each side copies through a bounce buffer ("packs") when that costs less than to use the
 *     memory in place.  A list [001 5.1] costs in place what its segments cost, to find and to
 *     move, and on the receiver's side the requests that they are written by and opened with;
 *     and its part of a registration that later uses find.  Option `lists` may say it instead.
 *     What is one segment is compared with a registration for one use; not where that is there,
 *     or is kept and the message is large: the first use pays for the later ones, and who
 *     compared the first alone would copy for ever;
 *  4. read or write: what the option says; else a write where reads are slow, or there is
 *     nothing to read yet; else the client when the server is under heavy load [004 fig. 6];
 *     else the side whose work requests cost far less; else the receiver reads when it is less
 *     loaded than the sender, or equally and copies, for what its processor brings is in its
 *     caches then, or equally and is a client that was offered all of its only message: a read
 *     takes a message less, and no turn of the server's thread; else the sender writes
 *     [004 fig. 6];
 *  5. the sender offers its memory if the receiver could come to read, but for a list that it
 *     would be asked to write, for that costs far less in requests; a receiver that is first
 *     invites if its memory is registered and it would have the sender write.
 */
#include <inttypes.h>
#include <string.h>

#include "plan/plan.h"

#define PAGE 4096.0
/* more bytes of copies than these are from and to memory: they do not stay in caches */
#define COLD_FROM RME_PACK_UNIT
/* up to here a copy is cheaper than a message on all devices: no measurement says otherwise;
 * default of rx_size */
#define EAGER_LEAST 4608u
#define LESS_FACTOR 3     /* work requests cost "far less": the others this many times … */
#define LESS_LEAST  8     /* … and at least so many requests more */
#define LIST_USES   8.0   /* uses of a list that its registration is kept for */
#define CROWD_MOST  1024u /* messages under way, as far as rme_plan_explain looks */

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
    .hold = 400,
};

const char *rme_proto_name(enum rme_proto proto)
{
    static const char *const names[RME_PROTO_COUNT] = {
        [RME_PROTO_EAGER] = "eager",
        [RME_PROTO_FAST] = "fast write",
        [RME_PROTO_RNDV_WRITE] = "rendezvous write",
        [RME_PROTO_RNDV_READ] = "rendezvous read",
    };

    return (unsigned)proto < RME_PROTO_COUNT ? names[proto] : "unknown";
}

/* It goes through buffers of the engine on both sides. */
static bool is_copied(int proto)
{
    return proto == RME_PROTO_EAGER || proto == RME_PROTO_FAST;
}

/* May a write into lent memory gather from the sender's own? */
static bool may_gather(const struct rme_plan_in *in)
{
    return in->gathers && (in->send.ready || in->send.kept) && in->send.segments > 0;
}

static uint64_t segments(const struct rme_plan_side *side, bool pack)
{
    return pack || side->segments == 0 ? 1 : side->segments;
}

/* A list of which the costs say what becomes of it. */
static bool is_priced(const struct rme_plan_in *in, const struct rme_plan_side *side)
{
    return side->segments > 1 && rme_plan_list_threshold(in->lists, in->pack_threshold) == 0;
}

/* From so many bytes on it is used in place; 0: the costs say. */
static uint64_t threshold(const struct rme_plan_in *in, const struct rme_plan_side *side)
{
    return side->segments <= 1 ? in->pack_threshold
                               : rme_plan_list_threshold(in->lists, in->pack_threshold);
}

/* There is a registration, or will be for all later messages. */
static bool stays_registered(const struct rme_plan_in *in, const struct rme_plan_side *side)
{
    uint64_t least = threshold(in, side);

    if (is_priced(in, side))
        return side->ready || side->kept;
    return side->ready || (side->kept && least != 0 && in->bytes >= least);
}

/* Copying so much of it.  It goes into other buffers than the copies that there are. */
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
    double calls = in->lists == RME_LISTS_SINGLE ? pieces : 1;
    double all = costs->reg_call * calls + costs->reg_page * (bytes / PAGE + pieces);

    if (!stays_registered(in, side))
        return all;
    return side->ready || !is_priced(in, side)
               ? 0
               : all / LIST_USES + costs->find + (pieces - 1) * costs->find_piece;
}

/* To open the further segments of memory for the peer, and to close them again. */
static double open_cost(const struct rme_plan_in *in, const struct rme_plan_side *side,
                        bool pack)
{
    return in->opens ? 2 * in->costs->post * (double)(segments(side, pack) - 1) : 0;
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
    if (proto == RME_PROTO_FAST)
        return count_requests(send, 1, in->max_sge);
    return proto == RME_PROTO_RNDV_WRITE ? count_requests(send, recv, in->max_sge)
                                         : count_requests(recv, send, in->max_read_sge);
}

/* What so many work requests cost that move data by this protocol. */
static double cost_of_requests(const struct rme_costs *costs, enum rme_proto proto, double n)
{
    return n * (costs->post + (proto == RME_PROTO_RNDV_READ ? costs->read : 0));
}

/* What is kept was registered by units, too, and is used by them. */
static uint64_t unit_of(const struct rme_plan_in *in, const struct rme_plan_side *side,
                        bool pack)
{
    uint64_t unit = rme_plan_unit(in->unit, pack);

    return (!pack && side->ready) || unit > in->bytes ? in->bytes : unit;
}

static double prepare_cost(const struct rme_plan_in *in, const struct rme_plan_side *side,
                           bool pack)
{
    double bytes = (double)in->bytes;

    return pack ? copy_cost(in, side, bytes) : reg_cost(in, side, bytes);
}

/* Instead of a copy; it is not registered for that. */
static double gather_cost(const struct rme_plan_in *in)
{
    const struct rme_costs *costs = in->costs;
    double pieces = (double)in->send.segments;

    return pieces * costs->sge + costs->hold +
           (in->send.ready ? 0 : costs->find + (pieces - 1) * costs->find_piece);
}

/* A small message: the time in which it travels is shared with what is under way meanwhile. */
static double message_cost(const struct rme_plan_in *in)
{
    const struct rme_costs *costs = in->costs;

    return costs->message <= costs->post
               ? costs->message
               : costs->post + (costs->message - costs->post) / (1 + (double)in->under_way);
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
        return message_cost(in) + posts +
               (proto == RME_PROTO_FAST && !send_pack ? gather_cost(in)
                                                      : prepare_cost(in, &in->send, true)) +
               prepare_cost(in, &in->recv, true);
    return 3 * message_cost(in) + posts +
           (double)(segments(&in->send, send_pack) + segments(&in->recv, recv_pack)) *
               costs->sge +
           (proto == RME_PROTO_RNDV_WRITE ? open_cost(in, &in->recv, recv_pack)
                                          : open_cost(in, &in->send, send_pack)) +
           prepare_cost(in, &in->send, send_pack) + prepare_cost(in, &in->recv, recv_pack);
}

/* ---- decisions ---- */

uint64_t rme_plan_eager_max(const struct rme_costs *costs, uint64_t fit, uint64_t most)
{
    double cross = costs->copy_warm > 0 ? costs->message / costs->copy_warm : (double)fit;

    if (cross < EAGER_LEAST)
        cross = EAGER_LEAST;
    if (cross < (double)fit)
        fit = (uint64_t)cross;
    return fit < most ? fit : most;
}

/* `further`: what its further segments cost, but to make them ready. */
static bool packs(const struct rme_plan_in *in, const struct rme_plan_side *side,
                  double further, const char **why)
{
    double bytes = (double)in->bytes;

    if (is_priced(in, side)) {
        if (copy_cost(in, side, bytes) < reg_cost(in, side, bytes) + further) {
            *why = "a copy costs less than the pieces";
            return true;
        }
        *why = "the pieces cost less than a copy";
        return false;
    }
    if (!side->ready && side->segments > 1 && in->lists != RME_LISTS_HYBRID) {
        *why = "option lists";
        return in->lists == RME_LISTS_PACK;
    }
    if (stays_registered(in, side)) {
        *why = side->ready ? "the memory is registered already"
                           : "the registration stays cached for later messages";
        return false;
    }
    if (side->segments > 1) {
        *why = in->bytes < in->pack_threshold ? "the list is smaller than pack_threshold"
                                              : "the list is not smaller than pack_threshold";
        return in->bytes < in->pack_threshold;
    }
    if (copy_cost(in, side, bytes) < reg_cost(in, side, bytes) + further) {
        *why = "a copy costs less than a registration";
        return true;
    }
    *why = "a registration costs less than a copy";
    return false;
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

/* A client has been offered its only message: to read that costs no message, and the server
 * nothing. */
static bool has_offer(const struct rme_plan_in *in)
{
    return in->offered && !in->recv.server;
}

/* What moving costs by a protocol; a write of what is offered needs a CTS. */
static double move_cost(const struct rme_plan_in *in, enum rme_proto proto, bool send_pack,
                        bool recv_pack)
{
    uint64_t requests = requests_of(in, proto, send_pack, recv_pack);

    return cost_of_requests(in->costs, proto, (double)requests) +
           (has_offer(in) && proto == RME_PROTO_RNDV_WRITE ? message_cost(in) : 0);
}

/* By protocol a the device has far less to do than by b, although a may need a CTS; that b
 * needs one is no reason, as loads decide then. */
static bool far_less(const struct rme_plan_in *in, enum rme_proto a, enum rme_proto b,
                     bool send_pack, bool recv_pack)
{
    double one = move_cost(in, a, send_pack, recv_pack);
    double other =
        cost_of_requests(in->costs, b, (double)requests_of(in, b, send_pack, recv_pack));

    return one * LESS_FACTOR <= other && other - one >= LESS_LEAST * in->costs->post;
}

/* What the device and the option decide, whatever the message.  False: nothing. */
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
    if (is_heavy(in, &in->recv) && !in->send.server) {
        *why = "the receiver is a loaded server: the client writes";
        return RME_PROTO_RNDV_WRITE;
    }
    if (is_heavy(in, &in->send) && !in->recv.server) {
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
    if (has_offer(in) && !less_loaded(&in->send, &in->recv)) {
        *why = "a client that is not more loaded than the server reads its offer";
        return RME_PROTO_RNDV_READ;
    }
    if (less_loaded(&in->recv, &in->send)) {
        *why = "the receiver is less loaded: the receiver reads";
        return RME_PROTO_RNDV_READ;
    }
    *why = "the receiver is not less loaded: the sender writes";
    return RME_PROTO_RNDV_WRITE;
}

/* Is a write into lent memory gathered?  A copy wins where they cost the same. */
static bool gathers(const struct rme_plan_in *in)
{
    return may_gather(in) && rme_plan_cost(in, RME_PROTO_FAST, false, true, NULL) <
                                 rme_plan_cost(in, RME_PROTO_FAST, true, true, NULL);
}

/* A fast write costs no more than the rendezvous of the plan. */
static bool is_cheaper(const struct rme_plan_in *in, const struct rme_plan *plan, bool gathered)
{
    return rme_plan_cost(in, RME_PROTO_FAST, !gathered, true, NULL) <=
           rme_plan_cost(in, plan->proto, plan->send_pack, plan->recv_pack, NULL);
}

static bool is_fast(const struct rme_plan_in *in, struct rme_plan *plan, bool *gathered)
{
    struct rme_plan_in alone = *in;

    *gathered = false;
    if (in->bytes > in->fast_max)
        return false;
    *gathered = gathers(in);
    if (is_cheaper(in, plan, *gathered))
        return true;
    alone.under_way = 0;
    plan->crowded = in->under_way != 0 && is_cheaper(&alone, plan, *gathered);
    return false;
}

/* What the pieces of the sender's memory cost when they are written from where they are. */
static double sender_pieces(const struct rme_plan_in *in)
{
    uint64_t pieces = segments(&in->send, false);

    return (double)pieces * in->costs->sge +
           (double)(count_requests(pieces, 1, in->max_sge) - 1) * in->costs->post;
}

/* The same of the receiver's, by the plan's protocol; a copy would be moved by `copied`. */
static double receiver_pieces(const struct rme_plan_in *in, const struct rme_plan *plan,
                              enum rme_proto copied)
{
    return (double)segments(&in->recv, false) * in->costs->sge +
           move_cost(in, plan->proto, plan->send_pack, false) -
           move_cost(in, copied, plan->send_pack, true) +
           (plan->proto == RME_PROTO_RNDV_WRITE ? open_cost(in, &in->recv, false) : 0);
}

/* The receiver would not read what is offered, but for its load or the sender's. */
static bool offers_in_vain(const struct rme_plan_in *in, bool send_pack)
{
    return segments(&in->send, send_pack) > 1 && !is_heavy(in, &in->send) &&
           far_less(in, RME_PROTO_RNDV_WRITE, RME_PROTO_RNDV_READ, send_pack, false);
}

void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan)
{
    enum rme_proto copied;
    bool decided, gathered;

    memset(plan, 0, sizeof(*plan));
    if (in->bytes <= in->eager_max) {
        plan->why = "the message fits one buffer, and rendezvous is not faster";
        plan->why_send = plan->why_recv = "an eager message uses a buffer of the engine";
        return;
    }
    decided = decided_beforehand(in, &plan->proto, &plan->why);
    plan->send_pack = packs(in, &in->send, sender_pieces(in), &plan->why_send);
    copied = plan->proto;
    if (!decided) {
        plan->proto = read_or_write(in, plan->send_pack, false, &plan->why);
        copied =
            has_offer(in) ? read_or_write(in, plan->send_pack, true, &plan->why) : plan->proto;
    }
    plan->recv_pack = packs(in, &in->recv, receiver_pieces(in, plan, copied), &plan->why_recv);
    if (!decided)
        plan->proto = read_or_write(in, plan->send_pack, plan->recv_pack, &plan->why);
    plan->offer = in->bytes > 0 && (decided ? plan->proto == RME_PROTO_RNDV_READ
                                            : !offers_in_vain(in, plan->send_pack));
    if (is_fast(in, plan, &gathered)) {
        plan->proto = RME_PROTO_FAST;
        plan->send_pack = !gathered;
        plan->recv_pack = true;
        plan->requests = requests_of(in, RME_PROTO_FAST, plan->send_pack, true);
        plan->offer = false;
        plan->why = "the eager ring has room, and rendezvous is not faster";
        plan->why_send = plan->why_recv = "the eager ring is memory of the engine";
        if (gathered)
            plan->why_send = "a look-up in the registration cache costs less than a copy";
        else if (may_gather(in))
            plan->why_send = "a copy costs less than a look-up in the registration cache";
        return;
    }
    plan->requests = requests_of(in, plan->proto, plan->send_pack, plan->recv_pack);
    plan->invite = in->invites && plan->proto == RME_PROTO_RNDV_WRITE && !plan->recv_pack &&
                   in->bytes >= RME_INVITE_LEAST && stays_registered(in, &in->recv);
}

/* ---- showing it ---- */

static void explain_costs(FILE *out, const struct rme_costs *costs)
{
    fprintf(
        out,
        "costs     copy %.3f ns/byte warm, %.3f cold, + %.0f ns/piece; register %.0f ns + %.0f "
        "ns/page; look up in the registration cache %.0f ns + %.0f ns/piece, hold %.0f ns; "
        "message %.0f ns; request %.0f ns, to read %.0f ns, + %.0f ns/segment\n",
        costs->copy_warm, costs->copy_cold, costs->copy_piece, costs->reg_call, costs->reg_page,
        costs->find, costs->find_piece, costs->hold, costs->message, costs->post,
        costs->post + costs->read, costs->sge);
}

static void explain_side(FILE *out, const char *name, const struct rme_plan_in *in,
                         const struct rme_plan_side *side, enum rme_proto proto, bool pack,
                         const char *why)
{
    uint64_t unit = unit_of(in, side, pack);

    fprintf(out,
            "%-9s %" PRIu64 " segment%s%s, load %" PRIu64 " operations %" PRIu64 " bytes: ",
            name, side->segments, side->segments == 1 ? "" : "s",
            side->server ? ", server" : "", side->load_ops, side->load_bytes);
    if (side->packed != 0)
        fprintf(out, "with %" PRIu64 " bytes copied already, ", side->packed);
    if (is_copied(proto) && !pack)
        fprintf(out, "gathered if registered, else copied, as %s\n", why);
    else if (is_copied(proto))
        fprintf(out, "copied, as %s\n", why);
    else
        fprintf(out, "%s%s in units of %" PRIu64 " bytes%s, as %s\n",
                pack ? "copied" : "used in place",
                pack || side->segments <= 1 || in->lists != RME_LISTS_SINGLE
                    ? ""
                    : ", each segment registered alone,",
                unit, unit < in->bytes ? ", each with a request or more" : "", why);
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
           in->bytes <= (proto == RME_PROTO_EAGER ? in->eager_max : in->fast_max);
}

/* With how many under way a message that alone goes into lent memory does not any more. */
static void explain_crowd(FILE *out, const struct rme_plan_in *in)
{
    struct rme_plan_in crowd = *in;
    struct rme_plan plan;

    do {
        crowd.under_way++;
        rme_plan(&crowd, &plan);
    } while (!plan.crowded && crowd.under_way < CROWD_MOST);
    if (plan.crowded)
        fprintf(out, "with %" PRIu64 " or more messages in flight: %s\n", crowd.under_way,
                "rendezvous, whose control messages then cause no wait");
    else
        fprintf(out, "with any number of messages in flight\n");
}

/* Of the ways that a protocol has with memory, the first: 1, the sender copies; 2, the
 * receiver. */
static int first_row(const struct rme_plan_in *in, int proto)
{
    if (proto == RME_PROTO_FAST && may_gather(in))
        return 2;
    return is_copied(proto) ? 3 : 0;
}

void rme_plan_explain(FILE *out, const struct rme_plan_in *send, const struct rme_plan_in *recv)
{
    struct rme_plan_in shown = *recv, asked = *recv, inviting = *recv;
    struct rme_plan first, plan, invitation;

    rme_plan(send, &first);
    asked.send.ready =
        first.offer && unit_of(send, &send->send, first.send_pack) == send->bytes;
    asked.send.segments =
        asked.send.ready ? segments(&send->send, first.send_pack) : send->send.segments;
    asked.send.kept = false;
    asked.nothing_to_read = !first.offer;
    asked.offered = asked.send.ready;
    asked.fast_max = 0; /* that is the sender's to decide */
    inviting.fast_max = send->fast_max;
    rme_plan(&asked, &plan);
    if (first.proto == RME_PROTO_FAST) /* nobody asks the receiver */
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
        for (int packed = first_row(send, proto); packed < 4; packed++)
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
    if (plan.proto == RME_PROTO_FAST)
        explain_crowd(out, send);
    if (!is_copied(plan.proto))
        fprintf(out, "RTS %s%s; a receive that is posted first, on an idle link, %s\n",
                first.offer ? "advertises the sender's memory" : "advertises nothing, as ",
                first.offer ? "" : first.why,
                invitation.invite ? "advertises its memory at once" : "waits for the RTS");
}
