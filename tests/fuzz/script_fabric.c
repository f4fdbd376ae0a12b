/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <sys/queue.h>

#include "fuzz.h"
#include "memory/zone.h"
#include "script_fabric.h"

#define RX_SIZE 4096
#define REGS    4096
#define OPEN    64 /* most recent segments that peers know */

struct pending {
    TAILQ_ENTRY(pending) entry;
    struct rme_event event;
    uint32_t closed; /* windows that are free after it */
    size_t size;
    unsigned char data[]; /* hello or message */
};

TAILQ_HEAD(pending_list, pending);

enum stage { MAKING, REQUESTED, UP, ENDED };

struct rme_link {
    unsigned number;
    enum stage stage;
    bool down_told; /* LINK_DOWN was polled */
    bool wants_room;
    uint32_t advertised; /* receive buffers */
    uint32_t open;       /* windows */
    /* its peer's ring; length 0: none */
    struct rme_wire_segment lent;
    void *owner;
};

struct rme_fabric {
    struct rme_fabric_config config;
    struct pending_list queue;
    struct pending *polled; /* its data is valid until the next poll */
};

/* Limits of its own: mechanisms are tested, not what an adapter is taken to cost. */
static const struct rme_limits script_limits = {
    .once = {256u << 10, 2u << 10, 1u << 10},
    .list = {16u << 10, 768, 1u << 10},
    .read = 1,
};
static struct rme_caps script_caps = {.max_sge = 4,
                                      .max_read_sge = 3,
                                      .max_piece = 1 << 20,
                                      .max_regs = REGS,
                                      .has_read = true,
                                      .limits = &script_limits};

struct script script;
static struct rme_fabric *fabric;
static struct rme_link *link_at[SCRIPT_LINKS];
static struct rme_mr *mr_at[REGS];
static unsigned access_at[REGS];
static struct rme_rdma_op *rdma_ops; /* in flight, linked by fabric.next */
static struct rme_wire_segment open_at[OPEN];
static unsigned opened;
static uint64_t next_key;

static void note(uint64_t what)
{
    fuzz_note(&script.trace, what);
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if __has_feature(address_sanitizer) || defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISONED(base, length) __asan_region_is_poisoned(base, length)
#define TOUCHED                64
#else
#define POISONED(base, length) NULL
#define TOUCHED                SIZE_MAX
#endif

/*
 * Accesses memory like the device: reads it, or writes `value` into all of it. With a
 * sanitizer's map of the valid memory it checks that, and accesses only both ends and invalid
 * places, because this is the largest cost of an input.
 */
static void touch(void *base, size_t length, bool write, int value)
{
    unsigned char *at = base, *poisoned = POISONED(base, length);
    size_t part = length < TOUCHED ? length : TOUCHED;
    unsigned char sum = 0;

    if (poisoned != NULL)
        sum ^= *(volatile unsigned char *)poisoned; /* the sanitizer reports its owner */
    if (write) {
        memset(at, value, part);
        memset(at + length - part, value, part);
    } else {
        for (size_t i = 0; i < part; i++)
            sum ^= at[i] ^ at[length - part + i];
    }
    __asm__ volatile("" : : "r"(sum));
}

/* Returns the registration with this key, if it still covers the range. */
static const struct rme_mr *live_mr(uint64_t key, uint64_t start, uint64_t length)
{
    const struct rme_mr *mr = mr_at[key % REGS];

    return mr != NULL && mr->rkey == key && start >= mr->base &&
                   start + length <= mr->base + mr->length
               ? mr
               : NULL;
}

/* Returns whether the registration is a zone's slab, open for reads and writes. A slab stays
 * registered after its open blocks are freed; a correct peer does not access them then. */
static bool is_zone(const struct rme_mr *mr)
{
    return (access_at[mr->rkey % REGS] & RME_ACCESS_REMOTE) == RME_ACCESS_REMOTE;
}

/* ---- events ---- */

static struct pending *queue_event(enum rme_event_type type, struct rme_link *link,
                                   const void *data, size_t size)
{
    /* odd, so that tests can refuse the size of a structure of the engine */
    struct pending *p = calloc(1, (sizeof(*p) + size) | 1);

    FUZZ_CHECK(p != NULL);
    p->event.type = type;
    p->event.link = link;
    p->event.owner = link != NULL ? link->owner : NULL;
    p->size = size;
    if (size > 0)
        memcpy(p->data, data, size);
    TAILQ_INSERT_TAIL(&fabric->queue, p, entry);
    return p;
}

static struct rme_link *link_in(unsigned which, enum stage stage)
{
    struct rme_link *link = link_at[which % SCRIPT_LINKS];

    return link != NULL && link->stage == stage ? link : NULL;
}

static struct rme_link *link_new(enum stage stage, void *owner)
{
    for (unsigned i = 0; i < SCRIPT_LINKS; i++) {
        if (link_at[i] != NULL)
            continue;
        link_at[i] = calloc(1, sizeof(*link_at[i]));
        FUZZ_CHECK(link_at[i] != NULL);
        link_at[i]->number = i;
        link_at[i]->stage = stage;
        link_at[i]->owner = owner;
        script.owed[i] = 0;
        script.links++;
        return link_at[i];
    }
    return NULL;
}

static void link_gone(struct rme_link *link)
{
    script.advertised -= link->advertised;
    link_at[link->number] = NULL;
    script.links--;
    free(link);
}

/* Drops the transfers of an ending link, without events. */
static void drop_rdma_ops(struct rme_link *link)
{
    struct rme_rdma_op **at = &rdma_ops;

    while (*at != NULL) {
        if ((*at)->fabric.mark == (uintptr_t)link) {
            *at = (*at)->fabric.next;
            script.rdma_ops--;
        } else {
            at = &(*at)->fabric.next;
        }
    }
}

/* Ends a link and drops its queued events: none may follow LINK_DOWN. */
static void end_link(struct rme_link *link, int error, const void *data, size_t size)
{
    struct pending *p, *next;

    link->stage = ENDED;
    script.open -= link->open;
    link->open = 0;
    drop_rdma_ops(link);
    for (p = TAILQ_FIRST(&fabric->queue); p != NULL; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->event.link == link) {
            TAILQ_REMOVE(&fabric->queue, p, entry);
            free(p);
        }
    }
    queue_event(RME_EV_LINK_DOWN, link, data, size)->event.error = error;
}

