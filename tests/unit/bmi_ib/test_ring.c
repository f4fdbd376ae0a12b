/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Send queue accounting and building of requests. */
#include "rig.h"

static void queue_message(struct rme_link *l, size_t length)
{
    void *tx = ib_tx_get(l);
    assert_non_null(tx);
    ib_tx_send(l, tx, length);
}

static unsigned signals(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < rig.nposted; i++)
        n += (rig.posted[i].flags & IBV_SEND_SIGNALED) != 0;
    return n;
}

/* Small messages signal once per half queue, and hold no buffer. */
static void small_messages_signal_rarely(void **state)
{
    (void)state;
    rig_open("sq_depth=128", 16, 256);
    struct rme_link *l = rig_link();
    for (int i = 0; i < 1000; i++) {
        queue_message(l, 64);
        ib_flush(rig.rail);
        assert_int_equal(l->tx_held, 0);
        if (rig.posted[i].flags & IBV_SEND_SIGNALED)
            ib_rdma_op_completed(l, ib_wr_position(rig.posted[i].wr_id));
    }
    assert_int_equal(rig.nposted, 1000);
    assert_int_equal(signals(), 1000 / 64);
    assert_int_equal(rig.stats.value[RME_C_DOORBELLS], 1000);
    rig_close();
}

/* Sends a message of `length` bytes, 16 of them a header. */
static bool send_now(struct rme_link *l, size_t length)
{
    char head[16] = {1}, payload[300] = {2};
    return ib_send_now(l, head, sizeof(head), payload, length - sizeof(head));
}

/* With an empty queue a message of any size is posted without a flush. */
static void message_without_queue_is_posted_at_once(void **state)
{
    (void)state;
    rig_open("sq_depth=128", 16, 256);
    struct rme_link *l = rig_link();
    assert_true(send_now(l, 64));
    assert_true(send_now(l, 300));
    assert_int_equal(rig.nposted, 2);
    assert_int_equal(rig.posted[0].flags & IBV_SEND_INLINE, IBV_SEND_INLINE);
    assert_int_equal(rig.posted[1].flags & IBV_SEND_INLINE, 0);
    assert_int_equal(rig.posted[1].bytes, 300);
    assert_int_equal(l->tx_held, 1);
    ib_flush(rig.rail);
    assert_int_equal(rig.stats.value[RME_C_DOORBELLS], 2);
    rig_close();
}

/* It overtakes neither a message nor a receive, and waits while the device's queue is full. */
static void message_behind_others_waits_for_a_flush(void **state)
{
    (void)state;
    rig_open("sq_depth=16", 16, 256);
    struct rme_link *l = rig_link();
    queue_message(l, 10);
    assert_false(send_now(l, 20));
    assert_int_equal(rig.nposted, 0);
    ib_flush(rig.rail);
    assert_int_equal(rig.nposted, 1);

    unsigned receives = rig.nrecv;
    assert_int_equal(ib_rx_reserve(l, 20), 0);
    assert_false(send_now(l, 30));
    assert_int_equal(rig.nrecv, receives);
    ib_flush(rig.rail);
    assert_true(rig.nrecv > receives);
    assert_true(send_now(l, 30));
    assert_int_equal(rig.nposted, 2);

    while (ib_ring_room(&l->ring))
        assert_true(send_now(l, 40));
    unsigned full = rig.nposted;
    assert_false(send_now(l, 50));
    assert_int_equal(rig.nposted, full);
    rig_close();
}

/* Many messages before one flush: one doorbell for each batch. */
static void one_flush_one_doorbell(void **state)
{
    (void)state;
    rig_open("sq_depth=127", 16, 256);
    struct rme_link *l = rig_link();
    for (int i = 0; i < IB_BATCH; i++)
        queue_message(l, 64);
    ib_flush(rig.rail);
    assert_int_equal(rig.stats.value[RME_C_DOORBELLS], 1);
    assert_int_equal(rig.nposted, IB_BATCH);
    ib_flush(rig.rail);
    assert_int_equal(rig.stats.value[RME_C_DOORBELLS], 1);
    rig_close();
}

