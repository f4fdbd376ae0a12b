/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/model/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/net.h"
#include "tests/fabric/loop.h"
#include "tests/lib/clock.h"

enum { SLOTS = 32, PIECES = 128, TAG = 7, PUMPS = 400, PAGE = 4096 };
/* messages, all of the warm-up received before the others are sent; fewer of LARGE bytes */
enum { FEW_SLOTS = 8, WARM = 16, MANY = 64, FEW = 24, LARGE = 1 << 20 };

/* Memory of one side: a slot for each message in flight, at least FEW_SLOTS. */
struct side {
    struct node node;
    struct rme_addr *peer;
    uint8_t *arena;
    void *base[SLOTS][PIECES];
    int64_t length[PIECES];
    int pieces;
    uint32_t slots;
    bool busy[SLOTS];
    uint32_t posted, ended;
};

struct stream {
    const struct shape *shape;
    struct side send, recv;
    uint32_t total;            /* messages */
    double begin[WARM + MANY]; /* of each post */
    double sum, last;          /* ns: latencies; the last receipt */
    const char *wrong;
};

/* ---- Memory ---- */

/* Pieces of a message lie one piece apart; a slot begins on a page. */
static bool side_memory(struct side *s, const struct shape *shape, uint32_t pieces)
{
    uint64_t each = shape->bytes / pieces;
    uint64_t slot = (2 * shape->bytes + PAGE - 1) / PAGE * PAGE;

    s->pieces = (int)pieces;
    s->slots = shape->in_flight > FEW_SLOTS ? shape->in_flight : FEW_SLOTS;
    s->arena = aligned_alloc(PAGE, slot * s->slots);
    if (s->arena == NULL)
        return false;
    memset(s->arena, 1, slot * s->slots);
    for (uint32_t p = 0; p < pieces; p++) {
        s->length[p] = (int64_t)each;
        for (uint32_t i = 0; i < s->slots; i++)
            s->base[i][p] = s->arena + slot * i + 2 * each * p;
    }
    return true;
}

/* The place of a message's number: its first or last 8 bytes. */
static void *stamp_at(struct side *s, uint32_t slot, bool end)
{
    int p = end ? s->pieces - 1 : 0;

    return (uint8_t *)s->base[slot][p] + (end ? s->length[p] - 8 : 0);
}

static void stamp(struct side *s, uint32_t number)
{
    uint64_t value = number;

    memcpy(stamp_at(s, number % s->slots, false), &value, 8);
    memcpy(stamp_at(s, number % s->slots, true), &value, 8);
}

static bool is_stamped(struct side *s, uint32_t number)
{
    uint64_t first, last;

    memcpy(&first, stamp_at(s, number % s->slots, false), 8);
    memcpy(&last, stamp_at(s, number % s->slots, true), 8);
    return first == number && last == number;
}

/* ---- Turns ---- */

static bool post(struct stream *s, struct side *side, bool sends)
{
    uint32_t number = side->posted, slot = number % side->slots;
    struct rme_list list = {side->base[slot], side->length, side->pieces};
    rme_id id;
    int64_t actual;
    int rc;

    side->busy[slot] = true;
    side->posted++;
    if (sends) {
        s->begin[number] = side->node.clock;
        stamp(side, number);
    }
    node_call(&side->node);
    if (sends)
        rc = rme_post_send(side->node.rme, side->peer, &list, TAG, 0, &side->busy[slot], &id);
    else
        rc = rme_post_recv(side->node.rme, side->peer, &list, TAG, 0, &side->busy[slot],
                           &actual, &id);
    if (rc < 0)
        s->wrong = "a post failed";
    if (rc == 1) {
        side->busy[slot] = false;
        side->ended++;
    }
    return true;
}

static bool test(struct stream *s, struct side *side, void (*each)(struct stream *, uint32_t))
{
    struct rme_done done[SLOTS];

    node_call(&side->node);
    int n = rme_test_context(side->node.rme, 0, done, (int)side->slots, 0);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            node_call(&side->node); /* each completion costs as much as the first */
        *(bool *)done[i].user = false;
        if (done[i].error)
            s->wrong = "an operation failed";
        if (each != NULL)
            each(s, (uint32_t)((bool *)done[i].user - side->busy));
        side->ended++;
    }
    return n > 0;
}

static bool may_post(const struct stream *s)
{
    const struct side *a = &s->send, *b = &s->recv;

    return a->posted < b->posted && a->posted - b->ended < s->shape->in_flight &&
           a->posted - a->ended < s->shape->in_flight && !a->busy[a->posted % a->slots] &&
           (a->posted != WARM || b->ended == WARM);
}

static bool sender_turn(struct node *n)
{
    struct stream *s = n->arg;
    struct side *a = &s->send;
    bool did = false;

    while (may_post(s))
        did = post(s, a, true);
    return test(s, a, NULL) || did;
}