void script_request(const void *hello, size_t length)
{
    struct rme_link *link = link_new(REQUESTED, NULL);

    if (link != NULL)
        queue_event(RME_EV_LINK_REQUEST, link, hello, length);
}

void script_up(unsigned which, const void *hello, size_t length)
{
    struct rme_link *link = link_in(which, MAKING);

    if (link != NULL) {
        link->stage = UP;
        queue_event(RME_EV_LINK_UP, link, hello, length);
    }
}

void script_message(unsigned which, const void *data, size_t length)
{
    struct rme_link *link = link_in(which, UP);

    if (link != NULL)
        queue_event(RME_EV_RECV, link, data, length < RX_SIZE ? length : RX_SIZE);
}

void script_early_message(unsigned which, const void *data, size_t length)
{
    struct rme_link *link = link_in(which, MAKING);

    FUZZ_CHECK(link != NULL && length <= RX_SIZE);
    queue_event(RME_EV_RECV, link, data, length);
}

void script_imm(unsigned which, uint32_t imm)
{
    struct rme_link *link = link_in(which, UP);

    if (link != NULL)
        queue_event(RME_EV_IMM, link, NULL, 0)->event.imm = imm;
}

void script_down(unsigned which, int error)
{
    struct rme_link *link = link_at[which % SCRIPT_LINKS];

    if (link != NULL && (link->stage == UP || link->stage == MAKING))
        end_link(link, error, NULL, 0);
}

void script_unanswered(int error)
{
    queue_event(RME_EV_LINK_DOWN, NULL, NULL, 0)->event.error = error;
}

void script_lent(unsigned which, unsigned at, const void *data, size_t length)
{
    struct rme_link *link = link_in(which, UP);
    uint64_t offset = (uint64_t)at * RME_WIRE_RING_ALIGN;
    const struct rme_wire_segment *lent;

    if (link == NULL)
        return;
    lent = &link->lent;
    if (lent->length == 0 || offset + length > lent->length ||
        live_mr(lent->key, lent->address, lent->length) == NULL) {
        end_link(link, -EREMOTEIO, NULL, 0);
        return;
    }
    memcpy((void *)(uintptr_t)(lent->address + offset), data, length);
    script_imm(which, RME_WIRE_RING_NAME + at);
}

void script_refuse(unsigned which, int error, const void *data, size_t length)
{
    struct rme_link *link = link_in(which, MAKING);

    if (link != NULL)
        end_link(link, error, data, length);
}

void script_cut(void)
{
    for (unsigned i = 0; i < SCRIPT_LINKS; i++)
        script_down(i, -ECONNRESET);
}

