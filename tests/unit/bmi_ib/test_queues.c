/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Queues, buffers and windows over the software HCA: counts of requests, shares of buffers,
 * failing queues. Both sides are in this process; cases add to the argument's options.
 */
#include <errno.h>
#include <fcntl.h>
#include "bmi_ib/link/links.h"
#include "wire_host.h"

static struct wire server, client;

static struct ib_rail *rail_of(const struct wire *w)
{
    return w->f->rail[0];
}

/* Stops and advances the clock of the devices, or lets it run again (UINT64_MAX). */
static void device_clock(uint64_t ns)
{
    uint64_t (*clock)(uint64_t) =
        (uint64_t(*)(uint64_t))(uintptr_t)wire_symbol("emuverbs_clock");
    assert_non_null(clock);
    clock(ns);
}

/* Polls both until `w` has seen n events of a kind. */
static void both_until(struct wire *w, enum rme_event_type type, int n)
{
    time_t end = wire_now() + PATIENCE_S;
    while (wire_count(w, type) < n) {
        assert_true(wire_now() <= end);
        wire_poll(&client);
        wire_poll(&server);
    }
}

static void forget(void)
{
    client.nseen = server.nseen = 0;
}

static void connect_both(const char *uri)
{
    forget();
    (void)wire_dial(&client, uri);
    both_until(&client, RME_EV_LINK_UP, 1);
    both_until(&server, RME_EV_LINK_UP, 1);
    forget();
}

/* Sends n messages, while the server does not poll. */
static void send_some(int n)
{
    for (int i = 0; i < n; i++)
        assert_true(wire_send(&client, "hello"));
    do
        wire_poll(&client);
    while (client.link->queue.head != NULL && client.link->state == IB_UP);
    for (int i = 0; i < 3; i++)
        wire_poll(&client);
    assert_int_equal(client.link->state, IB_UP);
    forget();
}

/* Sends as many messages as receives are promised. */
static void fill(void)
{
    send_some(WIRE_RX);
    both_until(&server, RME_EV_RECV, WIRE_RX);
}

/* Waits for the end of the link at both sides. The server's error is `error`. */
static void both_end(int error)
{
    both_until(&server, RME_EV_LINK_DOWN, 1);
    both_until(&client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&server, RME_EV_LINK_DOWN, 0)->error, error);
    server.ops->link_free(wire_event(&server, RME_EV_LINK_DOWN, 0)->link);
    client.ops->link_free(wire_event(&client, RME_EV_LINK_DOWN, 0)->link);
}

/* Opens both with the options of this run and these. */
static const char *open_with(const char *options)
{
    const char *uri = wire_uri("127.0.0.1"), *kept = wire_options, *first = kept ?: "";
    char all[256];
    snprintf(all, sizeof(all), "%s%s%s", first, *first ? "," : "", options);
    wire_options = all;
    wire_open(&server, uri);
    wire_open(&client, NULL);
    wire_options = kept;
    return uri;
}

static void free_links(const struct wire *w)
{
    struct rme_link *l;
    while ((l = list_first(&rail_of(w)->links, struct rme_link, all_entry)) != NULL)
        w->ops->link_free(l);
}

/* Frees the remaining links: all buffers, CQ space and windows come back. */
static void close_both(void)
{
    struct wire *both[] = {&client, &server};
    for (int i = 0; i < 2; i++) {
        struct ib_rail *rail = rail_of(both[i]);
        free_links(both[i]);
        assert_int_equal(rail->tx.nfree, rail->tx.slabs * rail->slab);
        assert_int_equal(rail->tx.unsignalled, 0);
        assert_int_equal(rail->cq.used, rail->srq ? rail->srq_depth : 0);
        assert_int_equal(rail->mws.made, rail->mws.nfree);
        assert_int_equal(both[i]->f->unsettled, 0);
        wire_close(both[i]);
    }
}

/* ---- Counts ---- */

enum kind { SENDS, WRITES, WRITES_IMM, BINDS, CLOSES, SIGNALLED, INLINE, WINDOWS, KINDS };
static const char *const names[KINDS] = {"wr_send",   "wr_write",     "wr_write_imm",
                                         "wr_bind",   "wr_local_inv", "wr_signalled",
                                         "wr_inline", "live_mw"};
static int64_t before[KINDS];
static uint64_t doorbells;