/* Without inline data idle links hold at most their share of the buffers. */
static void unsignalled_messages_hold_few_buffers(void **state)
{
    (void)state;
    rig_open(NULL, 16, 0);
    rig_buffers(128);
    rig.rail->tx.per_link = 64;
    struct rme_link *l[40];
    for (int i = 0; i < 40; i++)
        l[i] = rig_link();
    for (int round = 0; round < 100; round++)
        for (int i = 0; i < 40; i++) {
            unsigned first = rig.nposted;
            queue_message(l[i], 64);
            ib_flush(rig.rail);
            assert_true(rig.rail->tx.unsignalled <= rig.rail->tx.unsignalled_max);
            if (rig.posted[first].flags & IBV_SEND_SIGNALED)
                ib_rdma_op_completed(l[i], ib_wr_position(rig.posted[first].wr_id));
        }
    rig_close();
}

/* A link gets its buffers back, for any limit. */
static void link_never_waits_for_itself(void **state)
{
    (void)state;
    for (int per_link = 8; per_link <= 64; per_link *= 2) {
        rig_open("sq_depth=1024", 16, 0);
        rig_buffers(64);
        rig.rail->tx.per_link = (uint32_t)per_link;
        struct rme_link *l = rig_link();
        for (int i = 0; i < 1000; i++) {
            if (l->tx_held == (uint32_t)per_link)
                rig_complete(l, rig.nposted);
            queue_message(l, 64); /* fails if no buffer is free */
            ib_flush(rig.rail);
        }
        rig_close();
    }
}

/* The engine's key of memory on a device. */
static struct ibv_mr registered = {.lkey = 1};
static struct ib_keys keys = {.mr = {&registered}};

struct load {
    struct rme_sge seg[64];
    struct rme_rdma_seg piece[64];
    struct rme_rdma_op x;
    uint8_t data[64];
};

static struct rme_rdma_op *load(struct load *d, bool read, enum rme_notify notify,
                                uint32_t npiece, uint32_t nseg)
{
    for (uint32_t i = 0; i < 64; i++)
        d->seg[i] = (struct rme_sge){d->data + i, 1, (uintptr_t)&keys};
    for (uint32_t i = 0; i < npiece; i++)
        d->piece[i] = (struct rme_rdma_seg){1000 + i, 2, d->seg, nseg};
    d->x = (struct rme_rdma_op){
        .read = read, .notify = notify, .imm = 77, .piece = d->piece, .npiece = npiece};
    return &d->x;
}

static void behind(struct rme_link *l, struct rme_rdma_op *x)
{
    x->tx = ib_tx_get(l);
    x->tx_length = 16;
}

/* Positions of requests wrap.  A completion retires the requests up to its own, and one that
 * was reported before, or whose request was never posted, retires none. */
static void positions_wrap(void **state)
{
    struct load d[5];
    struct rme_event e[8];
    (void)state;
    rig_open("sq_depth=10", 1, 256);
    struct rme_link *l = rig_link();
    l->ring.head = l->ring.tail = UINT32_MAX - 5;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 5; i++) {
            ib_rdma_op(l, load(&d[i], true, RME_NOTIFY_NONE, 1, 1));
            queue_message(l, 10);
        }
        ib_flush(rig.rail);
        assert_int_equal(ib_ring_room(&l->ring), 0);
        uint32_t position = l->ring.head;
        ib_rdma_op_completed(l, (position + 1) & IB_POSITION_MASK);
        assert_int_equal(ib_ring_used(&l->ring), 10);
        ib_rdma_op_completed(l, (position - 3) & IB_POSITION_MASK);
        ib_rdma_op_completed(l, (position - 3) & IB_POSITION_MASK);
        assert_int_equal(ib_ring_used(&l->ring), 3);
        ib_rdma_op_completed(l, position & IB_POSITION_MASK);
        ib_rdma_op_completed(l, (position - 3) & IB_POSITION_MASK);
        assert_int_equal(ib_ring_used(&l->ring), 0);
        assert_int_equal(rig_poll(e, 8), 5);
        for (int i = 0; i < 5; i++)
            assert_ptr_equal(e[i].rdma_op, &d[i].x);
    }
    rig_close();
}

