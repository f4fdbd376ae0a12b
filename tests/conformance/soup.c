/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * soup - random exchanges between three engines, checked against a simple model.
 *
 * A channel is (from, to, tag). Its messages meet its receives in posting order: the k-th
 * receive that got a message must have the k-th message that was not cancelled, with the same
 * size and hash, and with unchanged bytes behind and around it. A receive too small for its
 * message ends with -EMSGSIZE and still uses the message up. Memory of failed operations is
 * filled with canaries and checked much later. With cut links messages may be missing, but not
 * doubled, reordered or wrong.
 *
 * Environment: SOUP_SEEDS runs (8), SOUP_OPS operations in each (1500). --seed is the first.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bed.h"
#include "../fabric/loop.h"

enum {
    CLIENTS = 2,
    TAGS = 3,
    CHANNELS = CLIENTS * 2 * TAGS,
    CONTEXTS = 3,
    LIVE_MAX = 120,
    GRAVES = 64
};

struct item {
    struct op op;
    struct blob blob;
    struct channel *channel;
    bool is_send, unexpected, cancelled;
    uint64_t seed, hash;
    int64_t room; /* size of its memory in bytes */
    int live_at;  /* index in soup.live */
};

struct channel {
    int pair;
    bool back; /* from the server */
    int tag;
    struct item **sends, **recvs;
    int nsends, nrecvs, size;
};

struct grave {
    struct blob blob;
};

struct soup {
    uint64_t random, first_random;
    bool lossy;
    struct pair pair[CLIENTS];
    struct channel channel[CHANNELS];
    struct item *live[LIVE_MAX + 2048];
    int nlive;
    struct item *unexpected[CLIENTS][4096];
    int nunexpected[CLIENTS], taken[CLIENTS];
    struct grave grave[GRAVES];
    int ngrave;
    uint64_t posted;
};

static struct soup soup;

static uint64_t roll(uint64_t bound)
{
    return bed_random(&soup.random, bound);
}