void script_finish(unsigned which)
{
    struct rme_rdma_op **at = &rdma_ops;
    struct rme_rdma_op *rdma_op;

    if (script.rdma_ops == 0)
        return;
    for (which %= script.rdma_ops; which > 0; which--)
        at = &(*at)->fabric.next;
    rdma_op = *at;
    *at = rdma_op->fabric.next;
    script.rdma_ops--;
    queue_event(RME_EV_RDMA_DONE, (struct rme_link *)(uintptr_t)rdma_op->fabric.mark, NULL, 0)
        ->event.rdma_op = rdma_op;
}

void script_tx_room(void)
{
    script.no_tx = false;
    for (unsigned i = 0; i < SCRIPT_LINKS; i++) {
        struct rme_link *link = link_in(i, UP);

        if (link != NULL && link->wants_room) {
            link->wants_room = false;
            queue_event(RME_EV_TX_ROOM, link, NULL, 0);
        }
    }
}

void script_scribble(unsigned which, unsigned value)
{
    const struct rme_wire_segment *segment = &open_at[which % OPEN];
    const struct rme_mr *mr = live_mr(segment->key, segment->address, segment->length);

    if (mr == NULL || is_zone(mr))
        return;
    touch((void *)(uintptr_t)segment->address, segment->length,
          access_at[segment->key % REGS] & RME_ACCESS_REMOTE_WRITE, (int)value);
}

bool script_is_quiet(void)
{
    return fabric == NULL || TAILQ_EMPTY(&fabric->queue);
}

/* ---- the fabric ---- */

static int script_open(const struct rme_fabric_config *config, struct rme_fabric **out)
{
    fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return -ENOMEM;
    fabric->config = *config;
    script_caps.mws = script.mws;
    script_caps.max_sge = script.max_sge ? script.max_sge : 4;
    script_caps.keeps_rx = script.keeps_rx;
    script_caps.unsignalled = script.unsignalled;
    script_caps.on_demand = script.on_demand;
    script_caps.shared_rx = script.keeps_rx || script.own_rx ? 0 : 1 << 14;
    memset(open_at, 0, sizeof(open_at)); /* the same names for each fabric */
    opened = 0;
    next_key = 0;
    TAILQ_INIT(&fabric->queue);
    *out = fabric;
    return 0;
}

static void script_close(struct rme_fabric *f)
{
    struct pending *p;

    FUZZ_CHECK(script.links == 0 && script.regs == 0 && script.rdma_ops == 0 &&
               script.held_tx == 0 && script.held_rx == 0);
    while ((p = TAILQ_FIRST(&f->queue)) != NULL) {
        TAILQ_REMOVE(&f->queue, p, entry);
        free(p);
    }
    free(f->polled);
    free(f);
    fabric = NULL;
}

static const struct rme_caps *caps(const struct rme_fabric *f)
{
    (void)f;
    return &script_caps;
}

static int reg(struct rme_fabric *f, void *base, size_t length, unsigned access,
               struct rme_mr *mr)
{
    (void)f;
    if (script.registering != NULL)
        script.registering();
    if (script.no_regs)
        return -ENOMEM;
    for (unsigned i = 0; i < REGS; i++) {
        uint64_t key = ++next_key;

        if (mr_at[key % REGS] != NULL)
            continue;
        *mr = (struct rme_mr){.handle = calloc(1, sizeof(*mr)),
                              .base = (uintptr_t)base,
                              .length = length,
                              .lkey = key,
                              .rkey = key};
        FUZZ_CHECK(mr->handle != NULL);
        memcpy(mr->handle, mr, sizeof(*mr));
        mr_at[key % REGS] = mr->handle;
        access_at[key % REGS] = access;
        script.regs++;
        return 0;
    }
    return -ENOMEM;
}

static void dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    (void)f;
    if (script.deregistering != NULL)
        script.deregistering();
    FUZZ_CHECK(mr_at[mr->lkey % REGS] == mr->handle);
    mr_at[mr->lkey % REGS] = NULL;
    free(mr->handle);
    script.regs--;
}

static int rx_reserve(struct rme_link *link, uint32_t n)
{
    if (script.most_rx != 0 && link->advertised + n > script.most_rx)
        return -ENOSPC;
    link->advertised += n;
    script.advertised += n;
    return 0;
}

static int link_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                        const void *hello, size_t length, uint32_t rx, void *owner,
                        struct rme_link **out)
{
    (void)f;
    (void)addr;
    script.asked[part != 0]++;
    if (script.connecting != NULL)
        script.connecting();
    FUZZ_CHECK(length <= RME_HELLO_MAX && hello != NULL);
    *out = link_new(MAKING, owner);
    note(*out != NULL ? (*out)->number : SCRIPT_LINKS);
    return *out != NULL ? rx_reserve(*out, rx) : -ENOMEM;
}