static void list_of_64_writes(void **state)
{
    struct load d;
    struct rme_event e[4];
    (void)state;
    rig_open("sq_depth=64", 1, 256);
    struct rme_link *l = rig_link();
    ib_rdma_op(l, load(&d, false, RME_NOTIFY_IMM, 64, 1));
    ib_flush(rig.rail);
    assert_int_equal(rig.nposted, 64);
    assert_int_equal(rig.stats.value[RME_C_DOORBELLS], 1);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(rig.posted[i].opcode,
                         i == 63 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE);
        assert_int_equal(rig.posted[i].raddr, 1000 + i);
        assert_int_equal(rig.posted[i].flags & IBV_SEND_FENCE, 0);
    }
    assert_int_equal(rig.posted[63].imm, 77);
    assert_int_equal(signals(), 2); /* half of 64 and the last */
    rig.rail->out = e;
    rig.rail->out_used = 0;
    rig.rail->out_max = 4;
    rig_complete(l, 63);
    assert_int_equal(rig.rail->out_used, 0);
    rig_complete(l, 64);
    assert_int_equal(rig.rail->out_used, 1);
    assert_int_equal(e[0].type, RME_EV_RDMA_DONE);
    assert_ptr_equal(e[0].rdma_op, &d.x);
    rig_close();
}

/* With signal_each every request of messages, transfers and windows is signalled. Its own
 * completion ends its work, and is reported once. */
static void each_is_signalled(void **state)
{
    struct load d;
    struct rme_event e[4];
    char memory[100];
    struct rme_range range = {.base = memory, .length = 5, .rkey = (uintptr_t)&keys};
    int owner;
    (void)state;
    rig_open("sq_depth=128,signal_each=1", 1, 256);
    rig.rail->caps.mws = 4;
    struct rme_link *l = rig_link();
    assert_int_equal(ib_mw_bind(l, &range, 1, RME_ACCESS_REMOTE_WRITE), 0);
    for (int i = 0; i < 20; i++)
        queue_message(l, 64);
    ib_rdma_op(l, load(&d, false, RME_NOTIFY_IMM, 64, 1));
    ib_mw_invalidate(l, &range, 1, &owner);
    ib_flush(rig.rail);
    assert_int_equal(rig.nposted, 1 + 20 + 64 + 1);
    assert_int_equal(signals(), rig.nposted);
    assert_int_equal(rig.stats.value[RME_C_SIGNALLED], rig.nposted);
    rig.rail->out = e;
    rig.rail->out_used = 0;
    rig.rail->out_max = 4;
    for (unsigned i = 1; i < 1 + 20 + 64; i++)
        rig_complete(l, i);
    assert_int_equal(rig.rail->out_used, 0);
    rig_complete(l, 1 + 20 + 64);
    assert_int_equal(rig.rail->out_used, 1);
    assert_int_equal(e[0].type, RME_EV_RDMA_DONE);
    assert_ptr_equal(e[0].rdma_op, &d.x);
    rig_complete(l, rig.nposted);
    assert_int_equal(rig.rail->out_used, 2);
    assert_int_equal(e[1].type, RME_EV_MW_INVALIDATED);
    assert_int_equal(ib_ring_used(&l->ring), 0);
    rig_close();
}

/* Nothing behind reads has a fence, which would hold later reads back.  The last read of a
 * transfer is signalled. */