static uint64_t hash_more(uint64_t hash, const uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Hashes the first n bytes of the pieces. */
static uint64_t hash_blob(const struct blob *b, int64_t n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (int i = 0; i < b->count && n > 0; i++) {
        int64_t some = b->length[i] < n ? b->length[i] : n;
        hash = hash_more(hash, b->base[i], some);
        n -= some;
    }
    return hash;
}

/* ---- Ends ---- */

/* Keeps memory that must not be written any more, and checks memory kept long ago. */
static void bury(struct blob *b)
{
    struct grave *g = &soup.grave[soup.ngrave++ % GRAVES];

    if (g->blob.arena != NULL) {
        blob_check(&g->blob, 0, 0);
        blob_free(&g->blob);
    }
    blob_canary(b);
    g->blob = *b;
    memset(b, 0, sizeof *b);
}

static void ended(struct item *item)
{
    int error = item->op.error;
    bool fine = !error || error == -ECANCELED || error == -EMSGSIZE ||
                (soup.lossy && error == -ECONNRESET);

    if (!fine)
        fail_msg("an operation ended with %d (%s)", error, strerror(-error));
    if (!item->is_send && !error) {
        item->hash = hash_blob(&item->blob, item->op.actual);
        /* Check that the rest is unchanged: the hash has covered the message. */
        struct blob rest = item->blob;
        int64_t skip = item->op.actual;
        for (int i = 0; i < rest.count; i++) {
            int64_t some = rest.length[i] < skip ? rest.length[i] : skip;
            memset(rest.base[i], 0xc5, (size_t)some);
            skip -= some;
        }
        blob_check(&rest, 0, 0);
    }
    if (item->is_send && !error)
        assert_int_equal(item->op.actual, item->room);
    bury(&item->blob);
}

/* ---- Posting ---- */

/* Sizes known to both ends, in registered memory: such receives send an invitation. */
static const int64_t agreed[] = {20000, 65536, 300000};

static bool is_agreed(int64_t size)
{
    for (size_t i = 0; i < sizeof agreed / sizeof agreed[0]; i++)
        if (size == agreed[i])
            return true;
    return false;
}

static int64_t random_size(void)
{
    switch (roll(24)) {
    case 0:
        return 0;
    case 1 ... 9:
        return (int64_t)roll(400);
    case 10 ... 13:
        return 3900 + (int64_t)roll(400);
    case 14 ... 18:
        return (int64_t)roll(100000);
    case 19 ... 22:
        return agreed[roll(sizeof agreed / sizeof agreed[0])];
    default:
        return (int64_t)roll(1500000);
    }
}

static void random_blob(struct item *item, struct node *n, int64_t size)
{
    if (is_agreed(size))
        blob_zone(&item->blob, n, (size_t)size);
    else if (roll(3))
        blob_misaligned(&item->blob, (size_t)size, (unsigned)roll(64));
    else
        blob_split(&item->blob, size, 1 + (int)roll(70), roll(0));
    item->room = item->blob.total;
}

static struct item *item_new(void)
{
    struct item *item = calloc(1, sizeof *item);

    assert_non_null(item);
    item->seed = roll(1 << 20);
    return item;
}

static void live_add(struct item *item)
{
    soup.posted++;
    item->live_at = -1;
    if (soup.lossy && item->op.rc == -ECONNRESET) {
        item->op.error = item->op.rc;
        item->op.reports = 1;
    } else if (item->op.rc < 0) {
        fail_msg("a post failed: %s", strerror(-item->op.rc));
    }
    if (item->op.reports) {
        ended(item);
        return;
    }
    assert_true(soup.nlive < (int)(sizeof soup.live / sizeof soup.live[0]));
    item->live_at = soup.nlive;
    soup.live[soup.nlive++] = item;
}

static void channel_add(struct channel *c, struct item *item)
{
    if (c->nsends == c->size || c->nrecvs == c->size) {
        c->size = c->size ? c->size * 2 : 64;
        c->sends = realloc(c->sends, (size_t)c->size * sizeof *c->sends);
        c->recvs = realloc(c->recvs, (size_t)c->size * sizeof *c->recvs);
        assert_true(c->sends && c->recvs);
    }
    item->channel = c;
    if (item->is_send)
        c->sends[c->nsends++] = item;
    else
        c->recvs[c->nrecvs++] = item;
}

static void post_on(struct channel *c, bool send, int64_t size)
{
    struct pair *p = &soup.pair[c->pair];
    struct item *item = item_new();
    bool at_server = send == c->back;
    struct node *n = at_server ? p->server : p->client;
    struct rme_addr *other = at_server ? p->to_client : p->to_server;
    int ctx = (int)roll(CONTEXTS);

    item->is_send = send;
    random_blob(item, n, size);
    channel_add(c, item);
    if (send) {
        blob_fill(&item->blob, item->seed);
        item->hash = hash_blob(&item->blob, item->room);
        post_send_ctx(&item->op, n, other, &item->blob, c->tag, ctx);
    } else {
        post_recv_ctx(&item->op, n, other, &item->blob, c->tag, ctx);
    }
    live_add(item);
}

static void post_random(void)
{
    struct channel *c = &soup.channel[roll(CHANNELS)];
    int ahead = c->nsends - c->nrecvs;
    bool send = ahead > 8 ? false : ahead < -8 ? true : roll(2);
    int64_t size = random_size();

    if (c->tag < 0 && roll(8))
        size = agreed[c->pair];
    if (!send && !is_agreed(size) && roll(30))
        size += (int64_t)roll(2) * 1500000; /* mostly large enough, like a server's */
    post_on(c, send, size);
}

static void post_random_unexpected(void)
{
    int k = (int)roll(CLIENTS);
    struct item *item = item_new();

    if (soup.nunexpected[k] == 4096) {
        free(item);
        return;
    }
    item->is_send = item->unexpected = true;
    random_blob(item, soup.pair[k].client,
                (int64_t)roll(roll(4) ? 300 : RME_UNEXPECTED_MAX + 1));
    blob_fill(&item->blob, item->seed);
    item->hash = hash_blob(&item->blob, item->room);
    post_unexpected(&item->op, soup.pair[k].client, soup.pair[k].to_server, &item->blob,
                    soup.nunexpected[k]);
    soup.unexpected[k][soup.nunexpected[k]++] = item;
    live_add(item);
}

/* ---- Completions ---- */

static void claim(struct node *n, const struct rme_done *done)
{
    struct item *item = done->user;

    if (item->op.node != n || item->op.id != done->id || item->live_at < 0 ||
        soup.live[item->live_at] != item)
        fail_msg("%s: a completion that belongs to nobody", n->name);
    if (item->op.reports++)
        fail_msg("%s: reported twice", n->name);
    item->op.error = done->error;
    item->op.actual = done->actual;
    soup.live[item->live_at] = soup.live[--soup.nlive];
    soup.live[item->live_at]->live_at = item->live_at;
    item->live_at = -1;
    ended(item);
}

static void take_unexpected(void)
{
    struct node *n = soup.pair[0].server;
    struct rme_unexpected u[3];
    int count = rme_test_unexpected(n->rme, u, 1 + (int)roll(3), 0);

    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < CLIENTS && soup.pair[k].to_client != u[i].addr)
            k++;
        assert_true(k < CLIENTS);
        /* Skip cancelled and lost messages, no others. */
        for (; soup.taken[k] < u[i].tag; soup.taken[k]++) {
            const struct item *missing = soup.unexpected[k][soup.taken[k]];
            if (!soup.lossy && missing->op.error != -ECANCELED && !missing->cancelled)
                fail_msg("unexpected message %d of client %d is missing", soup.taken[k], k);
        }
        assert_int_equal(u[i].tag, soup.taken[k]);
        const struct item *item = soup.unexpected[k][soup.taken[k]++];
        struct blob b = {.count = 1, .base = {u[i].buffer}, .length = {u[i].size}};
        assert_int_equal(u[i].size, item->room);
        assert_true(hash_blob(&b, u[i].size) == item->hash);
        assert_int_equal(rme_unexpected_free(n->rme, u[i].buffer), 0);
    }
}