static void count_from_here(const struct wire *w)
{
    for (int i = 0; i < KINDS; i++)
        before[i] = wire_counter(names[i]);
    doorbells = w->stats.value[RME_C_DOORBELLS];
}

static int64_t counted(enum kind kind)
{
    return wire_counter(names[kind]) - before[kind];
}

static int doorbells_of(const struct wire *w)
{
    return (int)(w->stats.value[RME_C_DOORBELLS] - doorbells);
}

/* Small messages signal once per half queue, or each with signal_each; they are inline and have
 * a doorbell each. */
static void small_messages_signal_rarely(void **state)
{
    static const struct {
        const char *options;
        int signalled;
    } row[] = {{"sq_depth=128", 1000 / 64}, {"sq_depth=128,signal_each=1", 1000}};
    (void)state;
    for (int r = 0; r < 2; r++) {
        connect_both(open_with(row[r].options));
        count_from_here(&client);
        for (int i = 0; i < 1000; i++) {
            assert_true(wire_send(&client, "hello"));
            wire_poll(&client);
            wire_poll(&server);
        }
        assert_int_equal(counted(SENDS), 1000);
        assert_int_equal(counted(INLINE), 1000);
        assert_int_equal(counted(SIGNALLED), row[r].signalled);
        assert_int_equal(client.stats.value[RME_C_SIGNALLED], row[r].signalled);
        assert_int_equal(doorbells_of(&client), 1000);
        close_both();
    }
}

static bool send_now(const char *text, size_t length)
{
    char payload[400] = "";
    strcpy(payload, text);
    return client.ops->send_now(client.link, payload, 2, payload + 2, length - 2);
}

/* A message that is sent at once overtakes neither a queued one nor a receive to be posted, and
 * waits while the device's queue is full. Queued ones have one doorbell. */