static void requests_behind_reads_are_not_fenced(void **state)
{
    struct load a, b, c, d;
    (void)state;
    rig_open(NULL, 4, 256);
    struct rme_link *l = rig_link();
    ib_rdma_op(l, load(&a, true, RME_NOTIFY_NONE, 3, 2));
    ib_rdma_op(l, load(&b, false, RME_NOTIFY_IMM, 1, 1));
    queue_message(l, 10);
    behind(l, load(&c, false, RME_NOTIFY_MSG, 1, 1));
    ib_rdma_op(l, &c.x);
    ib_rdma_op(l, load(&d, true, RME_NOTIFY_NONE, 1, 4));
    ib_flush(rig.rail);
    static const struct {
        enum ibv_wr_opcode opcode;
        bool signal;
    } want[] = {
        {IBV_WR_RDMA_READ, false}, {IBV_WR_RDMA_READ, false},
        {IBV_WR_RDMA_READ, true},  {IBV_WR_RDMA_WRITE_WITH_IMM, true},
        {IBV_WR_SEND, false},      {IBV_WR_RDMA_WRITE, false},
        {IBV_WR_SEND, true},       {IBV_WR_RDMA_READ, true},
    };
    assert_int_equal(rig.nposted, 8);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(rig.posted[i].opcode, want[i].opcode);
        assert_int_equal(rig.posted[i].flags & IBV_SEND_FENCE, 0);
        assert_int_equal((rig.posted[i].flags & IBV_SEND_SIGNALED) != 0, want[i].signal);
    }
    rig_close();
}

/* Reads beyond the send queue wait, and so does all work behind them. */
static void reads_beyond_the_queue_wait(void **state)
{
    struct load d;
    (void)state;
    rig_open("sq_depth=8", 1, 256);
    struct rme_link *l = rig_link();
    ib_rdma_op(l, load(&d, true, RME_NOTIFY_NONE, 20, 1));
    queue_message(l, 10);
    for (unsigned n = 8; n < 24; n += 8) {
        ib_flush(rig.rail);
        assert_int_equal(rig.nposted, n);
        assert_true(rig.posted[n - 1].flags & IBV_SEND_SIGNALED);
        rig_complete(l, n);
    }
    ib_flush(rig.rail);
    assert_int_equal(rig.nposted, 21);
    assert_int_equal(rig.posted[20].opcode, IBV_WR_SEND);
    rig_close();
}

/* A refused request fails the link; all buffers return (rig_close counts). */
static void refused_post_loses_the_link(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 3; at++) {
        struct load d;
        struct rme_event e[8];
        rig_open(NULL, 16, at == 1 ? 0 : 256);
        struct rme_link *l = rig_link();
        for (int i = 0; i < 3; i++)
            queue_message(l, 100);
        behind(l, load(&d, false, RME_NOTIFY_MSG, 2, 1));
        ib_rdma_op(l, &d.x);
        rig.fail_post = ENOMEM;
        rig.fail_at = at;
        ib_flush(rig.rail);
        assert_int_equal(rig.errors_set, 1);
        assert_int_equal(rig_poll(e, 8), 0); /* the receive marker has not completed */
        rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, l->handle),
                               .status = IBV_WC_WR_FLUSH_ERR});
        rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_MARK_RECV, 0, l->handle),
                               .status = IBV_WC_WR_FLUSH_ERR});
        assert_int_equal(rig_poll(e, 8), 1);
        assert_int_equal(e[0].type, RME_EV_LINK_DOWN);
        assert_int_equal(e[0].error, -ENOMEM);
        ib_link_free(l);
        rig_close();
    }
}

/* Queueing on a lost link is harmless. */
static void sending_on_a_lost_link(void **state)
{
    static const enum ib_link_state states[] = {IB_DRAINING, IB_ENDING, IB_DOWN};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct load d;
        rig_open("sq_depth=127", 16, 256);
        struct rme_link *l = rig_link_in(states[i]);
        unsigned posted = rig.nposted;
        queue_message(l, 64);
        behind(l, load(&d, false, RME_NOTIFY_MSG, 2, 1));
        ib_rdma_op(l, &d.x);
        ib_flush(rig.rail);
        assert_int_equal(rig.nposted, posted);
        ib_link_free(l);
        rig_close();
    }
}

/* Random loads and completions: the queue never overflows or stalls, and all complete in
 * order. */
