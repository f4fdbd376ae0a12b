/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A link with a second QP: the order of work on both QPs, work on the second alone, and the
 * conditions for one. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include "bmi_ib/bmi_ib.h"
#include "rig.h"
#include "tests/lib/clock.h"

#define KEYS (UINT64_C(7) << 32 | 5) /* the peer's key, of both devices */

static struct rme_link *l, *side;

/* Joins a second QP; both are on the rig's only rail, which makes no difference here. */
static void join(struct rme_link *to)
{
    side = rig_link();
    ib_side_join(to, side);
}

static void begin(void)
{
    rig_open(NULL, 16, 0);
    rig.f->caps.windows = 64;
    rig.f->stripe_bytes = 1000;
    /* separate rails would each have their own */
    assert_int_equal(ib_windows_ensure(rig.f, 4), 0);
    l = rig_link();
    join(l);
}

static bool is_of(const struct rig_posted *p, const struct rme_link *whose)
{
    return ib_wr_low(p->wr_id) == whose->handle;
}

/* Returns the number of a link's posted requests with this opcode. */
static unsigned posted(const struct rme_link *whose, enum ibv_wr_opcode opcode)
{
    unsigned n = 0;
    for (unsigned i = 0; i < rig.nposted; i++)
        n += is_of(&rig.posted[i], whose) && rig.posted[i].opcode == opcode;
    return n;
}

/* Completes all posted requests of a link and posts the work that waited for them. */
static void complete(struct rme_link *whose)
{
    for (unsigned i = 0; i < rig.nposted; i++)
        if (is_of(&rig.posted[i], whose) && rig.posted[i].flags & IBV_SEND_SIGNALED)
            ib_xfer_completed(whose, ib_wr_position(rig.posted[i].wr_id));
    ib_flush(rig.f);
}

static void send_message(void)
{
    char *tx = ib_tx_get(l);
    assert_non_null(tx);
    strcpy(tx, "message");
    ib_tx_send(l, tx, 8);
    ib_flush(rig.f);
}

static uint8_t memory[8192];
static struct rme_lseg seg = {memory, 4096, 7};
static struct rme_piece piece = {0x10000, KEYS, &seg, 1};

static struct rme_xfer write_of(enum rme_notify notify, uint32_t imm)
{
    return (struct rme_xfer){
        .notify = notify, .imm = imm, .piece = &piece, .npiece = 1, .bytes = 4096};
}

static void message_waits_for_both_windows(void **state)
{
    struct ibv_mr mr = {.addr = memory, .length = sizeof(memory)};
    struct rme_range range = {.base = memory, .length = 4096, .rkey = (uintptr_t)&mr};
    struct rme_event closed;
    int owner;
    (void)state;
    begin();
    assert_int_equal(ib_expose(l, &range, 1, RME_ACCESS_REMOTE_WRITE), 0);
    assert_int_not_equal(range.key >> 32, 0);
    assert_int_not_equal((uint32_t)range.key, 0);
    send_message();
    assert_int_equal(posted(l, IBV_WR_BIND_MW), 1);
    assert_int_equal(posted(side, IBV_WR_BIND_MW), 1);
    assert_int_equal(posted(l, IBV_WR_SEND), 0);
    complete(side);
    assert_int_equal(posted(l, IBV_WR_SEND), 1);
    /* closed one after the other, and reported when both are */
    ib_unexpose(l, &range, 1, &owner);
    ib_flush(rig.f);
    assert_int_equal(posted(side, IBV_WR_LOCAL_INV), 1);
    assert_int_equal(posted(l, IBV_WR_LOCAL_INV), 0);
    complete(side);
    assert_int_equal(posted(l, IBV_WR_LOCAL_INV), 1);
    assert_int_equal(rig_count(RME_EV_CLOSED, NULL), 0);
    complete(l);
    assert_int_equal(rig_count(RME_EV_CLOSED, &closed), 1);
    assert_ptr_equal(closed.closed, &owner);
    assert_ptr_equal(closed.link, l);
    /* smaller ranges are opened once */
    range.length = 999;
    assert_int_equal(ib_expose(l, &range, 1, RME_ACCESS_REMOTE_WRITE), 0);
    assert_int_equal(range.key >> 32, 0);
    send_message();
    assert_int_equal(posted(side, IBV_WR_BIND_MW), 1);
    assert_int_equal(posted(l, IBV_WR_SEND), 2);
    rig_close();
}