static void look_by_id(struct node *n)
{
    rme_id ids[8];
    struct rme_done done[8];
    int index[8], count = 0;

    for (int i = 0; i < 8 && soup.nlive; i++) {
        const struct item *item = soup.live[roll((uint64_t)soup.nlive)];
        bool twice = false;
        for (int k = 0; k < count; k++)
            twice |= ids[k] == item->op.id;
        if (item->op.node == n && !twice)
            ids[count++] = item->op.id;
    }
    int found = rme_test_some(n->rme, ids, count, index, done, 0);
    assert_in_range(found, 0, count);
    for (int i = 0; i < found; i++) {
        assert_true(done[i].id == ids[index[i]]);
        claim(n, &done[i]);
    }
}

static void look_somewhere(void)
{
    uint64_t who = roll(CLIENTS + 1);
    struct node *n = who == CLIENTS ? soup.pair[0].server : soup.pair[who].client;
    struct rme_done done[6];

    switch (roll(8)) {
    case 0:
        look_by_id(n);
        break;
    case 1:
        take_unexpected();
        break;
    default: {
        int max = 1 + (int)roll(6);
        int count = rme_test_context(n->rme, (int)roll(CONTEXTS), done, max, 0);
        assert_in_range(count, 0, max);
        for (int i = 0; i < count; i++)
            claim(n, &done[i]);
    }
    }
}

/* ---- The end of a run ---- */

static void cancel_item(struct item *item)
{
    item->cancelled = true;
    op_cancel(&item->op);
}

static void look_until_quiet(int64_t end)
{
    int quiet = 0;

    for (int before = soup.nlive; quiet < 2000; quiet++) {
        look_somewhere();
        if (soup.nlive != before)
            quiet = 0;
        before = soup.nlive;
        if (lane_now() > end)
            fail_msg("%d operations do not end", soup.nlive);
    }
}

/* Posts a receive for every send; cancels receives without a message. */
static void drain(void)
{
    int64_t end = lane_now() + BED_PATIENCE_MS * 2;

    while (soup.nlive) {
        look_until_quiet(end);
        for (int i = soup.nlive - 1; i >= 0; i--) {
            struct item *item = soup.live[i];
            if (!item->is_send || item->unexpected)
                cancel_item(item);
            else if (!soup.lossy || roll(2))
                post_on(item->channel, false, 2000000);
            else
                cancel_item(item);
        }
    }
}

