/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A whole engine against a peer that sends anything at any time. The input is a list of steps:
 * actions of the host (post, cancel, free an address, leave unexpected messages), of the device
 * (complete a transfer, run out of buffers), of the system (out of memory), the passing of
 * time, and actions of peers (connect, send valid, nearly valid or invalid messages, write into
 * open memory, disconnect).
 *
 * Checked: every operation ends exactly once; memory of an operation is freed as soon as it has
 * ended, so that a sanitizer detects later access; after all links are cut nothing is left.
 * Each input has its own engine (over a device with memory windows if its length is odd), whose
 * measurements are always the same.
 */
#include <errno.h>
#include <time.h>

#include "engine/engine.h"
#include "fuzz.h"
#include "rme.h"
#include "script_fabric.h"

#define OPS       32
#define ADDRESSES 8
#define PATIENCE  2000
/* below the option's minimum: messages then have many fragments, and short inputs reach the
 * limits */
#define UNIT    32768
#define RTS_MAX 24
/* of the device, for inputs of odd length; few, so that they run out */
#define WINDOWS 6
#define BEGIN   UINT64_C(1000000000000) /* ns */
#define TICK    1000                    /* ns per clock reading */
#define WINDOW  4608
#define ZONE_FROM                                                                              \
    0x80 /* from this address byte on: registered memory, whose receives send an invitation */

struct input {
    const uint8_t *at;
    size_t left;
};

struct op {
    bool used;
    bool zone; /* its memory is the engine's */
    rme_id id;
    void *base[3];
    int64_t length[3];
};

static struct rme *rme;
static struct op op_at[OPS];
static struct rme_addr *addr_at[ADDRESSES];
static unsigned live;
static uint64_t now;   /* ns */
static bool lazy;      /* the host fetches no unexpected messages */
static unsigned fails; /* number of the engine's next allocation that fails; 0: none */

/* Replaces malloc for the engine; the other code uses calloc. */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails != 0 && --fails == 0 ? NULL : __real_malloc(size);
}

/* The machine: a controlled clock, no randomness. */
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    now += TICK;
    t->tv_sec = (time_t)(now / 1000000000);
    t->tv_nsec = (long)(now % 1000000000);
    return 0;
}

ssize_t __wrap_getrandom(void *to, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *to, size_t size, unsigned flags)
{
    (void)flags;
    memset(to, 7, size);
    return (ssize_t)size;
}

static const uint32_t sizes[] = {0,    1,     64,    1000,  4064,   4096,
                                 5000, 16384, 16385, 70000, 150000, 250000};