/* The device of a link has failed, and only registration has noticed: memory has no
 * registration for its windows. The link is lost then, and nothing is opened. */
static void memory_of_a_failed_device_is_not_opened(void **state)
{
    struct rme_event down;
    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        struct ib_keys keys = {.mr = {NULL}};
        struct rme_range range[2] = {
            {.base = memory, .length = 0, .rkey = (uintptr_t)&keys},
            {.base = memory, .length = empty ? 0 : 4096, .rkey = (uintptr_t)&keys}};
        begin();
        ib_link_destroy(side);
        rig.f->railed = true;
        assert_int_equal(ib_expose(l, range, 2, RME_ACCESS_REMOTE_WRITE), empty ? 0 : -EAGAIN);
        ib_flush(rig.f);
        assert_int_equal(posted(l, IBV_WR_BIND_MW), 0);
        assert_int_equal(l->state, empty ? IB_UP : IB_DRAINING);
        if (!empty) {
            rig_drain(l);
            assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
            assert_int_equal(down.error, -ENODEV);
        }
        rig.f->railed = false;
        rig_close();
    }
}

static void notification_waits_for_the_data(void **state)
{
    struct rme_xfer a, b, c;
    struct rme_event done;
    (void)state;
    begin();
    a = write_of(RME_NOTIFY_NONE, 1);
    b = write_of(RME_NOTIFY_IMM, 2);
    c = write_of(RME_NOTIFY_NONE, 3);
    ib_xfer(l, &a); /* first in order: over the link's own QP */
    ib_xfer(l, &b);
    send_message();
    ib_xfer(l, &c);
    ib_flush(rig.f);
    assert_int_equal(posted(l, IBV_WR_RDMA_WRITE_WITH_IMM), 0);
    assert_int_equal(posted(side, IBV_WR_RDMA_WRITE), 1);
    assert_int_equal(posted(side, IBV_WR_RDMA_WRITE_WITH_IMM), 0);
    assert_int_equal(posted(l, IBV_WR_SEND), 0);
    assert_int_equal(posted(l, IBV_WR_RDMA_WRITE), 2); /* c passes the waiting ones */
    complete(l);
    assert_int_equal(rig_count(RME_EV_XFER_DONE, NULL), 2);
    assert_int_equal(posted(l, IBV_WR_SEND), 0);
    complete(side);
    assert_int_equal(rig_count(RME_EV_XFER_DONE, NULL), 0); /* b is not reported yet */
    assert_int_equal(posted(l, IBV_WR_RDMA_WRITE_WITH_IMM), 1);
    assert_int_equal(posted(l, IBV_WR_SEND), 1);
    for (unsigned i = 0; i < rig.nposted; i++)
        if (rig.posted[i].imm == 2 && rig.posted[i].opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
            assert_int_equal(rig.posted[i].bytes, 0);
    complete(l);
    assert_int_equal(rig_count(RME_EV_XFER_DONE, &done), 1);
    assert_ptr_equal(done.xfer, &b);
    assert_ptr_equal(done.link, l);
    assert_int_equal(l->load + side->load, 0);
    assert_int_equal(rig.stats.value[RME_C_STRIPED], 1);
    rig_close();
}

/* A single transfer is split in halves at a page, for any pieces and segments. */
static void alone_is_halved(void **state)
{
    (void)state;
    for (unsigned pieces = 1; pieces <= 3; pieces++)
        for (unsigned segments = 1; segments <= 4; segments++) {
            struct rme_lseg part[3][4];
            struct rme_piece of[3];
            struct rme_xfer x = write_of(RME_NOTIFY_IMM, 9);
            uint64_t at[2] = {0, 0}, total = 0;
            struct rme_event done;
            begin();
            for (unsigned p = 0; p < pieces; p++) {
                uint64_t bytes = 0;
                for (unsigned s = 0; s < segments; s++) {
                    part[p][s] = (struct rme_lseg){memory, 3000 + 700 * p + 111 * s, 7};
                    bytes += part[p][s].length;
                }
                of[p] = (struct rme_piece){0x100000 * (p + 1), KEYS, part[p], segments};
                total += bytes;
            }
            x.piece = of;
            x.npiece = pieces;
            x.bytes = total;
            ib_xfer(l, &x);
            ib_flush(rig.f);
            for (unsigned i = 0; i < rig.nposted; i++) {
                bool by_side = is_of(&rig.posted[i], side);
                bool tells = total < 8192 && i + 1 == rig.nposted;
                assert_int_equal(rig.posted[i].opcode,
                                 tells ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE);
                at[by_side] += rig.posted[i].bytes;
            }
            assert_int_equal(at[0] + at[1], total);
            assert_int_equal(at[0], total < 8192 ? total : total / 2 / 4096 * 4096);
            complete(l);
            assert_int_equal(rig_count(RME_EV_XFER_DONE, NULL), total < 8192);
            complete(side);
            complete(l);
            assert_int_equal(rig_count(RME_EV_XFER_DONE, &done), total >= 8192);
            assert_int_equal(posted(l, IBV_WR_RDMA_WRITE_WITH_IMM), 1);
            assert_int_equal(l->load + side->load, 0);
            rig_close();
        }
}

/* Keys without an upper half, and small transfers, use the link's own QP. */
static void some_are_not_striped(void **state)
{
    struct rme_xfer many[4];
    (void)state;
    begin();
    assert_int_equal(bmi_ib_fabric()->link_lanes(l, 999), 1); /* not more of them at a time */
    assert_int_equal(bmi_ib_fabric()->link_lanes(l, 1000), 2);
    for (int i = 0; i < 4; i++) {
        many[i] = write_of(RME_NOTIFY_IMM, (uint32_t)i);
        many[i].bytes = i % 2 ? 999 : 4096;
        piece.rkey = i % 2 ? KEYS : 5;
        ib_xfer(l, &many[i]);
        ib_flush(rig.f);
    }
    piece.rkey = KEYS;
    assert_int_equal(posted(l, IBV_WR_RDMA_WRITE_WITH_IMM), 4);
    assert_int_equal(rig.stats.value[RME_C_STRIPED], 0);
    rig_close();
}

static void down_comes_after_both(void **state)
{
    struct rme_xfer many[4];
    (void)state;
    for (int first = 0; first < 2; first++) {
        begin();
        for (int i = 0; i < 4; i++) { /* some wait, some are at the device */
            many[i] = write_of(i % 2 ? RME_NOTIFY_IMM : RME_NOTIFY_NONE, 1);
            ib_xfer(l, &many[i]);
        }
        send_message();
        ib_link_disconnect(l, 0);
        assert_int_equal(l->state, IB_DRAINING);
        assert_int_equal(side->state, IB_DRAINING);
        rig_drain(first ? side : l);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
        rig_drain(first ? l : side);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 1);
        assert_null(l->side);
        /* with two rails the link's may have been polled before: the next sleep must not
         * wait */
        assert_int_equal(ib_link_deadline(rig.f), -1);
        ib_resume(rig.f);
        assert_int_equal(ib_link_deadline(rig.f), 0);
        ib_link_free(l);
        rig_close();
    }
}