static void random_loads(void **state)
{
    enum { LOADS = 400 };
    struct load *d = calloc(LOADS, sizeof(*d));
    (void)state;
    for (unsigned seed = 1; seed <= 30; seed++) {
        char options[128];
        srand(seed);
        uint32_t max_sge = seed % 3 ? 16 : 1, depth = 8u << (rand() % 4);
        snprintf(options, sizeof(options), "sq_depth=%u,signal_each=%d", depth, seed % 5 == 0);
        rig_open(options, max_sge, seed % 2 ? 64 : 0);
        rig_buffers(32u << (rand() % 3));
        struct rme_link *l = rig_link();
        unsigned queued = 0, done = 0, complete = 0, messages = 0, expected = 0;
        struct rme_event e[16];
        while (done < LOADS) {
            if (queued < LOADS && rand() % 2) {
                bool read = rand() % 3 == 0;
                enum rme_notify notify = read ? RME_NOTIFY_NONE : (enum rme_notify)(rand() % 3);
                struct rme_rdma_op *x = load(&d[queued], read, notify, (uint32_t)(rand() % 65),
                                             1 + (uint32_t)rand() % max_sge);
                if (notify == RME_NOTIFY_MSG) {
                    x->tx = ib_tx_get(l);
                    x->tx_length = (size_t)rand() % 128;
                    if (!x->tx)
                        x->notify = RME_NOTIFY_NONE;
                }
                expected += x->npiece + (x->notify == RME_NOTIFY_MSG) +
                            (x->notify == RME_NOTIFY_IMM && !x->npiece);
                x->bytes = queued; /* used as its number */
                x->owner = &d[queued++];
                ib_rdma_op(l, x);
            } else if (rand() % 4 == 0) {
                void *tx = ib_tx_get(l);
                if (tx)
                    ib_tx_send(l, tx, (size_t)rand() % 128);
                messages += tx != NULL;
            }
            if (rand() % 3 == 0)
                ib_flush(rig.rail);
            assert_true(ib_ring_used(&l->ring) <= depth);
            unsigned upto = complete + (unsigned)rand() % 8;
            for (; complete < rig.nposted && complete < upto; complete++)
                if (rig.posted[complete].flags & IBV_SEND_SIGNALED)
                    rig_wc((struct ibv_wc){.wr_id = rig.posted[complete].wr_id});
            int n = rig_poll(e, 1 + rand() % 16);
            for (int i = 0; i < n; i++)
                if (e[i].type == RME_EV_RDMA_DONE) {
                    assert_ptr_equal(e[i].rdma_op->owner,
                                     &d[e[i].rdma_op->bytes]); /* once each */
                    e[i].rdma_op->owner = NULL;
                    done++;
                }
            assert_true(queued < LOADS || rig.nposted < RIG_POSTED);
        }
        ib_flush(rig.rail);
        while (l->queue.head) { /* send messages behind the last transfer */
            rig_complete(l, rig.nposted);
            ib_flush(rig.rail);
        }
        assert_int_equal(rig.nposted, expected + messages);
        rig_close();
    }
    free(d);
}

/* Windows are bound in front of the message, in one chain, and invalidated in another. The last
 * invalidation is reported when there is room for the event. */
