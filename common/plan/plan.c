/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Order of the decisions:
 * 1.  Eager, if the message fits a buffer and option eager_max (rme_plan_copied()).
 * 2.  A write into the ring, if the peer has granted one, up to a size (rme_plan_sizes(),
 *     rme_plan_ring_max()).
 * 3.  Each side copies through a bounce buffer ("packs") up to a limit in bytes (packs()).  A
 *     list [001 5.1] has limits for its segments, and for the requests and openings of its use
 *     in place, too, unless option `list_mode` decides.  Memory that is registered is used in
 *     place, and so is a large single segment whose registration stays cached: the first use
 *     pays for the later ones.
 * 4.  Read or write, by the first rule of read_or_write() that holds.
 * 5.  The sender offers its memory if the receiver could decide to read, except a list whose
 *     write takes far fewer requests or whose openings are dear.  The sender takes the
 *     receiver's segments for those of the message before.
 * 6.  A receiver whose receive is posted first sends an early CTS if its memory is registered
 *     and the planner would have the sender write.
 *
 * The limits' origin and measurements: doc/design/list-io.md.
 */
#include <inttypes.h>
#include <string.h>

#include "plan/plan.h"

/* "far fewer" requests: the others are this factor more */
#define FEWER_FACTOR   3
#define FEWER_DIFF_MIN 8 /* and at least this number more */
/* Largest payloads for a ring of messages that a rendezvous would copy as well, in one piece
 * and of lists: doc/design/ring.md has the measurements. */
#define RING_COPIED_MAX (64u << 10)
#define RING_LIST_MAX   (32u << 10)
/* as measured on the software HCA: doc/design/ring.md */
#define RING_MAX   (32u << 10)
#define CACHED_MIN (64u << 10)
/* Openings that cost at least this number of requests decide the side that moves the data. */
#define DEAR_OPENING 8

const struct rme_limits rme_limits_adapter = {
    .once = {256u << 10, 2u << 10, 1u << 10},
    .list = {8u << 10, 384, 1u << 10},
    .read = 1,
    .window = 14,
    .each = 200,
    .control = 16u << 10,
    .offloads = true,
};

/* No registration is needed, and a DMA of a segment overlaps the data of the one before. */
const struct rme_limits rme_limits_unregistered = {
    .once = {2u << 10, 0, 256},
    .list = {2u << 10, 0, 256},
    .read = 1,
    .control = 4u << 10,
};

const char *const rme_proto_name[RME_PROTO_COUNT] = {
    [RME_PROTO_EAGER] = "eager",
    [RME_PROTO_RING] = "ring write",
    [RME_PROTO_RNDV_WRITE] = "rendezvous write",
    [RME_PROTO_RNDV_READ] = "rendezvous read",
};

/* ---- Decisions ---- */

static uint64_t segments(const struct rme_plan_side *side, bool pack)
{
    return pack || side->segments == 0 ? 1 : side->segments;
}

/* Is the memory registered, or will its registration stay cached for later messages?  `apart`:
 * each segment is registered for a peer's writes. */