/* The second QP alone is lost: the loss of an idle one is not reported. */
static void side_is_lost(void **state)
{
    struct ibv_mr mr = {.addr = memory, .length = sizeof(memory)};
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct rme_range range = {.base = memory, .length = 4096, .rkey = (uintptr_t)&mr};
        struct rme_xfer a = write_of(RME_NOTIFY_NONE, 1), b = a;
        struct rme_event down;
        begin();
        ib_xfer(l, &a);
        ib_xfer(l, &b);
        if (what == 1) /* as for a range that the link opens */
            assert_int_equal(ib_expose(side, &range, 1, RME_ACCESS_REMOTE_WRITE), 0);
        ib_flush(rig.f);
        if (what != 2)
            complete(side);
        rig_cm(side, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
        assert_int_equal(l->state, what ? IB_DRAINING : IB_UP);
        rig_drain(side);
        if (what)
            rig_drain(l);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), what != 0);
        assert_null(l->side);
        if (what)
            assert_int_equal(down.error, -ECONNRESET);
        unsigned before = posted(l, IBV_WR_SEND);
        ib_xfer(l, &a);
        send_message();
        assert_int_equal(posted(l, IBV_WR_SEND) - before, what == 0);
        ib_link_free(l);
        rig_close();
    }
}

/* ---- Conditions for a second QP ---- */