static void message_sent_at_once_overtakes_nothing(void **state)
{
    int n = 0;
    (void)state;
    connect_both(open_with("sq_depth=16"));
    count_from_here(&client);
    assert_true(send_now("one", 4));
    assert_true(send_now("two", 400)); /* in a send buffer */
    assert_int_equal(doorbells_of(&client), 2);
    assert_true(wire_send(&client, "three") && wire_send(&client, "four"));
    assert_false(send_now("five", 5));
    assert_int_equal(counted(SENDS), 2);
    client.ops->flush(client.f);
    client.ops->flush(client.f);
    assert_int_equal(doorbells_of(&client), 3);
    both_until(&server, RME_EV_RECV, 4);
    static const char *const order[] = {"one", "two", "three", "four"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(wire_event(&server, RME_EV_RECV, i)->text, order[i]);

    assert_int_equal(client.ops->rx_reserve(client.link, 20), 0);
    assert_false(send_now("six", 4));
    client.ops->flush(client.f);
    while (send_now("seven", 6))
        n++;
    assert_in_range(n, 1, 16);
    both_until(&server, RME_EV_RECV, 4 + n);
    assert_true(send_now("eight", 6));
    close_both();
}

/* Registered memory of both, and transfers of it. */
static struct {
    uint8_t here[4096], there[4096];
    struct rme_mr mine, theirs;
    struct rme_sge seg[64];
    struct rme_rdma_seg piece[64];
} memory;

static void memory_open(void)
{
    assert_int_equal(client.ops->reg(client.f, memory.here, sizeof(memory.here),
                                     RME_ACCESS_LOCAL_WRITE, &memory.mine),
                     0);
    assert_int_equal(server.ops->reg(server.f, memory.there, sizeof(memory.there),
                                     RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE,
                                     &memory.theirs),
                     0);
    uint64_t rkey = server.ops->link_key(server.link, memory.theirs.rkey);
    for (int i = 0; i < 64; i++) {
        memory.seg[i] = (struct rme_sge){memory.here + 64 * i, 64, memory.mine.lkey};
        memory.piece[i] = (struct rme_rdma_seg){memory.theirs.base + 64 * (uint64_t)i, rkey,
                                                &memory.seg[i], 1};
    }
}

static void memory_close(void)
{
    client.ops->dereg(client.f, &memory.mine);
    server.ops->dereg(server.f, &memory.theirs);
}

/* A list of 64 writes has one event, and, in a queue that holds it, one doorbell. Half of the
 * queue and the last write are signalled, also the last of each batch if more follow. */
static void list_of_writes_has_few_signals(void **state)
{
    static const struct {
        const char *options;
        int signalled, doorbells;
    } row[] = {
        {"sq_depth=64", 2, 1}, {"sq_depth=64,signal_each=1", 64, 1}, {"sq_depth=9", 15, 8}};
    (void)state;
    for (int r = 0; r < 3; r++) {
        connect_both(open_with(row[r].options));
        memory_open();
        struct rme_rdma_op x = {
            .notify = RME_NOTIFY_IMM, .imm = 77, .piece = memory.piece, .npiece = 64};
        count_from_here(&client);
        client.ops->rdma_op(client.link, &x);
        client.ops->flush(client.f);
        both_until(&client, RME_EV_RDMA_DONE, 1);
        assert_int_equal(counted(WRITES), 63);
        assert_int_equal(counted(WRITES_IMM), 1);
        assert_int_equal(counted(SIGNALLED), row[r].signalled);
        assert_int_equal(doorbells_of(&client), row[r].doorbells);
        both_until(&server, RME_EV_IMM, 1);
        assert_int_equal(wire_event(&server, RME_EV_IMM, 0)->imm, 77);
        memory_close();
        close_both();
    }
}

/* Work behind reads is not fenced: it reaches the peer while the reads are under way. */
static void writes_and_messages_pass_reads(void **state)
{
    (void)state;
    if (getenv("EMUVERBS_READ_DELAY_US") == NULL)
        skip();
    connect_both(open_with(""));
    memory_open();
    struct rme_rdma_op read = {.read = true, .piece = memory.piece, .npiece = 3};
    struct rme_rdma_op write = {
        .notify = RME_NOTIFY_IMM, .imm = 5, .piece = memory.piece + 3, .npiece = 1};
    device_clock(0);
    client.ops->rdma_op(client.link, &read);
    client.ops->rdma_op(client.link, &write);
    assert_true(wire_send(&client, "behind"));
    both_until(&server, RME_EV_RECV, 1);
    assert_int_equal(wire_count(&server, RME_EV_IMM), 1);
    assert_int_equal(wire_count(&client, RME_EV_RDMA_DONE), 0);
    device_clock(1000000000);
    both_until(&client, RME_EV_RDMA_DONE, 2);
    device_clock(UINT64_MAX);
    memory_close();
    close_both();
}

/* Queueing on a link that is being lost, or is lost, posts nothing. */
static void sending_on_lost_link_posts_nothing(void **state)
{
    (void)state;
    connect_both(open_with(""));
    memory_open();
    client.ops->link_disconnect(client.link, 0);
    for (int down = 0; down < 2; down++) {
        struct rme_rdma_op x = {.notify = RME_NOTIFY_MSG,
                                .tx = client.ops->tx_get(client.link),
                                .tx_length = 5,
                                .piece = memory.piece,
                                .npiece = 2};
        assert_non_null(x.tx);
        count_from_here(&client);
        assert_true(wire_send(&client, "too late"));
        client.ops->rdma_op(client.link, &x);
        assert_false(send_now("now", 4));
        client.ops->flush(client.f);
        assert_int_equal(doorbells_of(&client) + counted(SENDS) + counted(WRITES), 0);
        both_until(&client, RME_EV_LINK_DOWN, 1);
    }
    assert_int_equal(wire_count(&client, RME_EV_RDMA_DONE), 0);
    memory_close();
    close_both();
}

/* ---- Send buffers ---- */

static void limit_buffers(struct wire *w, uint32_t all, uint32_t per_link)
{
    rail_of(w)->tx.max = all;
    rail_of(w)->tx.per_link = per_link;
}

/* A link gets a buffer after a poll, if not before, for any limit. */
static void link_never_waits_for_itself(void **state)
{
    (void)state;
    for (uint32_t per_link = 8; per_link <= 64; per_link *= 2) {
        connect_both(open_with("max_inline=0,sq_depth=1024"));
        limit_buffers(&client, 64, per_link);
        for (int i = 0; i < 1000; i++) {
            if (!wire_send(&client, "hello")) {
                wire_poll(&client);
                assert_true(wire_send(&client, "hello"));
            }
            client.ops->flush(client.f);
            wire_poll(&server);
        }
        close_both();
    }
}

/* Idle links, whose last requests are unsignalled, hold few buffers: 40 of them find some. */
static void idle_links_leave_buffers(void **state)
{
    enum { LINKS = 40 };
    struct rme_link *link[LINKS];
    const char *uri = open_with("max_inline=0");
    (void)state;
    limit_buffers(&client, 128, 64);
    for (int i = 0; i < LINKS; i++) {
        connect_both(uri);
        link[i] = client.link;
    }
    for (int i = 0; i < 100 * LINKS; i++) {
        client.link = link[i % LINKS];
        assert_true(wire_send(&client, "hello"));
        wire_poll(&client);
        wire_poll(&server);
        const struct ib_tx_pool *p = &rail_of(&client)->tx;
        assert_true(p->nfree + 1 >= p->slabs * rail_of(&client)->slab * 3 / 4);
    }
    close_both();
}

/* A link without a buffer gets one although others want many, and while few are free each
 * message is signalled. For each returned buffer one waiting link is notified, in turn. */
static void waiting_links_notified_in_turn(void **state)
{
    struct rme_link *link[3];
    void *kept[128], *tx[2], *more[3];
    int n = 0;
    const char *uri = open_with("max_inline=0");
    (void)state;
    limit_buffers(&client, 128, 128);
    for (int i = 0; i < 3; i++) {
        connect_both(uri);
        link[i] = client.link;
    }
    while ((kept[n] = client.ops->tx_get(link[2])) != NULL)
        n++;
    assert_int_equal(n, 128 - 128 / 8);
    for (int i = 0; i < 2; i++)
        client.ops->tx_put(link[2], kept[--n]);
    client.link = link[0];
    for (int scarce = 0; scarce < 2; scarce++) { /* the second one leaves few */
        count_from_here(&client);
        assert_true(wire_send(&client, "hello"));
        client.ops->flush(client.f);
        assert_int_equal(counted(SIGNALLED), scarce);
    }
    for (time_t end = wire_now() + PATIENCE_S; rail_of(&client)->tx.nfree < 18;) {
        assert_true(wire_now() <= end);
        wire_poll(&client);
    }
    while ((kept[n] = client.ops->tx_get(link[2])) != NULL)
        n++;
    forget();
    for (int i = 0; i < 2; i++) {
        tx[i] = client.ops->tx_get(link[i]);
        assert_non_null(tx[i]);
        assert_null(client.ops->tx_get(link[i]));
    }
    while (n > 128 - 128 / 8 - 2) /* as many as the two have taken */
        client.ops->tx_put(link[2], kept[--n]);
    wire_poll(&client);
    assert_int_equal(client.nseen, 0);
    for (int i = 0; i < 3; i++) { /* the greedy one waits longest */
        struct rme_link *l = link[(i + 2) % 3];
        client.ops->tx_put(link[2], kept[--n]);
        forget();
        wire_poll(&client);
        assert_int_equal(client.nseen, 1);
        assert_int_equal(client.seen[0].type, RME_EV_TX_ROOM);
        assert_ptr_equal(client.seen[0].link, l);
        more[i] = client.ops->tx_get(l);
        assert_non_null(more[i]);
    }
    for (int i = 0; i < 3; i++)
        client.ops->tx_put(link[(i + 2) % 3], more[i]);
    for (int i = 0; i < 2; i++)
        client.ops->tx_put(link[i], tx[i]);
    while (n > 0)
        client.ops->tx_put(link[2], kept[--n]);
    close_both();
}

/* ---- Peers that receive nothing ---- */

enum { MUTE = 15, FULL = 7, EACH = 8, CHECKS = 8 }; /* seven hold 8 buffers, the others one */

static struct mute {
    struct rdma_cm_id *id;
    struct rme_link *link;
} mute[MUTE];
static struct rdma_event_channel *channel;

/* Sends to a mute peer as much as the link may. */
static void mute_fill(const struct mute *m, int most)
{
    void *tx;
    for (; most-- > 0 && (tx = server.ops->tx_get(m->link)) != NULL;)
        server.ops->tx_send(m->link, memset(tx, 'x', 300), 300);
    server.ops->flush(server.f);
}

/* Opens a server whose mute peers hold all send buffers, and a client. Returns its link. */
static struct rme_link *open_mute(void)
{
    const char *uri = open_with("max_inline=0");
    channel = rdma_create_event_channel();
    assert_non_null(channel);
    assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    limit_buffers(&server, FULL * EACH + MUTE - FULL, EACH);
    rail_of(&server)->tx.stuck_ms = 3600000; /* checks are only those of the test */
    connect_both(uri);
    struct rme_link *good = server.link;
    for (int i = 0; i < MUTE; i++) {
        mute[i].id = wire_mute(&server, channel, uri);
        mute[i].link = server.link;
        mute_fill(&mute[i], i < FULL ? EACH + 1 : 1);
    }
    forget();
    return good;
}

static void close_mute(void)
{
    close_both();
    for (int i = 0; i < MUTE; i++) {
        rdma_destroy_qp(mute[i].id);
        rdma_destroy_id(mute[i].id);
    }
    rdma_destroy_event_channel(channel);
}

/* Lets the next check of the links become due; returns how many links have ended. */
static int check(void)
{
    int ended = 0;
    rail_of(&server)->tx.check_at = 0;
    wire_poll(&server);
    for (int i = 0; i < MUTE; i++)
        ended += mute[i].link->state != IB_UP;
    return ended;
}

/* One link ends, and the one that waits gets its buffers: no further one ends. No link ends
 * while none waits, nor one that holds much less than its share. */
static void stuck_link_ends_while_others_wait(void **state)
{
    struct rme_link *good = open_mute();
    void *tx;
    (void)state;
    for (int i = 0; i < 3 * CHECKS; i++)
        assert_int_equal(check(), 0);
    assert_null(server.ops->tx_get(good));
    assert_in_range(server.ops->deadline(server.f), 0, 3600000 / CHECKS);
    for (int i = 0; i <= CHECKS; i++)
        assert_int_equal(check(), i == CHECKS);
    both_until(&server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&server, RME_EV_LINK_DOWN, 0)->error, -ETIMEDOUT);
    both_until(&server, RME_EV_TX_ROOM, 1);
    assert_ptr_equal(wire_event(&server, RME_EV_TX_ROOM, 0)->link, good);
    tx = server.ops->tx_get(good);
    assert_non_null(tx);
    server.ops->tx_put(good, tx);
    for (int i = 0; i < 2 * CHECKS; i++)
        assert_int_equal(check(), 1);
    assert_int_equal(mute[MUTE - 1].link->state, IB_UP);
    close_mute();
}