static unsigned take(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static uint32_t take32(struct input *in)
{
    uint32_t value = take(in);

    value |= take(in) << 8;
    value |= take(in) << 16;
    return value | (uint32_t)take(in) << 24;
}

static uint32_t take_size(struct input *in)
{
    unsigned which = take(in);

    return which < 200 ? sizes[which % (sizeof(sizes) / sizeof(sizes[0]))]
                       : take32(in) >> (which % 32);
}

/* ---- the host ---- */

static void open_engine(void)
{
    struct rme_addr *listen = NULL;
    struct rme_config config = {
        .fabric = &script_ops,
        .options = "regcache_entries=0,poll_us=0,keepalive_ms=0,backoff_max_ms=1,"
                   "credits=8,pool_bytes=64M"};

    FUZZ_CHECK(rme_addr_parse("ib", "ib://self:1", &listen) == 0);
    config.listen = listen;
    FUZZ_CHECK(rme_open(&config, &rme) == 0);
    FUZZ_CHECK(rme_context_open(rme, 0) == 0);
    rme->tuning.frag_size = UNIT;
    rme->tuning.rts_max = RTS_MAX;
    rme->tuning.eager_window[RME_EXPECTED] = rme->tuning.eager_window[RME_UNEXPECTED_STREAM] =
        WINDOW;
    rme_addr_free(listen);
}

static void forget(struct op *op)
{
    FUZZ_CHECK(op->used);
    if (op->zone) {
        FUZZ_CHECK(rme_memory_free(rme, op->base[0]) == 0);
        op->base[0] = NULL;
    }
    for (int i = 0; i < 3; i++)
        free(op->base[i]);
    memset(op, 0, sizeof(*op));
    live--;
}

static void keep_address(struct rme_addr *addr)
{
    for (int i = 0; i < ADDRESSES; i++) {
        if (addr_at[i] == NULL) {
            addr_at[i] = addr;
            return;
        }
    }
    rme_addr_free(addr);
}

/* Polls until no event is left. The engine may sleep for `idle_ms` first: then it reads the
 * clock, which it seldom does during repeated polls. */
static void run_for(int idle_ms)
{
    struct rme_done done[4];
    struct rme_unexpected got[2];
    int count;

    for (int i = 0; i < PATIENCE; i++) {
        bool quiet = script_is_quiet();

        count = rme_test_context(rme, 0, done, 4, idle_ms);
        idle_ms = 0;
        FUZZ_CHECK(count >= 0);
        for (int k = 0; k < count; k++) {
            struct op *op = done[k].user;

            FUZZ_CHECK(op->used && op->id == done[k].id);
            FUZZ_CHECK(done[k].error <= 0 && done[k].actual >= 0);
            fuzz_note(&script.trace, (uint64_t)(op - op_at) << 32 | (uint32_t)done[k].error);
            fuzz_note(&script.trace, (uint64_t)done[k].actual);
            forget(op);
        }
        quiet = quiet && count == 0;
        count = lazy ? 0 : rme_test_unexpected(rme, got, 2, 0);
        FUZZ_CHECK(count >= 0);
        for (int k = 0; k < count; k++) {
            FUZZ_CHECK(got[k].size >= 0 && got[k].size <= RME_UNEXPECTED_MAX);
            fuzz_note(&script.trace, (uint64_t)got[k].size << 32 | (uint32_t)got[k].tag);
            memset(got[k].buffer, 1, (size_t)got[k].size);
            FUZZ_CHECK(rme_unexpected_free(rme, got[k].buffer) == 0);
            if (got[k].first)
                keep_address(got[k].addr);
        }
        if (quiet && count == 0)
            return;
    }
    FUZZ_CHECK(!"the engine comes to rest");
}

static void run(void)
{
    run_for(0);
}

static void post(struct input *in)
{
    unsigned kind = take(in) % 4, where = take(in);
    struct rme_addr **addr = &addr_at[where % ADDRESSES];
    struct rme_list list;
    struct op *op = op_at;
    uint32_t size = take_size(in) % (1 << 18); /* larger blocks have a mapping each */
    int32_t tag = (int32_t)take(in) % 4;
    int ret, pieces = 1 + (int)(take(in) % 3);
    int64_t actual;

    if (*addr == NULL && rme_addr_parse("ib", "ib://peer:1", addr) != 0)
        return;
    while (op < op_at + OPS && op->used)
        op++;
    if (op == op_at + OPS)
        return;
    op->used = true;
    op->zone = where >= ZONE_FROM && pieces == 1;
    live++;
    for (int i = 0; i < pieces; i++) {
        op->length[i] = i == pieces - 1
                            ? size - size / (uint32_t)pieces * (uint32_t)(pieces - 1)
                            : size / (uint32_t)pieces;
        op->base[i] = op->zone ? rme_memory_alloc(rme, size)
                               : __real_malloc((size_t)op->length[i] + (op->length[i] == 0));
        FUZZ_CHECK(op->base[i] != NULL);
    }
    list = (struct rme_list){.base = op->base, .length = op->length, .count = pieces};
    if (kind == 0)
        ret = rme_post_unexpected(rme, *addr, &list, tag, 0, op, &op->id);
    else if (kind == 1)
        ret = rme_post_send(rme, *addr, &list, tag, 0, op, &op->id);
    else
        ret = rme_post_recv(rme, *addr, &list, tag, 0, op, &actual, &op->id);
    FUZZ_CHECK(ret <= 1 && !(ret == 1 && kind > 1));
    fuzz_note(&script.trace, (uint32_t)ret);
    if (ret != 0)
        forget(op);
}

static void cancel(unsigned which)
{
    if (op_at[which % OPS].used)
        FUZZ_CHECK(rme_cancel(rme, op_at[which % OPS].id) == 0);
}

static void free_address(unsigned which)
{
    struct rme_addr **addr = &addr_at[which % ADDRESSES];

    if (*addr != NULL)
        rme_addr_free(*addr);
    *addr = NULL;
}

/* ---- peers ---- */

static size_t make_hello(struct input *in, uint8_t out[RME_HELLO_MAX])
{
    unsigned how = take(in);
    struct rme_hello hello = {.version = RME_WIRE_VERSION,
                              .version_min = RME_WIRE_VERSION_MIN,
                              .flags = (uint8_t)(RME_HELLO_F_READ | RME_HELLO_F_EARLY_CTS |
                                                 (how & 2 ? RME_HELLO_F_RING : 0)),
                              .incarnation = 1 + how % 3,
                              .rx_size = how & 0x10 ? 512 : 4096,
                              .credits = how & 0x20 ? (how & 4 ? 1 : 4) : 64,
                              .eager_window = how & 0x40 ? 5000 : 1 << 20,
                              .unexpected_window = how & 0x40 ? 5000 : 1 << 20,
                              .rts_max = how & 0x80 ? 1 : 64};

    memset(out, 0, RME_HELLO_MAX);
    rme_hello_encode(&hello, out);
    if (how == 0xff)
        out[take(in) % RME_HELLO_SIZE] = (uint8_t)take(in);
    return RME_HELLO_SIZE;
}

/* Returns the credits that a peer owes. */
static uint16_t returns(unsigned link)
{
    uint32_t *owed = &script.owed[link % SCRIPT_LINKS];
    uint16_t credits = (uint16_t)*owed;

    *owed = 0;
    return credits;
}

/* Clears the fields that the type does not use, with which the message would be malformed. */
static void clear_unused(struct rme_wire_message *m)
{
    bool rts = m->type == RME_WIRE_RTS, fin = m->type == RME_WIRE_FIN;

    m->to = rts ? 0 : m->to;
    m->offset = rts || m->type == RME_WIRE_CANCEL ? 0 : m->offset;
    m->total = rts || fin ? m->total : 0;
    m->status = fin ? m->status : 0;
    m->shape = rts ? m->shape : 0;
    m->load_ops = rts ? m->load_ops : 0;
}

/* Makes a message from handles that the engine has used, and plausible sizes. */
static void say(struct input *in)
{
    unsigned link = take(in), how = take(in);
    struct rme_wire_message m = {.type = (uint8_t)(1 + take(in) % 9),
                                 .flags = (uint8_t)(how & 0x9f)};
    static uint8_t buffer[8192]; /* zero behind the head, for any length */
    size_t length, head, payload = 0;

    m.credits = how & 0x10 ? (uint16_t)take(in) : returns(link);
    m.tag = (int32_t)take(in) % 4;
    if (how & 0x20) {
        m.eager_consumed = take32(in);
        m.unexpected_consumed = take32(in);
    }
    m.to =
        how & 0x40 ? take32(in) : script.handle[SCRIPT_HANDLES - 1 - take(in) % SCRIPT_HANDLES];
    m.from = 1 + take(in) % 8;
    m.total = take_size(in);
    m.offset = take_size(in);
    m.status = take(in) % 6;
    m.shape = 1 + take(in) % 4;
    m.load_ops = take(in) % 3;
    if (m.type == RME_WIRE_RTS || m.type == RME_WIRE_CTS ||
        (m.type == RME_WIRE_CREDIT && (m.flags & RME_WIRE_F_GRANT) != 0))
        m.nsegment = take(in) % 5;
    if (m.type == RME_WIRE_EAGER)
        payload = take_size(in) % 5000;
    clear_unused(&m);
    rme_wire_encode(&m, buffer);
    for (uint32_t i = 0; i < m.nsegment; i++) {
        struct rme_wire_segment segment = {
            .address = 0x1000 * (1 + i), .key = 7, .length = take_size(in)};

        rme_wire_put_segment(buffer, m.type, i, &segment);
    }
    head = rme_wire_length(m.type, m.nsegment);
    length = head + payload;
    FUZZ_CHECK(length <= sizeof(buffer));
    script_message(link, buffer, length);
    memset(buffer, 0, head);
}

static void say_raw(struct input *in)
{
    unsigned link = take(in);
    size_t length = take(in);

    if (length > in->left)
        length = in->left;
    script_message(link, in->at, length);
    in->at += length;
    in->left -= length;
}

/* Makes a message in the ring, or nearly one, and some of its payload. */
static void write_lent(struct input *in)
{
    unsigned link = take(in), how = take(in);
    struct rme_wire_message m = {.type = RME_WIRE_EAGER,
                                 .flags = how & 1 ? RME_WIRE_F_UNEXPECTED : 0,
                                 .credits = how & 2 ? (uint16_t)take(in) : returns(link)};
    uint8_t buffer[256] = {0};
    unsigned at = take(in);

    m.tag = (int32_t)take(in) % 4;
    if (how & 4)
        at = take32(in) % 65536;
    rme_wire_encode_ring(&m, take_size(in), buffer);
    if (how & 8)
        buffer[take(in) % RME_WIRE_RING_SIZE] = (uint8_t)take(in);
    script_lent(link, at, buffer, sizeof(buffer));
}

static void step(struct input *in)
{
    uint8_t hello[RME_HELLO_MAX];
    size_t length;
    unsigned which;

    switch (take(in) % 25) {
    case 0:
    case 1:
    case 2:
    case 3:
        post(in);
        break;
    case 4:
        cancel(take(in));
        break;
    case 5:
        free_address(take(in));
        break;
    case 6:
        length = make_hello(in, hello);
        script_request(hello, length);
        break;
    case 7:
    case 8:
        which = take(in);
        length = make_hello(in, hello);
        script_up(which, hello, length);
        break;
    case 9:
    case 10:
    case 11:
    case 12:
        say(in);
        break;
    case 13:
        say_raw(in);
        break;
    case 14:
        which = take(in);
        script_imm(which, take(in) & 1
                              ? take32(in)
                              : script.handle[SCRIPT_HANDLES - 1 - take(in) % SCRIPT_HANDLES]);
        break;
    case 15:
        script_down(take(in), -ECONNRESET);
        break;
    case 16:
        script_finish(take(in));
        break;
    case 17:
        which = take(in);
        script.no_tx = which & 1;
        script.no_regs = (which & 6) == 6;
        if (!script.no_tx)
            script_tx_room();
        break;
    case 18:
        which = take(in);
        script_scribble(which, take(in));
        break;
    case 20:
        lazy = take(in) & 1;
        break;
    case 21:
        fails = 1 + take(in) % 8;
        run();
        fails = 0;
        break;
    case 22: /* idle for up to half a minute */
        now += UINT64_C(1000000) << take(in) % 16;
        run_for(1);
        break;
    case 23:
    case 24:
        write_lent(in);
        break;
    default:
        run();
        break;
    }
}

/* Frees everything of this input. */
static void clean_up(void)
{
    script.no_regs = false;
    lazy = false;
    script_tx_room();
    for (unsigned i = 0; i < ADDRESSES; i++)
        free_address(i);
    run();
    for (int i = 0; i < PATIENCE && (script.links > 0 || live > 0); i++) {
        uint8_t hello[RME_HELLO_MAX] = {0};

        for (unsigned link = 0; link < SCRIPT_LINKS; link++)
            script_up(link, hello, sizeof(hello)); /* accepted links; then they can go down */
        script_cut();
        run();
        for (unsigned k = 0; k < ADDRESSES; k++)
            free_address(k); /* of late unexpected messages */
    }
    for (unsigned i = 0; i < ADDRESSES; i++)
        free_address(i);
    run();
    FUZZ_CHECK(live == 0);
    FUZZ_CHECK(script.links == 0 && script.rdma_ops == 0 && script.held_rx == 0 &&
               script.held_tx == 0);
    FUZZ_CHECK(rme_counter_value(rme, "ops_live") == 0);
    memset(script.handle, 0, sizeof(script.handle));
    script.handles = 0;
}

uint64_t fuzz_trace(void)
{
    return script.trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};

    now = BEGIN;
    script.trace = 0;
    script.mws = size % 2 != 0 ? WINDOWS : 0;
    open_engine();
    while (in.left > 0)
        step(&in);
    run();
    clean_up();
    rme_context_close(rme, 0);
    rme_close(rme);
    return 0;
}