static struct ib_own own;
static struct rme_fabric *other;

static struct sockaddr_storage address(const char *text, uint16_t port)
{
    struct sockaddr_storage sa = {.ss_family = AF_INET};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&sa;
    assert_int_equal(inet_pton(AF_INET, text, &v4->sin_addr), 1);
    v4->sin_port = htons(port);
    return sa;
}

/* Opens a second rail with address 10.1.2.3 in a network of 256. */
static void open_two(void)
{
    rig_open(NULL, 16, 256);
    rig.f->stripe_bytes = 1000;
    other = calloc(1, sizeof(*other));
    assert_non_null(other);
    *other = *rig.f;
    other->slots = NULL;
    other->nslots = 0;
    other->number = 1;
    TAILQ_INIT(&other->links);
    TAILQ_INIT(&other->eventful);
    TAILQ_INIT(&other->downs);
    own.sa = address("10.1.2.3", 0);
    memset(own.mask, 255, 3);
    other->own = &own;
    other->owns = 1;
    rig.f->rail[rig.f->rails++] = other;
    other->railed = rig.f->railed = true;
}

static void close_two(void)
{
    ib_links_release(other);
    rig.f->rails = 1;
    rig.f->railed = false;
    free(other);
    rig_close();
}

static void offer_leads_to_a_side(void **state)
{
    uint8_t offer[IB_ANSWER_MAX] = {0}, request[IB_HELLO_MAX] = {0};
    (void)state;
    open_two();
    l = rig_link();
    l->passive = true;
    size_t length = ib_side_offer(l, offer);
    assert_in_range(length, 20 + 17, IB_ANSWER_MAX - IB_HELLO_MAX);
    /* treat the same link as one that got the offer */
    ib_side_keep(l, offer, length);
    assert_null(l->side); /* connected at the first large transfer */
    assert_false(ib_stripe_wanted(l, 999));
    assert_null(l->side);
    assert_false(ib_stripe_wanted(l, 1000));
    side = l->side;
    assert_non_null(side);
    assert_ptr_equal(side->f, other);
    assert_ptr_equal(side->main, l);
    assert_int_equal(side->state, IB_ADDRESSING);
    assert_true(ib_side_is(side->hello, side->hello_length));
    memcpy(request, side->hello, side->hello_length);
    ib_link_destroy(side);
    assert_null(l->side);
    assert_false(ib_stripe_wanted(l, 1000)); /* not at once again */
    assert_null(l->side);
    /* requests with another secret, over the link's own rail, or of an ending link are
     * refused */
    assert_ptr_equal(ib_side_asked(other, request), l);
    assert_null(ib_side_asked(rig.f, request));
    for (int i = 0; i < 16 * 8; i++) {
        request[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_true(!ib_side_is(request, 16) || !ib_side_asked(other, request));
        request[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    /* a request while a second QP exists: the peer has lost the QP, which is dropped if idle */
    join(l);
    request[15] ^= 1;
    assert_null(ib_side_asked(other, request));
    assert_int_equal(side->state, IB_UP);
    request[15] ^= 1;
    assert_null(ib_side_asked(other, request));
    assert_int_equal(side->state, IB_DRAINING);
    assert_int_equal(side->error, -ECONNRESET);
    assert_int_equal(l->state, IB_UP);
    assert_null(ib_side_asked(other, request)); /* not freed yet */
    ib_link_destroy(side);
    assert_ptr_equal(ib_side_asked(other, request), l);
    ib_link_disconnect(l, 0);
    assert_null(ib_side_asked(other, request));
    close_two();
}

/* If the host listens on some addresses only, those with the first one's port are offered. */
static void offers_what_is_served(void **state)
{
    static const struct {
        const char *at[3];
        uint16_t port[3];
        int said, of_port;
    } cases[] = {{{"10.9.9.9", "10.1.2.3", "10.1.2.4"}, {3333, 4444, 4444}, 2, 4444},
                 {{"10.9.9.9", "10.1.2.3", "10.1.2.4"}, {3333, 4444, 5555}, 1, 4444},
                 {{"10.9.9.9", "10.1.2.4", "10.9.9.8"}, {3333, 5555, 3333}, 1, 5555},
                 {{"10.9.9.9", "10.9.9.8", "10.9.9.7"}, {3333, 3333, 3333}, 0, 0}};
    struct ib_own owns[2];
    (void)state;
    open_two();
    owns[0] = owns[1] = own;
    owns[1].sa = address("10.1.2.4", 0);
    other->own = owns;
    other->owns = 2;
    rig.f->config.bind_specific = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ib_listener listener[3];
        struct rdma_cm_id id[3];
        uint8_t offer[IB_ANSWER_MAX] = {0};
        memset(id, 0, sizeof(id));
        for (int k = 0; k < 3; k++) {
            listener[k] = (struct ib_listener){.sa = address(cases[i].at[k], 0), .id = &id[k]};
            id[k].route.addr.src_storage = address(cases[i].at[k], cases[i].port[k]);
        }
        rig.f->listener = listener;
        rig.f->listeners = 3;
        l = rig_link();
        size_t length = ib_side_offer(l, offer);
        assert_int_equal(length, cases[i].said ? 20 + 17 * cases[i].said : 0);
        assert_int_equal(offer[16], cases[i].said);
        assert_int_equal(offer[18] | offer[19] << 8, cases[i].of_port);
        ib_link_destroy(l);
    }
    rig.f->listener = NULL;
    rig.f->listeners = 0;
    rig.f->config.bind_specific = false;
    other->own = &own;
    other->owns = 1;
    close_two();
}

/* A second QP that fails to connect, or is lost, is retried while there is work for it: after a
 * doubling pause, at the next address. Only the active side retries. */
static void a_side_is_sought_again(void **state)
{
    static const unsigned waits[] = {1, 2, 4, 8, 16, 32, 64, 64, 64};
    struct ib_own second = {.sa = address("10.1.2.4", 0)};
    uint8_t offer[IB_ANSWER_MAX] = {0};
    (void)state;
    open_two();
    l = rig_link();
    struct ib_own owns[2] = {own, second};
    memset(owns[1].mask, 255, 3);
    other->own = owns;
    other->owns = 2;
    ib_side_keep(l, offer, ib_side_offer(l, offer));
    for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        uint64_t before = ib_now_ms();
        assert_false(ib_stripe_wanted(l, 1000));
        side = l->side;
        assert_non_null(side);
        const struct sockaddr_in *to = (const struct sockaddr_in *)&side->sockaddr;
        assert_int_equal(ntohl(to->sin_addr.s_addr) & 255, 3 + i % 2);
        assert_int_equal(l->side_at, before + waits[i] * 1000);
        if (i % 2) { /* one that was up, and one that was not */
            side->state = IB_UP;
            assert_true(ib_stripe_wanted(l, 1000));
            side->state = IB_ADDRESSING;
        }
        ib_link_destroy(side);
        assert_null(l->side);
        assert_true(l->may_stripe);
        assert_false(ib_stripe_wanted(l, 1000)); /* before the pause is over */
        assert_null(l->side);
        l->side_at = before;
        assert_false(ib_stripe_wanted(l, 999)); /* no transfer large enough */
        assert_null(l->side);
    }
    l->side_at = ib_now_ms() - 63000; /* the pause has just passed: the next one is as long … */
    assert_false(ib_stripe_wanted(l, 1000));
    assert_int_equal(l->side_at - ib_now_ms(), 64000);
    ib_link_destroy(l->side);
    l->side_at = ib_now_ms() - 64000; /* … until a long time has passed */
    assert_false(ib_stripe_wanted(l, 1000));
    assert_int_equal(l->side_at - ib_now_ms(), 1000);
    ib_link_destroy(l->side);
    other->own = &own;
    other->owns = 1;
    close_two();
}

/* Without windows the peer keeps its keys when a second QP is lost. A later one must therefore
 * use the same device, from either side; over another device the peer would use wrong keys. */
static void a_later_side_is_over_the_device_of_the_keys(void **state)
{
    uint8_t offer[IB_ANSWER_MAX] = {0}, request[IB_HELLO_MAX] = {0};
    struct ibv_mr first = {.rkey = 5, .length = 1000}, second = {.rkey = 7, .length = 1000};
    struct ib_keys keys = {.mr = {&first, &second, &first}};
    for (int given = 0; given < 3; given++) {
        open_two();
        struct rme_fabric *third = calloc(1, sizeof(*third));
        assert_non_null(third);
        *third = *other;
        third->number = 2;
        TAILQ_INIT(&third->links);
        rig.f->rail[rig.f->rails++] = third;
        rig.f->caps.windows = given == 2 ? 64 : 0; /* windows end with the second QP */
        l = rig_link();
        ib_side_keep(l, offer, ib_side_offer(l, offer));
        assert_false(ib_stripe_wanted(l, 1000));
        assert_ptr_equal(l->side->f, other);
        memcpy(request, l->side->hello, l->side->hello_length);
        l->side->state = IB_UP;
        if (given)
            assert_int_equal(bmi_ib_fabric()->link_key(l, (uintptr_t)&keys), KEYS);
        l->side->state = IB_ADDRESSING;
        ib_link_destroy(l->side);
        assert_ptr_equal(ib_side_asked(third, request), given == 1 ? NULL : l);
        assert_ptr_equal(ib_side_asked(other, request), l);
        other->dev.down = true;
        l->side_at = 0;
        assert_false(ib_stripe_wanted(l, 1000));
        if (given == 1)
            assert_null(l->side);
        else
            assert_ptr_equal(l->side->f, third);
        if (given == 1) {
            other->dev.down = false;
            l->side_at = 0;
            assert_false(ib_stripe_wanted(l, 1000));
            assert_ptr_equal(l->side->f, other);
        }
        ib_link_destroy(l->side);
        ib_links_release(third);
        rig.f->rails--;
        free(third);
        close_two();
    }
    (void)state;
}

/* Not retried by option, nor by the passive side. */
static void a_side_is_not_sought_again(void **state)
{
    uint8_t offer[IB_ANSWER_MAX] = {0};
    char why[200];
    (void)state;
    open_two();
    assert_int_equal(rme_options_parse(rig.options, "stripe_retry_ms=0", why, sizeof(why)), 0);
    l = rig_link();
    ib_side_keep(l, offer, ib_side_offer(l, offer));
    assert_false(ib_stripe_wanted(l, 1000));
    assert_non_null(l->side);
    ib_link_destroy(l->side);
    assert_int_equal(l->side_at, UINT64_MAX);
    struct rme_link *asked = rig_link();
    asked->passive = true;
    ib_side_join(asked, ib_link_new(other));
    ib_link_destroy(asked->side);
    assert_false(asked->may_stripe);
    assert_false(ib_stripe_wanted(asked, 1000));
    assert_null(asked->side);
    close_two();
}

/* Random offers: only near addresses from the offer are used, one at most. */
static void offers_of_strangers(void **state)
{
    uint8_t offer[IB_ANSWER_MAX];
    (void)state;
    srandom(11);
    for (int round = 0; round < 2000; round++) {
        size_t length = (size_t)random() % sizeof(offer);
        open_two();
        l = rig_link();
        size_t real = ib_side_offer(l, offer);
        for (size_t i = round % 2 ? 4 : 16; i < sizeof(offer); i++)
            offer[i] = i < real && random() % 4 ? offer[i] : (uint8_t)random();
        ib_side_keep(l, offer, length);
        for (int i = 0; i < 3; i++)
            assert_false(ib_stripe_wanted(l, 1000));
        for (unsigned n = 0; n < other->nslots; n++)
            assert_true(!other->slots[n].link || other->slots[n].link == l->side);
        if (l->side)
            assert_int_equal(memcmp(&((struct sockaddr_in *)&l->side->sockaddr)->sin_addr,
                                    "\x0a\x01\x02", 3),
                             0);
        close_two();
    }
}

static int stop_clock(void **state)
{
    (void)state;
    clock_set();
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_waits_for_both_windows),
        cmocka_unit_test(memory_of_a_failed_device_is_not_opened),
        cmocka_unit_test(notification_waits_for_the_data),
        cmocka_unit_test(alone_is_halved),
        cmocka_unit_test(some_are_not_striped),
        cmocka_unit_test(down_comes_after_both),
        cmocka_unit_test(side_is_lost),
        cmocka_unit_test(offer_leads_to_a_side),
        cmocka_unit_test(offers_what_is_served),
        cmocka_unit_test_setup_teardown(a_side_is_sought_again, stop_clock, clock_teardown),
        cmocka_unit_test(a_later_side_is_over_the_device_of_the_keys),
        cmocka_unit_test(a_side_is_not_sought_again),
        cmocka_unit_test(offers_of_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