static int link_accept(struct rme_link *link, const void *hello, size_t length, uint32_t rx,
                       void *owner)
{
    FUZZ_CHECK(link->stage == REQUESTED && length <= RME_HELLO_MAX && hello != NULL);
    link->owner = owner;
    link->stage = MAKING;
    return rx_reserve(link, rx);
}

static void link_reject(struct rme_link *link, const void *hello, size_t length)
{
    FUZZ_CHECK(link->stage == REQUESTED && length <= RME_HELLO_MAX && hello != NULL);
    note(link->number);
    link_gone(link);
}

static void link_disconnect(struct rme_link *link, int error)
{
    note((uint32_t)error | (uint64_t)link->number << 32);
    if (link->stage != ENDED)
        end_link(link, -ESHUTDOWN, NULL, 0);
}

static void link_free(struct rme_link *link)
{
    FUZZ_CHECK(link->down_told);
    link_gone(link);
}

static const char *link_peer(const struct rme_link *link)
{
    return link != NULL ? "peer:1" : "";
}

static void rx_release(struct rme_link *link, uint32_t n)
{
    FUZZ_CHECK(n <= link->advertised && !script_caps.keeps_rx);
    link->advertised -= n;
    script.advertised -= n;
}

static bool rx_return(struct rme_fabric *f, void *rx)
{
    (void)f;
    script.held_rx--;
    free(rx);
    return true;
}

static void *tx_get(struct rme_link *link)
{
    FUZZ_CHECK(link->stage != MAKING && link->stage != REQUESTED);
    if (script.no_tx) {
        link->wants_room = true;
        return NULL;
    }
    script.held_tx++;
    return calloc(1, fabric->config.rx_size);
}

static void tx_put(struct rme_link *link, void *tx)
{
    (void)link;
    script.held_tx--;
    free(tx);
}

/* Decodes the engine's message, like its peer, and records the handles of operations. */
static void listen_to(struct rme_link *link, const void *tx, size_t length)
{
    char *exact = fuzz_copy(tx, length, 0);
    struct rme_wire_message message;

    FUZZ_CHECK(length <= fabric->config.rx_size);
    FUZZ_CHECK(rme_wire_decode(exact, length, &message) == 0);
    script.credit_messages += message.type == RME_WIRE_CREDIT;
    script.spent++;
    script.owed[link->number]++;
    script.speaker = link->number;
    note(message.type | message.flags << 8 | (uint64_t)message.credits << 16 |
         (uint64_t)message.nsegment << 32);
    note(message.from | (uint64_t)message.to << 32);
    note(message.total);
    note(message.offset);
    note((uint32_t)message.tag | (uint64_t)length << 32);
    if (script.heard != NULL)
        script.heard(&message);
    if (message.from != 0) {
        memmove(script.handle, script.handle + 1,
                sizeof(script.handle) - sizeof(script.handle[0]));
        script.handle[SCRIPT_HANDLES - 1] = message.from;
        script.handles += script.handles < SCRIPT_HANDLES;
    }
    for (uint32_t i = 0; i < message.nsegment; i++)
        rme_wire_segment_at(&message, i, &open_at[opened++ % OPEN]);
    if (message.type == RME_WIRE_CREDIT && message.nsegment == 1)
        rme_wire_segment_at(&message, 0, &link->lent);
    free(exact);
}

static void tx_send(struct rme_link *link, void *tx, size_t length)
{
    listen_to(link, tx, length);
    tx_put(link, tx);
}

/* Accesses all local memory of a transfer. */
static void touch_all(const struct rme_rdma_op *x)
{
    for (uint32_t i = 0; i < x->npiece; i++) {
        FUZZ_CHECK(x->piece[i].nseg >= 1 &&
                   x->piece[i].nseg <=
                       (x->read ? script_caps.max_read_sge : script_caps.max_sge));
        for (uint32_t s = 0; s < x->piece[i].nseg; s++) {
            const struct rme_sge *seg = &x->piece[i].seg[s];

            FUZZ_CHECK(live_mr(seg->lkey, (uintptr_t)seg->base, seg->length) != NULL);
            touch(seg->base, seg->length, x->read, 0x5a);
        }
    }
}