static int consumed(const struct channel *c, bool sends)
{
    struct item *const *items = sends ? c->sends : c->recvs;
    int count = sends ? c->nsends : c->nrecvs, n = 0;

    for (int i = 0; i < count; i++)
        n += items[i]->op.error == 0 || items[i]->op.error == -EMSGSIZE;
    return n;
}

/* Receives the remaining messages. */
static void receive_leftovers(void)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    for (int i = 0; i < CHANNELS; i++) {
        struct channel *c = &soup.channel[i];
        while (consumed(c, true) > consumed(c, false)) {
            post_on(c, false, 2000000);
            while (soup.nlive) {
                look_somewhere();
                if (lane_now() > end)
                    fail_msg("a message of tag %d was lost", c->tag);
            }
        }
    }
    for (int k = 0; k < CLIENTS; k++) {
        while (soup.nunexpected[k] && soup.taken[k] < soup.nunexpected[k]) {
            const struct item *next = soup.unexpected[k][soup.taken[k]];
            if (next->cancelled || next->op.error) {
                /* The cancelled message may have been in flight already. */
                for (int tries = 0; tries < 2000; tries++)
                    look_somewhere();
                if (soup.unexpected[k][soup.taken[k]] == next)
                    soup.taken[k]++;
                continue;
            }
            look_somewhere();
            if (lane_now() > end)
                fail_msg("an unexpected message was lost");
        }
    }
}

static bool meets(const struct item *send, const struct item *recv)
{
    if (recv->op.error == -EMSGSIZE)
        return send->room > recv->room;
    /* With cut links a send may fail though its message has arrived. */
    return (soup.lossy || !send->op.error) && send->room == recv->op.actual &&
           send->hash == recv->hash;
}

static void judge_channel(const struct channel *c)
{
    int s = 0;

    for (int r = 0; r < c->nrecvs; r++) {
        const struct item *recv = c->recvs[r];
        if (recv->op.error && recv->op.error != -EMSGSIZE)
            continue;
        /* Strictly the next message that was not cancelled; with cut links, any later one. */
        while (s < c->nsends &&
               (soup.lossy ? !meets(c->sends[s], recv)
                           : c->sends[s]->op.error && c->sends[s]->op.error != -EMSGSIZE))
            s++;
        if (s == c->nsends)
            fail_msg("a receive of pair %d, tag %d took a message that was never sent", c->pair,
                     c->tag);
        if (!meets(c->sends[s], recv))
            fail_msg(
                "pair %d%s, tag %d: receive %d (%lld of %lld bytes, error %d) took message %d "
                "(%lld bytes, error %d)",
                c->pair, c->back ? " back" : "", c->tag, r, (long long)recv->op.actual,
                (long long)recv->room, recv->op.error, s, (long long)c->sends[s]->room,
                c->sends[s]->op.error);
        s++;
    }
}

static void clear_run(void)
{
    for (int i = 0; i < CHANNELS; i++) {
        struct channel *c = &soup.channel[i];
        for (int k = 0; k < c->nsends; k++)
            free(c->sends[k]);
        for (int k = 0; k < c->nrecvs; k++)
            free(c->recvs[k]);
        free(c->sends);
        free(c->recvs);
        *c = (struct channel){.pair = i / TAGS / 2, .back = i / TAGS % 2, .tag = i % TAGS - 1};
    }
    for (int k = 0; k < CLIENTS; k++) {
        for (int i = 0; i < soup.nunexpected[k]; i++)
            free(soup.unexpected[k][i]);
        soup.nunexpected[k] = soup.taken[k] = 0;
    }
    for (int i = 0; i < GRAVES; i++) {
        if (soup.grave[i].blob.arena != NULL) {
            blob_check(&soup.grave[i].blob, 0, 0);
            blob_free(&soup.grave[i].blob);
        }
    }
    soup.nlive = 0;
}

