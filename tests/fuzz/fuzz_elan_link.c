/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A whole Elan4 fabric against peers that send anything at any time. The input is a list of
 * steps: actions of the host (connect, accept or reject, send, transfer, keep received buffers,
 * end a link), of the interface (DMAs complete in any order, never, or are refused), the
 * passing of time, the node's log, missing memory, and packets in the queue: valid, nearly
 * valid, or invalid.
 *
 * Checked: events of a link and of a transfer come once and in order; a sanitizer detects use
 * after free; after all links are cut they all end within the options' timeouts, and nothing is
 * left allocated.
 */
#include <errno.h>
#include <stdarg.h>
#include <time.h>

#include "base/addr_int.h"
#include "bmi_elan4/bmi_elan4.h"
#include "bmi_elan4/elan.h"
#include "fuzz.h"
#include "tests/fuzz/script_elan.h"

#define LINKS  16
#define XFERS  16
#define KEPT   16
#define RX     4
#define BEGIN  UINT64_C(1000000000000) /* ns */
#define TICK   1000
#define VPS    4
#define RX_MAX 4096

struct input {
    const uint8_t *at;
    size_t left;
};

struct host_link {
    struct rme_link *l; /* NULL: none, or down */
    bool up;
};

/* A transfer of up to two pieces of 600 bytes. */
struct host_rdma_op {
    struct rme_rdma_op x;
    struct rme_sge seg[2];
    struct rme_rdma_seg piece[2];
    struct rme_link *l;
    uint8_t here[1200];
};

static const struct rme_fabric_ops *ops;
static struct rme_fabric *f;
static struct rme_options *options;
static struct rme_addr *listens, *server[VPS];
static struct rme_stats stats;
static struct host_link link_at[LINKS];
static struct host_rdma_op *rdma_op_at[XFERS];
static void *kept_at[KEPT]; /* received and not returned */
static uint64_t now, trace;
static unsigned fails; /* number of the fabric's next allocation that fails; 0: none */
static bool shy;       /* the host rejects requests */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left_over);