static void start_rdma_op(struct rme_link *link, struct rme_rdma_op *x)
{
    touch_all(x);
    note((uint64_t)x->read << 33 | (uint64_t)x->notify << 34 | x->npiece);
    if (x->notify == RME_NOTIFY_MSG)
        tx_send(link, x->tx, x->tx_length);
    FUZZ_CHECK(!x->unsignalled || (script_caps.unsignalled && !x->read));
    FUZZ_CHECK(!x->read || x->notify == RME_NOTIFY_NONE || script_caps.chains_reads);
    script.spent += x->notify == RME_NOTIFY_IMM;
    script.owed[link->number] += x->notify == RME_NOTIFY_IMM;
    script.quieted += x->unsignalled;
    script.segments = x->npiece != 0 ? x->piece[0].nseg : 0;
    if (link->stage == ENDED)
        return; /* ended with its link */
    x->fabric.mark = (uintptr_t)link;
    x->fabric.next = rdma_ops;
    rdma_ops = x;
    script.rdma_ops++;
}

static int mw_bind(struct rme_link *link, struct rme_range *range, uint32_t n, unsigned access)
{
    (void)access;
    FUZZ_CHECK(link->stage == UP || link->stage == ENDED);
    if (script.open + n > script.mws)
        return -EAGAIN;
    for (uint32_t i = 0; i < n; i++)
        range[i].key = range[i].rkey;
    if (link->stage == ENDED)
        return 0; /* not reported to the engine yet */
    link->open += n;
    script.open += n;
    return 0;
}

static bool mw_invalidate(struct rme_link *link, struct rme_range *range, uint32_t n,
                          void *owner)
{
    struct pending *p;

    (void)range;
    if (link->stage == ENDED)
        return false; /* everything is closed */
    FUZZ_CHECK(link->stage == UP && n <= link->open);
    p = queue_event(RME_EV_MW_INVALIDATED, link, NULL, 0);
    p->event.closed = owner;
    p->closed = n;
    return false;
}

static void flush(struct rme_fabric *f)
{
    (void)f;
}

static int poll_events(struct rme_fabric *f, struct rme_event *events, int max)
{
    struct pending *p = TAILQ_FIRST(&f->queue);

    free(f->polled);
    f->polled = NULL;
    if (p == NULL || max < 1)
        return 0;
    TAILQ_REMOVE(&f->queue, p, entry);
    f->polled = p;
    switch (p->event.type) {
    case RME_EV_LINK_REQUEST:
    case RME_EV_LINK_UP:
        p->event.hello = p->data;
        p->event.hello_length = p->size;
        break;
    case RME_EV_LINK_DOWN:
        if (p->event.link != NULL)
            p->event.link->down_told = true;
        p->event.hello = p->size > 0 ? p->data : NULL;
        p->event.hello_length = p->size;
        break;
    case RME_EV_RECV:
        p->event.data = p->event.rx = fuzz_copy(p->data, p->size, 0);
        p->event.length = p->size;
        script.held_rx++;
        break;
    case RME_EV_MW_INVALIDATED:
        p->event.link->open -= p->closed;
        script.open -= p->closed;
        break;
    case RME_EV_RDMA_DONE:
        if (p->event.rdma_op->read)
            touch_all(p->event.rdma_op);
        break;
    default:
        break;
    }
    events[0] = p->event;
    return 1;
}

static int arm(struct rme_fabric *f)
{
    (void)f;
    return 0;
}

static void wait_for(struct rme_fabric *f, int timeout_ms)
{
    (void)f;
    (void)timeout_ms;
    if (script.sleeping != NULL)
        script.sleeping();
}

static void wake(struct rme_fabric *f)
{
    (void)f;
    if (script.waking != NULL)
        script.waking();
}

static int deadline(struct rme_fabric *f)
{
    (void)f;
    return -1;
}

const struct rme_fabric_ops script_ops = {
    .release = RME_RELEASE,
    .size = sizeof(struct rme_fabric_ops),
    .scheme = "ib",
    .open = script_open,
    .close = script_close,
    .caps = caps,
    .reg = reg,
    .dereg = dereg,
    .link_connect = link_connect,
    .link_accept = link_accept,
    .link_reject = link_reject,
    .link_disconnect = link_disconnect,
    .link_free = link_free,
    .link_peer = link_peer,
    .rx_reserve = rx_reserve,
    .rx_release = rx_release,
    .rx_return = rx_return,
    .tx_get = tx_get,
    .tx_put = tx_put,
    .tx_send = tx_send,
    .rdma_op = start_rdma_op,
    .mw_bind = mw_bind,
    .mw_invalidate = mw_invalidate,
    .flush = flush,
    .poll = poll_events,
    .arm = arm,
    .wait = wait_for,
    .wake = wake,
    .deadline = deadline,
};