static void received(struct stream *s, uint32_t slot)
{
    uint32_t number = s->recv.posted - 1;

    while (number % s->recv.slots != slot)
        number--;
    if (!is_stamped(&s->recv, number))
        s->wrong = "a message arrived with other contents";
    s->last = s->recv.node.clock;
    if (number >= WARM)
        s->sum += s->last - s->begin[number];
}

static bool receiver_turn(struct node *n)
{
    struct stream *s = n->arg;
    struct side *b = &s->recv;
    bool did = false;

    while (b->posted < s->total && b->posted - b->ended < s->shape->in_flight &&
           !b->busy[b->posted % b->slots])
        did = post(s, b, false);
    did = test(s, b, received) || did;
    if (did)
        node_wake(&s->send.node);
    return did;
}

static bool is_over(void *arg)
{
    const struct stream *s = arg;

    return s->wrong != NULL || (s->recv.ended == s->total && s->send.ended == s->send.posted);
}

/* ---- Life, in stopped time ---- */

static void pump(struct stream *s)
{
    struct rme_done done;
    struct rme_unexpected u;

    for (int i = 0; i < PUMPS; i++) {
        rme_test_context(s->send.node.rme, 0, &done, 1, 0);
        rme_test_context(s->recv.node.rme, 0, &done, 1, 0);
        if (rme_test_unexpected(s->recv.node.rme, &u, 1, 0) == 1) {
            s->recv.peer = u.addr;
            rme_unexpected_free(s->recv.node.rme, u.buffer);
        }
    }
}

static int meet(struct stream *s)
{
    static uint64_t word;
    void *base = &word;
    int64_t length = sizeof word;
    struct rme_list list = {&base, &length, 1};
    rme_id id;

    if (rme_addr_parse("loop", s->recv.node.uri, &s->send.peer) ||
        rme_post_unexpected(s->send.node.rme, s->send.peer, &list, TAG, 0, NULL, &id) < 0)
        return -1;
    pump(s);
    return s->recv.peer != NULL ? 0 : -1;
}

static void print_protocols(const struct node *n, char *text, size_t size)
{
    static const char *const names[][2] = {{"sends_eager", "eager"},
                                           {"sends_eager_rdma", "ring"},
                                           {"sends_rndv_write", "write"},
                                           {"sends_rndv_read", "read"}};
    uint64_t most = 0, ring = rme_counter_value(n->rme, "sends_eager_rdma");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t times = rme_counter_value(n->rme, names[i][0]) - (i == 0 ? ring : 0);
        if (times <= most)
            continue;
        most = times;
        snprintf(text, size, "%s", names[i][1]);
    }
}

static int run(struct stream *s, struct outcome *out)
{
    struct node *nodes[] = {&s->recv.node, &s->send.node};
    struct loop_census census;

    nodes_start(nodes, 2);
    if (!nodes_run(is_over, s))
        s->wrong = "the stream stands still";
    nodes_stop();
    loop_census(&census);
    if (census.violations)
        s->wrong = census.violation;
    if (s->wrong != NULL) {
        fprintf(stderr, "model: %s, %llu bytes: %s\n", s->send.node.device->name,
                (unsigned long long)s->shape->bytes, s->wrong);
        return -1;
    }
    out->ns =
        (s->shape->in_flight == 1 ? s->sum : s->last - s->begin[WARM]) / (s->total - WARM);
    print_protocols(&s->send.node, out->chosen, sizeof out->chosen);
    return 0;
}

static int open_side(struct side *s, const struct stream_options *options, const char *own)
{
    char text[512];

    snprintf(text, sizeof text, "%s%s%s", options->both, *own ? "," : "", own);
    return node_open(&s->node, text);
}

int stream_run(const struct device *d, const struct shape *shape,
               const struct stream_options *options, struct outcome *out)
{
    struct stream *s = calloc(1, sizeof *s);
    int rc = -1;

    if (s == NULL)
        return -1;
    s->shape = shape;
    s->total = WARM + (shape->bytes < LARGE ? MANY : FEW);
    s->recv.node = (struct node){.device = d,
                                 .name = "server",
                                 .uri = "loop://server:1",
                                 .turn = receiver_turn,
                                 .arg = s};
    s->send.node = (struct node){.device = d, .name = "client", .turn = sender_turn, .arg = s};
    loop_clear();
    clock_set();
    clock_tick_ns(CLOCK_TICK_NS);
    if (side_memory(&s->send, shape, shape->send_pieces) &&
        side_memory(&s->recv, shape, shape->recv_pieces) &&
        !open_side(&s->recv, options, options->receiver)) {
        if (!open_side(&s->send, options, options->sender)) {
            rc = meet(s) ? -1 : run(s, out);
            pump(s);
            node_close(&s->send.node);
        }
        node_close(&s->recv.node);
    }
    if (s->recv.peer != NULL)
        rme_addr_free(s->recv.peer);
    if (s->send.peer != NULL)
        rme_addr_free(s->send.peer);
    clock_release();
    free(s->send.arena);
    free(s->recv.arena);
    free(s);
    return rc;
}