static void stir(int ops)
{
    uint64_t kill_at = soup.lossy ? roll((uint64_t)ops) : UINT64_MAX, begin = soup.posted;

    while (soup.posted - begin < (uint64_t)ops) {
        uint64_t what = roll(100);
        if (what < 35 && soup.nlive < LIVE_MAX)
            post_random();
        else if (what < 40 && soup.nlive < LIVE_MAX)
            post_random_unexpected();
        else if (what < 42 && soup.nlive)
            cancel_item(soup.live[roll((uint64_t)soup.nlive)]);
        else
            look_somewhere();
        if (soup.posted - begin >= kill_at) {
            loop_kill_links("server");
            break;
        }
    }
}

static void run(int ops)
{
    stir(ops);
    drain();
    if (!soup.lossy)
        receive_leftovers();
    for (int i = 0; i < CHANNELS; i++)
        judge_channel(&soup.channel[i]);
    clear_run();
}

/* Limits: usual ones, and some so small that they are reached.  The first run has the first of
 * each row, the others draw one of each. */
static const char *const drawn[][3] = {
    {"rndv=auto", "rndv=write", "rndv=read"},
    {"credits=8", "credits=4", "credits=4,credits_pool=0"},
    {"eager_ring_bytes=512K", "eager_ring_bytes=0", "eager_ring_bytes=40000"},
    {"eager_window=1M", "eager_window=64K", "eager_max=0"},
    {"fragment_bytes=1M", "fragment_bytes=64K", "rdma_inflight_bytes=64K"},
    {"regcache_entries=1024", "regcache_entries=2", "regcache_entries=0"},
    {"loop_windows=256", "loop_windows=0", "loop_windows=3"},
    {"loop_sq_depth=64", "loop_sq_depth=2", "loop_late_done=20"},
};

static void open_all(uint64_t seed, bool draws)
{
    static char options[512];
    int length;

    soup.random = seed;
    length = snprintf(options, sizeof options, "loop_chaos=1,loop_seed=%llu,%s",
                      (unsigned long long)seed, soup.lossy ? "backoff_max_ms=1" : "poll_us=0");
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++)
        length += snprintf(options + length, sizeof options - (size_t)length, ",%s",
                           drawn[i][draws ? roll(sizeof drawn[i] / sizeof drawn[i][0]) : 0]);
    bed_options(options);
    soup.pair[0].server = node_open("server", lane_uri(0));
    for (int k = 0; k < CLIENTS; k++) {
        struct pair *p = &soup.pair[k];
        p->server = soup.pair[0].server;
        p->client = node_open(k ? "bob" : "alice", NULL);
        p->to_server = node_dial(p->client, lane_uri(0));
        pair_meet(p);
    }
    for (int c = 1; c < CONTEXTS; c++) {
        assert_int_equal(rme_context_open(soup.pair[0].server->rme, c), 0);
        for (int k = 0; k < CLIENTS; k++)
            assert_int_equal(rme_context_open(soup.pair[k].client->rme, c), 0);
    }
    clear_run();
}

static void seeds(bool lossy)
{
    uint64_t count = lane_env("SOUP_SEEDS", 8);
    int ops = (int)lane_env("SOUP_OPS", 1500);
    uint64_t invited = 0;

    soup.lossy = lossy;
    for (uint64_t i = 0; i < count; i++) {
        printf("# seed %llu\n", (unsigned long long)(lane.seed + i));
        fflush(stdout);
        open_all(lane.seed + i, i > 0);
        if (!lossy) {
            run(ops);
        } else {
            for (int epoch = 0; epoch < 4; epoch++) {
                run(ops / 4);
                for (int k = 0; k < CLIENTS; k++)
                    pair_reconnect(&soup.pair[k]);
            }
        }
        invited += node_counter(soup.pair[0].server, "invites_taken");
        for (int k = 0; k < CLIENTS; k++)
            invited += node_counter(soup.pair[k].client, "invites_taken");
        bed_again();
    }
    printf("# %llu messages were invited\n", (unsigned long long)invited);
    assert_true(invited > 0); /* in the first run */
}

static void soup_of_messages(void **state)
{
    (void)state;
    seeds(false);
}

static void soup_with_cut_links(void **state)
{
    (void)state;
    if (!lane.is_loop)
        skip();
    seeds(true);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        BED_TEST(soup_of_messages),
        BED_TEST(soup_with_cut_links),
    };

    return lane_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