static void windows_in_chains(void **state)
{
    struct rme_range range[3];
    struct rme_event e[4];
    char memory[100];
    int owner;
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        rig_open("sq_depth=127", 16, 256);
        struct ib_rail *rail = rig.rail;
        rail->caps.mws = 4;
        memset(&rail->batch, 0x5a, sizeof(rail->batch)); /* left over from another use */
        struct rme_link *l = rig_link();
        for (int i = 0; i < 3; i++)
            range[i] = (struct rme_range){.base = memory + 7 * i,
                                          .length = i == 1 ? 0 : 5 + (uint64_t)i,
                                          .rkey = (uintptr_t)&keys};
        assert_int_equal(ib_mw_bind(l, range, 3, RME_ACCESS_REMOTE_WRITE), 0);
        assert_null(range[1].window);
        void *tx = ib_tx_get(l);
        ib_tx_send(l, tx, 10);
        ib_flush(rail);
        assert_int_equal(rig.doorbells, 1);
        assert_int_equal(rig.nposted, 3);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(rig.posted[i].opcode, IBV_WR_BIND_MW);
            assert_int_equal(rig.posted[i].raddr, (uintptr_t)memory + 14 * i);
            assert_int_equal(rig.posted[i].bytes, 5 + 2 * i);
            assert_int_equal(rig.posted[i].imm, range[2 * i].key);
            assert_int_equal(rig.posted[i].flags & IBV_SEND_SIGNALED, 0);
        }
        struct rme_range more[3] = {range[0], range[0], range[0]};
        assert_int_equal(ib_mw_bind(l, more, 3, RME_ACCESS_REMOTE_READ), -EAGAIN);
        assert_int_equal(rail->mws.nfree, 2);
        if (lost != 1)
            ib_mw_invalidate(l, range, 3, &owner);
        ib_flush(rail);
        if (lost != 1) {
            assert_int_equal(rig.doorbells, 2);
            assert_int_equal(rig.posted[3].opcode, IBV_WR_LOCAL_INV);
            assert_int_equal(rig.posted[3].flags & IBV_SEND_SIGNALED, 0);
            assert_int_equal(rig.posted[4].imm, range[2].key);
            assert_int_not_equal(rig.posted[4].flags & IBV_SEND_SIGNALED, 0);
        }
        if (lost == 0) {
            rig_complete(l, 5); /* outside of a poll: no room for the event */
            assert_int_equal(rig_poll(e, 4), 1);
            assert_int_equal(e[0].type, RME_EV_MW_INVALIDATED);
            assert_ptr_equal(e[0].closed, &owner);
            assert_int_equal(rail->mws.nfree, 4);
            uint32_t before = range[2].key;
            assert_int_equal(ib_mw_bind(l, range, 3, RME_ACCESS_REMOTE_READ), 0);
            assert_int_not_equal(range[0].key, before);
            ib_flush(rail); /* the rig checks the window's own key */
        }
        /* windows that are open or being closed end with the link */
        ib_link_fail(l, -ECONNRESET, true);
        ib_link_drained(l, IB_DRAIN_ALL);
        int n = 0, got;
        while ((got = rig_poll(e, 4)))
            for (int i = 0; i < got; i++)
                n += e[i].type == RME_EV_MW_INVALIDATED;
        assert_int_equal(n, 0);
        assert_int_equal(rail->mws.nfree, 2);
        assert_int_equal(rail->mws.made, 2);
        /* the engine may close windows when the loss is reported, after they were freed */
        struct ib_mw gone, freed;
        memset(&freed, 0x5a, sizeof(freed));
        gone = freed;
        for (int i = 0; i < 3; i++)
            range[i].window = &gone;
        ib_mw_invalidate(l, range, 3, &owner);
        assert_memory_equal(&gone, &freed, sizeof(gone));
        ib_link_free(l);
        rig_close();
    }
}

/* Completes a receive with a message that has closed a window. */
static void message_closes(struct rme_link *l, uint64_t key)
{
    struct rme_event e[8];
    unsigned i = 0;
    while (!rig.rail->rx.slab[0]->rx[i].posted || rig.rail->rx.slab[0]->rx[i].link != l->handle)
        i++;
    rig_wc((struct ibv_wc){.wr_id =
                               ib_wr_id(IB_WR_RECV, rig.rail->rx.slab[0]->rx[i].generation, i),
                           .opcode = IBV_WC_RECV,
                           .wc_flags = IBV_WC_WITH_INV,
                           .invalidated_rkey = (uint32_t)key,
                           .byte_len = 16,
                           .qp_num = l->qp->qp_num});
    int n = rig_poll(e, 8);
    for (i = 0; (int)i < n; i++)
        if (e[i].type == RME_EV_RECV)
            ib_rx_return(rig.rail, e[i].rx);
}

/* Invalidates ranges and returns the number of requests that takes. */
static unsigned closing_takes(struct rme_link *l, struct rme_range *range, uint32_t n, bool all)
{
    static int owner;
    unsigned before = rig.nposted;
    assert_int_equal(ib_mw_invalidate(l, range, n, &owner), all);
    ib_flush(rig.rail);
    return rig.nposted - before;
}