void *__wrap_malloc(size_t size)
{
    return fails > 0 && --fails == 0 ? NULL : __real_malloc(size);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    now += TICK;
    t->tv_sec = (time_t)(now / 1000000000);
    t->tv_nsec = (long)(now % 1000000000);
    return 0;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left_over)
{
    (void)left_over;
    now += (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
    return 0;
}

uint64_t fuzz_trace(void)
{
    return trace;
}

static uint8_t byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static uint32_t word(struct input *in)
{
    uint32_t v = byte(in);

    v |= (uint32_t)byte(in) << 8;
    v |= (uint32_t)byte(in) << 16;
    return v | (uint32_t)byte(in) << 24;
}

static size_t some(struct input *in, uint8_t *out, size_t most)
{
    size_t n = most < in->left ? most : in->left;

    memcpy(out, in->at, n);
    in->at += n;
    in->left -= n;
    return n;
}

/* ---- The host ---- */

static void log_line(void *arg, enum rme_log_level level, const char *format, ...)
{
    char line[500];
    va_list ap;

    (void)arg;
    (void)level;
    va_start(ap, format);
    FUZZ_CHECK(vsnprintf(line, sizeof(line), format, ap) >= 0);
    va_end(ap);
}

static struct host_link *host_link(struct rme_link *l)
{
    for (unsigned i = 0; i < LINKS; i++)
        if (link_at[i].l == l)
            return &link_at[i];
    return NULL;
}

static void rdma_op_over(unsigned i)
{
    free(rdma_op_at[i]);
    rdma_op_at[i] = NULL;
}

static void requested(struct rme_link *l)
{
    struct host_link *h = host_link(NULL);

    if (h == NULL || shy || ops->link_accept(l, "yes", 4, RX, h) != 0) {
        ops->link_reject(l, "no", 3);
        return;
    }
    *h = (struct host_link){.l = l};
}

static void down(struct host_link *h, int error)
{
    struct rme_link *l = h->l;

    FUZZ_CHECK(error < 0);
    for (unsigned i = 0; i < XFERS; i++)
        if (rdma_op_at[i] != NULL && rdma_op_at[i]->l == l)
            rdma_op_over(i);
    *h = (struct host_link){0};
    ops->link_free(l);
}

static void received(const struct rme_event *e)
{
    const uint8_t *data = e->data;
    unsigned sum = 0;

    FUZZ_CHECK(e->length <= RX_MAX);
    for (size_t i = 0; i < e->length; i++)
        sum += data[i];
    fuzz_note(&trace, sum);
    for (unsigned i = 0; i < KEPT; i++)
        if (kept_at[i] == NULL && sum % 3 == 0) {
            kept_at[i] = e->rx;
            return;
        }
    ops->rx_return(f, e->rx);
}

static void done(struct rme_rdma_op *x)
{
    for (unsigned i = 0; i < XFERS; i++)
        if (rdma_op_at[i] != NULL && &rdma_op_at[i]->x == x) {
            rdma_op_over(i);
            return;
        }
    FUZZ_CHECK(!"a transfer that is not under way");
}

static void event(const struct rme_event *e)
{
    struct host_link *h = e->type == RME_EV_LINK_REQUEST ? NULL : host_link(e->link);

    fuzz_note(&trace, (uint64_t)e->type + 16 * (uint64_t)(uint32_t)e->error);
    FUZZ_CHECK(e->type == RME_EV_LINK_REQUEST || h != NULL);
    FUZZ_CHECK(e->hello_length <= ELAN_HELLO_MAX);
    switch (e->type) {
    case RME_EV_LINK_REQUEST:
        requested(e->link);
        break;
    case RME_EV_LINK_UP:
        FUZZ_CHECK(!h->up);
        h->up = true;
        break;
    case RME_EV_LINK_DOWN:
        down(h, e->error);
        break;
    case RME_EV_RECV:
        FUZZ_CHECK(h->up);
        received(e);
        break;
    case RME_EV_RDMA_DONE:
        FUZZ_CHECK(h->up);
        done(e->rdma_op);
        break;
    default:
        FUZZ_CHECK(h->up);
        break;
    }
}

/* Polls for one event at a time if `narrow`: the others wait for room. */
static void look(bool narrow)
{
    struct rme_event e[8];
    int n = ops->poll(f, e, narrow ? 1 : 8);

    FUZZ_CHECK(n >= 0 && n <= (narrow ? 1 : 8));
    for (int i = 0; i < n; i++)
        event(&e[i]);
    ops->flush(f);
}

static void dial(unsigned vp)
{
    struct host_link *h = host_link(NULL);
    struct rme_link *l = NULL;

    if (h != NULL && ops->link_connect(f, server[vp % VPS], 0, "may I", 6, RX, h, &l) == 0)
        *h = (struct host_link){.l = l};
}

static void send_message(struct host_link *h, size_t length)
{
    uint8_t *tx = ops->tx_get(h->l);

    if (tx == NULL)
        return;
    if (length > RX_MAX) {
        ops->tx_put(h->l, tx);
        return;
    }
    memset(tx, 'm', length);
    ops->tx_send(h->l, tx, length);
}

static void transfer(struct host_link *h, struct input *in)
{
    unsigned i = 0, what = byte(in);
    struct host_rdma_op *t;

    while (i < XFERS && rdma_op_at[i] != NULL)
        i++;
    if (i == XFERS || (t = calloc(1, sizeof(*t))) == NULL)
        return;
    rdma_op_at[i] = t;
    t->l = h->l;
    t->x = (struct rme_rdma_op){.read = what & 1,
                                .notify = (enum rme_notify)(what >> 1 & 3) % 3,
                                .imm = what,
                                .piece = t->piece,
                                .npiece = what >> 3 & 3};
    if (t->x.npiece == 3)
        t->x.npiece = 1;
    if (t->x.read && t->x.notify == RME_NOTIFY_IMM)
        t->x.notify = RME_NOTIFY_NONE;
    for (unsigned k = 0; k < 2; k++) {
        t->seg[k] = (struct rme_sge){t->here + 600 * k, 600, 0};
        t->piece[k] = (struct rme_rdma_seg){0x100000 + 4096 * k, 0, &t->seg[k], 1};
    }
    if (t->x.notify == RME_NOTIFY_MSG) {
        t->x.tx = ops->tx_get(h->l);
        t->x.tx_length = what > 127 ? 3000 : 10;
        if (t->x.tx == NULL) {
            rdma_op_over(i);
            return;
        }
        memset(t->x.tx, 'n', t->x.tx_length);
    }
    ops->rdma_op(h->l, &t->x);
}

static void give_back(void)
{
    for (unsigned i = 0; i < KEPT; i++)
        if (kept_at[i] != NULL) {
            ops->rx_return(f, kept_at[i]);
            kept_at[i] = NULL;
        }
}

/* ---- Peers ---- */

static void conn_info(struct input *in, uint8_t out[BMI_ELAN4_CONN_INFO_BYTES], unsigned vp)
{
    struct bmi_elan4_conn_info c = f->conn_info;
    uint8_t wrong = byte(in);

    c.vp = vp;
    c.wanted = f->conn_info.vp;
    c.queue = 0x50000 + vp;
    c.generation = 2000 + (wrong >> 6);
    memcpy(out, &c, sizeof(c));
    if ((wrong & 3) == 3) /* nearly valid */
        out[wrong >> 2 & (BMI_ELAN4_CONN_INFO_BYTES - 1)] ^= byte(in) | 1;
}

/* Makes a packet that is valid for the link, except for the input's changes. */
static void packet(struct input *in)
{
    uint8_t slot[BMI_ELAN4_SLOT] = {0}, what = byte(in), ahead = byte(in);
    struct rme_link *l = link_at[what >> 4].l;
    struct elan_packet p = {.kind = what % ELAN_KIND_COUNT,
                            .to = ELAN_OWN_GENERATION,
                            .link = l != NULL ? l->number : 0,
                            .from = l != NULL ? l->peer.vp : 1u + ahead % VPS,
                            .seq = l != NULL ? l->expected : 0};
    size_t before = 0, length;

    if (ahead >= 0xe0) /* out of order */
        p.seq += (uint32_t)(ahead - 0xf0);
    if (ahead == 0xdf)
        p.to = word(in);
    if (ahead == 0xde)
        p.from = word(in);
    if (ahead == 0xdd)
        p.link = word(in);
    if (p.kind == ELAN_HELLO || p.kind == ELAN_ACCEPT) {
        conn_info(in, slot + ELAN_HEADER, p.from);
        before = BMI_ELAN4_CONN_INFO_BYTES;
    }
    length = byte(in) * (size_t)(p.kind == ELAN_MESSAGE ? 8 : 2);
    if (length > ELAN_BODY - before)
        length = ELAN_BODY - before;
    p.bytes = (uint16_t)(before + length);
    p.arg = byte(in);
    if (p.kind == ELAN_MESSAGE) { /* mostly a complete message, or its next part */
        p.offset = l != NULL && l->filling != NULL ? l->filled : 0;
        p.arg = p.arg < 0xc0 ? p.offset + p.bytes : p.offset + p.bytes + p.arg * 8;
        if (ahead == 0xdc)
            p.offset = word(in);
        if (ahead == 0xdb)
            p.arg = word(in);
    } else if (p.arg >= 0xc0) {
        p.arg = word(in);
    }
    if (p.kind == ELAN_DONE && p.arg < f->nmove)
        p.seq = f->move[p.arg]->use;
    memset(slot + ELAN_HEADER + before, ahead + 1, length);
    if (p.kind == ELAN_REFUSED) /* addresses */
        some(in, slot + ELAN_HEADER, length < 64 ? length : 64);
    elan_packet_encode(&p, slot);
    elan_script_packet(slot, ELAN_HEADER + p.bytes);
}

static void rubbish(struct input *in)
{
    uint8_t slot[BMI_ELAN4_SLOT] = {0};

    elan_script_packet(slot, some(in, slot, byte(in)));
}

/* ---- Steps ---- */

static void one_dma(uint8_t what, void (*end)(unsigned i))
{
    if (elan_script_dmas() > 0)
        end(what % elan_script_dmas());
}

static void all_dmas(void)
{
    for (unsigned i = 0; i < 4096 && elan_script_dmas() > 0; i++) {
        elan_script_land(0);
        if (i % 32 == 31)
            look(false);
    }
}

static void step(struct input *in)
{
    uint8_t what = byte(in), arg = byte(in);
    struct host_link *h = &link_at[arg % LINKS];

    switch (what % 20) {
    case 0:
    case 1:
    case 2:
        packet(in);
        break;
    case 3:
        rubbish(in);
        break;
    case 4:
        dial(arg);
        break;
    case 5:
    case 6:
        look(arg & 1);
        break;
    case 7:
        one_dma(arg, elan_script_land);
        break;
    case 8:
        all_dmas();
        break;
    case 9:
        one_dma(arg, elan_script_refuse);
        break;
    case 10:
        if (h->up)
            send_message(h, byte(in) * 17u);
        break;
    case 11:
        if (h->up)
            transfer(h, in);
        break;
    case 12:
        if (h->l != NULL)
            ops->link_disconnect(h->l, -ESHUTDOWN);
        break;
    case 13:
        give_back();
        break;
    case 14:
        now += (UINT64_C(1) << arg % 35) + 1000000;
        break;
    case 15:
        if (arg & 1 && rdma_op_at[arg / 2 % XFERS] != NULL)
            elan_script_trap((arg >> 6) % 3, (uintptr_t)rdma_op_at[arg / 2 % XFERS]->here);
        else
            elan_script_trap(arg % 3, 0x100000 + byte(in) * 64u);
        break;
    case 16:
        elan_script_owner(arg % 3 == 0 ? 0 : 1998 + arg % 8);
        break;
    case 17:
        fails = 1 + arg % 16;
        break;
    case 18:
        shy = arg & 1;
        break;
    default:
        if (h->up && arg & 0x80)
            ops->link_probe(h->l);
        else
            ops->arm(f);
        break;
    }
}

/* ---- One input ---- */

static void open_fabric(bool tight)
{
    const struct rme_option_row *tables[2] = {rme_engine_options, NULL};
    char why[200];

    ops = bmi_elan4_fabric();
    tables[1] = ops->options;
    if (options == NULL) {
        options = rme_options_new(tables, 2);
        FUZZ_CHECK(options != NULL);
        FUZZ_CHECK(rme_options_parse(options,
                                     "elan_nodes=0-3,elan_contexts=2-9,"
                                     "elan_servers=0x12340",
                                     why, sizeof(why)) == 0);
        FUZZ_CHECK(rme_addr_parse("elan4", "elan4://0:2", &listens) == 0);
        for (unsigned i = 0; i < VPS; i++) {
            char uri[32];

            snprintf(uri, sizeof(uri), "elan4://%u:%u", i / 2, 3 - i % 2);
            FUZZ_CHECK(rme_addr_parse("elan4", uri, &server[i]) == 0);
        }
    }
    FUZZ_CHECK(rme_options_parse(options, tight ? "elan_tx_buffers=16" : "elan_tx_buffers=256",
                                 why, sizeof(why)) == 0);
    memset(&stats, 0, sizeof(stats));
    struct rme_fabric_config config = {.listen = listens,
                                       .rx_size = RX_MAX,
                                       .options = options,
                                       .stats = &stats,
                                       .log = log_line};
    FUZZ_CHECK(ops->open(&config, &f) == 0);
}

/* Ends all links and checks that they are down within the options' timeouts, and that nothing
 * is left allocated. */
static void close_fabric(void)
{
    unsigned left = 1;

    fails = 0;
    shy = true;
    for (unsigned round = 0; left > 0 && round < 400; round++) {
        left = 0;
        for (unsigned i = 0; i < LINKS; i++) {
            left += link_at[i].l != NULL;
            if (link_at[i].l != NULL)
                ops->link_disconnect(link_at[i].l, -ESHUTDOWN);
        }
        now += 200000000;
        look(false);
        if (round % 2)
            ops->wait(f, 0);
    }
    FUZZ_CHECK(left == 0);
    give_back();
    for (unsigned i = 0; i < XFERS; i++)
        FUZZ_CHECK(rdma_op_at[i] == NULL);
    FUZZ_CHECK(f->places.taken == 0 && f->active.taken == 0 && f->held.taken == 0);
    FUZZ_CHECK(elan_script_lent() == 0);
    ops->close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};

    now = BEGIN;
    trace = 0;
    fails = 0;
    shy = false;
    memset(link_at, 0, sizeof(link_at));
    elan_script_begin();
    open_fabric(size % 2);
    while (in.left > 0)
        step(&in);
    close_fabric();
    fuzz_note(&trace, elan_script_sum());
    return 0;
}