static bool stays_registered(const struct rme_plan_in *in, const struct rme_plan_side *side,
                             bool apart)
{
    bool list = side->segments > 1;

    return side->ready ||
           (side->kept && !(apart && list) &&
            (list || (in->pack_threshold != 0 && in->bytes >= in->pack_threshold)));
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

/* A list of rules decides by the first one that holds. */
struct rule {
    bool holds, yes, offer;
    const char *why;
};

static const struct rule *first_of(const struct rule *rule)
{
    while (!rule->holds)
        rule++;
    return rule;
}

/* Does this side copy?  `requests`: further work requests, in those of writes, of the use in
 * place. */
static bool packs(const struct rme_plan_in *in, const struct rme_plan_side *side, bool apart,
                  uint64_t requests, const char **why)
{
    bool list = side->segments > 1, kept = stays_registered(in, side, apart);
    const struct rme_pack_limit *limit = kept ? &in->limits->list : &in->limits->once;
    uint64_t most =
        limit->base + limit->segment * (segments(side, false) - 1) + limit->request * requests;
    const struct rule rules[] = {
        {side->ready, false, .why = "the memory is registered already"},
        {list && in->lists != RME_LISTS_AUTO, in->lists == RME_LISTS_PACK,
         .why = "option list_mode"},
        {kept && !list, false, .why = "the registration stays cached for later messages"},
        {in->bytes <= most, true, .why = "within the limit of copies"},
        {true, false, .why = "above the limit of copies"},
    };
    const struct rule *rule = first_of(rules);

    *why = rule->why;
    return rule->yes;
}

/* Requests that opening a segment to the peer counts as. */
static uint64_t opening(const struct rme_plan_in *in)
{
    if (in->each)
        return in->limits->each;
    if (!in->opens)
        return 0;
    return in->limits->window != 0 ? in->limits->window : 2;
}

static uint64_t fewest(const struct rme_plan_in *in, bool send_pack)
{
    uint64_t writes = requests_of(in, RME_PROTO_RNDV_WRITE, send_pack, false);
    uint64_t reads = requests_of(in, RME_PROTO_RNDV_READ, send_pack, false);

    return writes < reads ? writes : reads;
}

/* Further requests for the sender's segments when the data is used in place.  For a list at the
 * receiver, the sender opens its own one: fewer bytes are copied.  A request between two lists
 * carries one piece and counts twice: once, 256 KiB in 128 pieces took up to 1.93 times the
 * best.  On an idle link a registration for one use counts a third: without that, four cells of
 * ConnectX-3 take up to 1.26 times the best (doc/design/list-io.md). */
static uint64_t sender_requests(const struct rme_plan_in *in)
{
    uint64_t requests = requests_of(in, RME_PROTO_RNDV_WRITE, false, true) - 1;

    if (!in->sender || in->bytes > RME_PACK_FRAG)
        return requests;
    if (in->recv.segments <= 1)
        return requests + (in->each && !in->busy ? in->limits->each / 3 : 0);
    return 2 * (fewest(in, false) - fewest(in, true)) +
           opening(in) * (segments(&in->send, false) - 1);
}

/* A copy on each side costs as much as the messages of a rendezvous and an opening. */
struct rme_plan_sizes rme_plan_sizes(const struct rme_plan_in *in)
{
    const struct rme_limits *limits = in->limits;
    uint64_t most = limits->control + opening(in) * limits->once.request / 2;

    if (limits->control == 0)
        return (struct rme_plan_sizes){RING_MAX, CACHED_MIN};
    return (struct rme_plan_sizes){most < RING_MAX ? most : RING_MAX,
                                   most < CACHED_MIN ? most : CACHED_MIN};
}

uint64_t rme_plan_ring_max(const struct rme_limits *limits, uint64_t anywhere,
                           uint64_t pack_threshold, uint64_t segments)
{
    uint64_t copied = 0;

    if (segments > 1)
        copied = limits->list.base + limits->list.segment * (segments - 1);
    if (segments > 1 && copied > RING_LIST_MAX)
        copied = RING_LIST_MAX;
    if (segments == 1 && pack_threshold != 0)
        copied = (pack_threshold < RING_COPIED_MAX ? pack_threshold : RING_COPIED_MAX) - 1;
    return copied > anywhere ? copied : anywhere;
}

/* Further requests for the receiver's segments when the data is used in place, by the plan's
 * protocol; those of writes are bound and invalidated, too. */
static uint64_t receiver_requests(const struct rme_plan_in *in, const struct rme_plan *plan)
{
    uint64_t more = requests_of(in, plan->proto, plan->send_pack, false) -
                    requests_of(in, plan->proto, plan->send_pack, true);

    if (plan->proto == RME_PROTO_RNDV_READ)
        return more * in->limits->read;
    return more + opening(in) * (segments(&in->recv, false) - 1);
}

static bool is_heavy(const struct rme_plan_side *side)
{
    return side->server && side->load.ops > RME_HEAVY_OPS;
}

static bool less_loaded(const struct rme_plan_side *a, const struct rme_plan_side *b)
{
    return a->load.ops != b->load.ops ? a->load.ops < b->load.ops
                                      : a->load.bytes < b->load.bytes;
}

/* Does the device have far less work with `one` than with `other` requests? */
static bool far_less(uint64_t one, uint64_t other)
{
    return one * FEWER_FACTOR <= other && other - one >= FEWER_DIFF_MIN;
}

/* Do the openings of the sender's segments cost more than a copy into a cleared buffer? */
static bool opens_much(const struct rme_plan_in *in)
{
    uint64_t more = opening(in) * (segments(&in->send, false) - 1);

    return more * in->limits->list.request > in->bytes + in->bytes / 2;
}

/* Decides the side that posts RDMA, and whether a sender offers its memory: not if the receiver
 * would ask for a write under any load, or because of the sender's segments. */
static void read_or_write(const struct rme_plan_in *in, struct rme_plan *plan)
{
    uint64_t writes = requests_of(in, RME_PROTO_RNDV_WRITE, plan->send_pack, plan->recv_pack);
    uint64_t reads = in->limits->read *
                     requests_of(in, RME_PROTO_RNDV_READ, plan->send_pack, plan->recv_pack);
    bool prefers_read = in->prefer == RME_PREFER_READ;
    bool dear = opening(in) >= DEAR_OPENING, alone = in->limits->offloads;
    bool scatters = segments(&in->recv, plan->recv_pack) > 1;
    const struct rule rules[] = {
        {!in->has_read, false, false, "the receiver cannot read"},
        {in->nothing_to_read, false, false, "the sender advertised nothing to read"},
        {in->prefer != RME_PREFER_AUTO, prefers_read, prefers_read, "option rndv"},
        {in->slow_read, false, false, "the device reads much slower than it writes"},
        {is_heavy(&in->recv) && !in->send.server, false, true,
         "the receiver is a loaded server: the client writes"},
        {is_heavy(&in->send) && !in->recv.server, true, true,
         "the sender is a loaded server: the client reads"},
        {dear && in->sender && segments(&in->send, plan->send_pack) > 1 &&
             (!scatters || opens_much(in)),
         false, false, "an offer would open each segment"},
        {dear && in->each && in->sender && in->bytes > in->frag_size, false, false,
         "an offer would be registered as a whole"},
        {far_less(writes, reads), false, segments(&in->send, plan->send_pack) == 1,
         "the work requests of writing cost far less"},
        {alone && !in->early && (dear || reads <= writes), true, true,
         "the sender's memory is open already: the receiver reads"},
        {far_less(reads, writes), true, true, "the work requests of reading cost far less"},
        {alone, false, !dear, "the sender writes: nothing is opened twice"},
        {plan->recv_pack && !less_loaded(&in->send, &in->recv), true, true,
         "receiver reads: receiver copies, receiver load <= sender load"},
        {less_loaded(&in->recv, &in->send), true, true,
         "receiver reads: receiver load < sender load"},
        {true, false, true, "sender writes: receiver load >= sender load"},
    };
    const struct rule *rule = first_of(rules);

    plan->proto = rule->yes ? RME_PROTO_RNDV_READ : RME_PROTO_RNDV_WRITE;
    plan->offer = rule->offer && in->bytes > 0;
    plan->why = rule->why;
}

/* Is the message copied through buffers of the engine on both sides? */
static bool is_copied(const struct rme_plan_in *in, struct rme_plan *plan)
{
    enum rme_proto proto = rme_plan_copied(in->bytes, in->eager_max, in->ring_max);
    bool eager = proto == RME_PROTO_EAGER;

    if (proto > RME_PROTO_RING)
        return false;
    plan->proto = proto;
    plan->send_pack = plan->recv_pack = true;
    plan->requests = !eager;
    plan->why = eager ? "the message fits one buffer" : "the message fits the ring";
    plan->why_send = plan->why_recv = eager ? "an eager message uses a buffer of the engine"
                                            : "the ring is memory of the engine";
    return true;
}

void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan)
{
    memset(plan, 0, sizeof(*plan));
    if (is_copied(in, plan))
        return;
    plan->send_pack = packs(in, &in->send, false, sender_requests(in), &plan->why_send);
    read_or_write(in, plan);
    plan->recv_pack = packs(in, &in->recv, in->each && plan->proto == RME_PROTO_RNDV_WRITE,
                            receiver_requests(in, plan), &plan->why_recv);
    read_or_write(in, plan);
    plan->requests = requests_of(in, plan->proto, plan->send_pack, plan->recv_pack);
    plan->early_cts = in->has_early_cts && plan->proto == RME_PROTO_RNDV_WRITE &&
                      !plan->recv_pack && in->bytes >= RME_EARLY_CTS_MIN &&
                      stays_registered(in, &in->recv, in->each);
}