/* A window that a message of its peer has closed takes no request.  One of another link, a key
 * of an earlier binding and an unknown key change nothing. */
static void window_closed_by_peer_takes_no_request(void **state)
{
    static uint8_t memory[4096];
    struct rme_range range[3];
    (void)state;
    rig_open("srq=off", 16, 256);
    rig.rail->caps.mws = 8;
    struct rme_link *l = rig_link(), *other = rig_link();
    ib_rx_reserve(l, 4);
    ib_rx_reserve(other, 4);
    for (int i = 0; i < 3; i++)
        range[i] =
            (struct rme_range){.base = memory + 64 * i, .length = 64, .rkey = (uintptr_t)&keys};
    assert_int_equal(ib_mw_bind(l, range, 3, RME_ACCESS_REMOTE_READ), 0);
    ib_flush(rig.rail);
    uint64_t key = range[0].key;
    message_closes(l, key ^ 1);
    message_closes(l, key + 256 * 1000);
    message_closes(other, range[1].key);
    message_closes(l, range[2].key);
    assert_int_equal(closing_takes(l, range, 3, false), 2); /* the last one reports */
    assert_true(rig.posted[rig.nposted - 1].flags & IBV_SEND_SIGNALED);
    rig_complete(l, rig.nposted);
    assert_int_equal(rig_count(RME_EV_MW_INVALIDATED, NULL), 1);
    assert_int_equal(ib_mw_bind(l, range, 3, RME_ACCESS_REMOTE_READ), 0);
    ib_flush(rig.rail); /* the rig checks the windows' own keys */
    for (int i = 0; i < 3; i++)
        message_closes(l, range[i].key);
    assert_int_equal(closing_takes(l, range, 3, true), 0);
    assert_int_equal(rig.rail->mws.nfree, rig.rail->mws.made);
    rig_close();
}

/* The device of a link has failed, and only registration has noticed: memory has no
 * registration for its windows. The link is lost then, and nothing is opened. */
static void memory_of_failed_device_not_opened(void **state)
{
    static uint8_t memory[4096];
    struct rme_event down;
    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        struct ib_keys none = {.mr = {NULL}};
        struct rme_range range[2] = {
            {.base = memory, .length = 0, .rkey = (uintptr_t)&none},
            {.base = memory, .length = empty ? 0 : 4096, .rkey = (uintptr_t)&none}};
        rig_open(NULL, 16, 0);
        rig.rail->caps.mws = 64;
        struct rme_link *l = rig_link();
        assert_int_equal(ib_mw_bind(l, range, 2, RME_ACCESS_REMOTE_WRITE), empty ? 0 : -EAGAIN);
        ib_flush(rig.rail);
        assert_int_equal(rig.nposted, empty ? 0 : 1); /* 1: the drain marker */
        assert_int_equal(l->state, empty ? IB_UP : IB_DRAINING);
        if (!empty) {
            rig_drain(l);
            assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
            assert_int_equal(down.error, -ENODEV);
        }
        rig_close();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_wrap),
        cmocka_unit_test(small_messages_signal_rarely),
        cmocka_unit_test(each_is_signalled),
        cmocka_unit_test(message_without_queue_is_posted_at_once),
        cmocka_unit_test(message_behind_others_waits_for_a_flush),
        cmocka_unit_test(one_flush_one_doorbell),
        cmocka_unit_test(unsignalled_messages_hold_few_buffers),
        cmocka_unit_test(link_never_waits_for_itself),
        cmocka_unit_test(list_of_64_writes),
        cmocka_unit_test(requests_behind_reads_are_not_fenced),
        cmocka_unit_test(reads_beyond_the_queue_wait),
        cmocka_unit_test(refused_post_loses_the_link),
        cmocka_unit_test(sending_on_a_lost_link),
        cmocka_unit_test(windows_in_chains),
        cmocka_unit_test(window_closed_by_peer_takes_no_request),
        cmocka_unit_test(random_loads),
        cmocka_unit_test(memory_of_failed_device_not_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