static char mute_memory[512];

/* Receives one message. */
static void mute_receive(const struct mute *m, const struct ibv_mr *mr)
{
    struct ibv_sge sge = {(uintptr_t)mute_memory, sizeof(mute_memory), mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    time_t end = wire_now() + PATIENCE_S;
    struct ibv_wc wc;
    assert_int_equal(ibv_post_recv(m->id->qp, &wr, &bad), 0);
    do {
        assert_true(wire_now() < end);
        device_clock(1000000); /* for RNR retries */
        wire_poll(&server);
    } while (ibv_poll_cq(m->id->recv_cq, 1, &wc) == 0);
    wire_poll(&server);
}

/* Links whose peers receive some messages between several checks stay. */
static void slow_link_stays(void **state)
{
    struct rme_link *good = open_mute();
    struct ibv_mr *mr[FULL];
    (void)state;
    for (int i = 0; i < FULL; i++) {
        mr[i] = ibv_reg_mr(mute[i].id->pd, mute_memory, sizeof(mute_memory),
                           IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(mr[i]);
    }
    rail_of(&server)->tx.kept_free = 0; /* the slow ones take all that comes back */
    device_clock(0);
    for (int i = 0; i < 4 * CHECKS; i++) {
        for (int k = 0; k < FULL && i % (CHECKS - 1) == 0; k++) {
            uint32_t tail = mute[k].link->ring.tail;
            while (mute[k].link->ring.tail == tail)
                mute_receive(&mute[k], mr[k]);
            mute_fill(&mute[k], EACH);
        }
        assert_null(server.ops->tx_get(good));
        assert_int_equal(check(), 0);
    }
    for (int i = 0; i < FULL; i++)
        ibv_dereg_mr(mr[i]);
    device_clock(UINT64_MAX);
    close_mute();
}

/* ---- Windows ---- */

/* Binds windows to three pieces of the server's memory, the middle one empty. */
static void bind_three(struct rme_range range[3])
{
    for (int i = 0; i < 3; i++)
        range[i] = (struct rme_range){.base = memory.there + 64 * i,
                                      .length = i == 1 ? 0 : 64,
                                      .rkey = memory.theirs.rkey};
    assert_int_equal(server.ops->mw_bind(server.link, range, 3, RME_ACCESS_REMOTE_WRITE), 0);
    assert_null(range[1].window);
}

static void peer_closes(uint64_t key)
{
    void *tx = client.ops->tx_get(client.link);
    assert_non_null(tx);
    memset(tx, 0, 16);
    client.ops->tx_send_closing(client.link, tx, 16, key);
    both_until(&server, RME_EV_RECV, wire_count(&server, RME_EV_RECV) + 1);
}

/* Windows are bound in front of the message, with its doorbell. One that the peer has closed
 * takes no request, and the last invalidation of the others is reported. Windows that are open
 * end with the link. */
static void windows_take_few_requests(void **state)
{
    struct rme_range range[3];
    int owner;
    const char *uri = open_with("rkey_scope=operation");
    (void)state;
    connect_both(uri);
    memory_open();
    for (int closed = 0; closed <= 2; closed++) { /* by the peer */
        forget();
        count_from_here(&server);
        bind_three(range);
        assert_true(wire_send(&server, "open"));
        server.ops->flush(server.f);
        assert_int_equal(counted(BINDS), 2);
        assert_int_equal(doorbells_of(&server), 1);
        for (int i = 0; i < closed; i++)
            peer_closes(range[2 - 2 * i].key);
        count_from_here(&server);
        assert_int_equal(server.ops->mw_invalidate(server.link, range, 3, &owner), closed == 2);
        server.ops->flush(server.f);
        assert_int_equal(counted(CLOSES), 2 - closed);
        assert_int_equal(counted(SIGNALLED), closed < 2);
        assert_int_equal(doorbells_of(&server), closed < 2);
        both_until(&server, RME_EV_MW_INVALIDATED, closed < 2);
        for (int i = 0; i < 10; i++)
            wire_poll(&server);
        assert_int_equal(wire_count(&server, RME_EV_MW_INVALIDATED), closed < 2);
    }
    bind_three(range);
    wire_poll(&server);
    count_from_here(&server);
    forget();
    struct rme_link *l = server.link;
    client.ops->link_disconnect(client.link, 0);
    both_until(&server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(counted(WINDOWS), -2);
    /* the engine may close windows after they were freed */
    assert_false(server.ops->mw_invalidate(l, range, 3, &owner));
    memory_close();
    close_both();
}

/* ---- Receive buffers ---- */

/* Receives of many links go back to the system with the links, also those of a shared queue,
 * which is replaced then, while buffers that the engine keeps stay. */
static void receives_go_back_with_links(void **state)
{
    enum { LINKS = 40 };
    const char *uri = open_with("");
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct rme_event kept = {.type = RME_EV_LINK_UP};
        int64_t pinned = wire_counter("pinned_bytes"), most;
        for (int i = 0; i < LINKS; i++)
            connect_both(uri);
        fill();
        send_some(1);
        for (time_t end = wire_now() + PATIENCE_S; kept.type != RME_EV_RECV;) {
            assert_true(wire_now() <= end);
            assert_in_range(server.ops->poll(server.f, &kept, 1), 0, 1);
        }
        most = wire_counter("pinned_bytes") - pinned;
        assert_true(most > LINKS * WIRE_RX * 4096);
        free_links(&client);
        free_links(&server);
        assert_string_equal(kept.data, "hello");
        server.ops->rx_return(server.f, kept.rx);
        connect_both(uri);
        fill();
        assert_int_equal(wire_counter("live_srq"),
                         (rail_of(&server)->srq != NULL) + (rail_of(&client)->srq != NULL));
        free_links(&client);
        free_links(&server);
        forget();
        for (int i = 0; i < 100; i++) {
            wire_poll(&client);
            wire_poll(&server);
        }
        assert_int_equal(client.nseen + server.nseen, 0);
        if (round > 0) /* the first one has made slabs that stay */
            assert_true(wire_counter("pinned_bytes") - pinned < most / 4);
    }
    close_both();
}

/* ---- Queues that fail ---- */

static void fail_queue(const char *what, void *queue)
{
    void (*end)(void *) = (void (*)(void *))(uintptr_t)wire_symbol(what);
    assert_non_null(end);
    end(queue);
}

/* A CQ fails with messages in it: the receives that these took do not count as posted. */
static void failed_cq_drops_its_messages(void **state)
{
    const char *uri = open_with("");
    (void)state;
    for (int i = 0; i < 3; i++) {
        connect_both(uri);
        fill();
        send_some(WIRE_RX);
        fail_queue("emuverbs_fail_cq", rail_of(&server)->cq.cq);
        server.ops->wait(server.f, 0); /* finds the event before the next poll */
        both_end(-EIO);
        assert_int_equal(wire_count(&server, RME_EV_RECV), 0);
    }
    connect_both(uri);
    fill();
    close_both();
}

/* An SRQ fails: messages that had arrived are delivered. */
static void failed_srq_delivers_arrived_messages(void **state)
{
    const char *uri = open_with("");
    (void)state;
    for (int i = 0; i < 3 && rail_of(&server)->srq != NULL; i++) {
        connect_both(uri);
        fill();
        send_some(1);
        fail_queue("emuverbs_fail_srq", rail_of(&server)->srq);
        both_end(-EIO);
        assert_int_equal(wire_count(&server, RME_EV_RECV), 1);
    }
    connect_both(uri);
    fill();
    close_both();
}

/* A peer gives up a receive, and the engine returns a buffer, when the link has lost its QP, or
 * is freed: nothing is posted or counted for it. */
static void release_after_link_end_is_ignored(void **state)
{
    const char *uri = open_with("");
    (void)state;
    for (int freed = 0; freed < 2; freed++) {
        struct rme_event event = {.type = RME_EV_LINK_UP};
        connect_both(uri);
        send_some(1);
        for (time_t end = wire_now() + PATIENCE_S; event.type != RME_EV_RECV;) {
            assert_true(wire_now() <= end);
            assert_in_range(server.ops->poll(server.f, &event, 1), 0, 1);
        }
        client.ops->link_disconnect(client.link, 0);
        both_until(&server, RME_EV_LINK_DOWN, 1);
        both_until(&client, RME_EV_LINK_DOWN, 1);
        struct rme_link *l = wire_event(&server, RME_EV_LINK_DOWN, 0)->link;
        struct ib_rx_queue *q = l->rail->srq != NULL ? &l->rail->rxq : &l->rxq;
        uint32_t posted = q->posted, unused = rail_of(&server)->rx.nfree;
        assert_null(l->qp);
        server.ops->rx_release(l, 1);
        assert_int_equal(q->advertised, 0);
        assert_int_equal(l->rx_advertised, 0);
        if (freed)
            server.ops->link_free(l);
        assert_false(server.ops->rx_return(server.f, event.rx));
        if (!freed || rail_of(&server)->srq != NULL) {
            assert_int_equal(q->posted, posted);
            assert_int_equal(q->held, 0);
            assert_int_equal(rail_of(&server)->rx.nfree, unused + 1);
        }
        if (!freed)
            server.ops->link_free(l);
        client.ops->link_free(client.link);
    }
    connect_both(uri);
    fill();
    close_both();
}

/* A device that refuses the default takes less: CTS with one segment is still posted inline. */
static void inline_size_is_the_largest_granted(void **state)
{
    const char *most = getenv("EMUVERBS_MAX_INLINE");
    (void)state;
    wire_open(&client, NULL);
    assert_int_equal(rail_of(&client)->dev.max_inline, most != NULL ? atoi(most) : 256);
    wire_close(&client);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_messages_signal_rarely),
        cmocka_unit_test(message_sent_at_once_overtakes_nothing),
        cmocka_unit_test(list_of_writes_has_few_signals),
        cmocka_unit_test(writes_and_messages_pass_reads),
        cmocka_unit_test(sending_on_lost_link_posts_nothing),
        cmocka_unit_test(link_never_waits_for_itself),
        cmocka_unit_test(idle_links_leave_buffers),
        cmocka_unit_test(waiting_links_notified_in_turn),
        cmocka_unit_test(stuck_link_ends_while_others_wait),
        cmocka_unit_test(slow_link_stays),
        cmocka_unit_test(windows_take_few_requests),
        cmocka_unit_test(receives_go_back_with_links),
        cmocka_unit_test(failed_cq_drops_its_messages),
        cmocka_unit_test(failed_srq_delivers_arrived_messages),
        cmocka_unit_test(release_after_link_end_is_ignored),
        cmocka_unit_test(inline_size_is_the_largest_granted),
    };
    wire_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