/* ---- Explanation ---- */

static void explain_limit(FILE *out, const char *name, const struct rme_pack_limit *limit,
                          const char *text)
{
    fprintf(out,
            "limit     %-8s %" PRIu32 " + %" PRIu32 "/segment + %" PRIu32
            "/further request bytes: copied, %s\n",
            name, limit->base, limit->segment, limit->request, text);
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
    fprintf(out, "%-9s %s in fragments of %" PRIu64 " bytes: %s\n", name,
            pack ? "copied" : "used in place", frag_size_of(in, side, pack), why);
}

void rme_plan_explain(FILE *out, const struct rme_plan_in *send, const struct rme_plan_in *recv)
{
    struct rme_plan_in asked = *recv, early = *recv;
    struct rme_plan first, plan, early_plan;

    rme_plan(send, &first);
    asked.send.ready =
        first.offer && (frag_size_of(send, &send->send, first.send_pack) == send->bytes ||
                        (!first.send_pack && send->send.kept &&
                         send->bytes <= RME_OFFERED_FRAGS * send->frag_size));
    asked.send.segments =
        asked.send.ready ? segments(&send->send, first.send_pack) : send->send.segments;
    asked.send.kept = false;
    asked.nothing_to_read = !asked.send.ready;
    asked.ring_max = 0; /* the sender decides on that */
    rme_plan(&asked, &plan);
    if (first.proto == RME_PROTO_RING) /* the receiver has no decision */
        plan = first;
    early.early = true;
    early.ring_max = send->ring_max;
    early.send = rme_plan_unseen_sender(recv->send.server, recv->send.load);
    rme_plan(&early, &early_plan);

    fprintf(out,
            "message   %" PRIu64 " bytes, eager up to %" PRIu64 "\n"
            "limit     eager    %" PRIu64 " bytes: sent in one buffer\n"
            "limit     ring     %" PRIu64 " bytes: written into the ring\n"
            "limit     segment  %" PRIu64 " bytes: copied, and larger ones cached\n",
            send->bytes, send->eager_max, send->eager_max, send->ring_max,
            send->pack_threshold);
    explain_limit(out, "once", &send->limits->once, "if registered for one use");
    explain_limit(out, "list", &send->limits->list,
                  "if the registration of the list is cached");
    fprintf(out, "limit     read     a read request counts as %" PRIu32 " to write\n",
            send->limits->read);
    fprintf(out, "%-18s %-7s %-9s %9s\n%-18s %-7s %-9s %9" PRIu64 "\n", "protocol", "sender",
            "receiver", "requests", rme_proto_name[plan.proto],
            first.send_pack ? "copy" : "direct", plan.recv_pack ? "copy" : "direct",
            plan.requests);
    explain_side(out, "sender", send, &send->send, first.send_pack, first.why_send);
    explain_side(out, "receiver", recv, &recv->recv, plan.recv_pack, plan.why_recv);
    fprintf(out, "because   %s\n", plan.why);
    if (plan.proto >= RME_PROTO_RNDV_WRITE)
        fprintf(out, "RTS %s%s; a receive that is posted first, on an idle link, %s\n",
                first.offer ? "advertises the sender's memory" : "advertises nothing: ",
                first.offer ? "" : first.why,
                early_plan.early_cts ? "advertises its memory immediately"
                                     : "waits for the RTS");
}
