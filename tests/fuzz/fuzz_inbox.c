/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any messages from other processes to the software HCA. The input is a script that puts
 * messages into this process's inbox, raw ones and nearly valid ones of the connection manager,
 * while ids of this process connect, accept and end. Finally everything can be destroyed, and
 * nothing is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "emul/verbs/cm/cm.h"
#include "tests/fuzz/fuzz.h"

#define MOST_IDS   12
#define NO_SLOT    0 /* never used by a process */
#define FIRST_PORT 40000
#define BEGIN      UINT64_C(1000000000000) /* ns */
#define YIELD      UINT64_C(1000000)
#define LONG       UINT64_C(1000000000000)

static struct emu_dev *dev;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *comp;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct rdma_event_channel *chan;
static struct rdma_cm_id *listener[2]; /* of RDMA_PS_TCP and RDMA_PS_UDP; while they exist */
static uint64_t now;                   /* ns */
static uint64_t trace;

struct script {
    const uint8_t *at, *end;
    struct rdma_cm_id *id[MOST_IDS];
    struct ibv_qp *qp, *datagrams;
    uint16_t port; /* the listener's */
};

static uint8_t byte(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static void bytes(struct script *s, void *to, size_t n)
{
    size_t have = (size_t)(s->end - s->at);

    memset(to, 0, n);
    if (have > n)
        have = n;
    memcpy(to, s->at, have);
    s->at += have;
}

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        abort();
    }
}

/* ---- The machine: the script's clock, one address, and its listeners ---- */

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *to,
                           struct itimerspec *was);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    now += 1000;
    t->tv_sec = (time_t)(now / 1000000000);
    t->tv_nsec = (long)(now % 1000000000);
    return 0;
}

/* Lets time pass for a waiting thread: no other thread could act meanwhile. */
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    now += YIELD;
    return 0;
}

__typeof__(cm_addr_local) __wrap_cm_addr_local;
__typeof__(cm_addr_source) __wrap_cm_addr_source;
__typeof__(cm_addr_claim) __wrap_cm_addr_claim;
__typeof__(cm_addr_find) __wrap_cm_addr_find;

/* Timers are run by emu_timers_poll() alone. */
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *to,
                           struct itimerspec *was)
{
    (void)fd, (void)flags, (void)to, (void)was;
    return 0;
}

static bool is_loopback(const struct sockaddr *sa)
{
    const union cm_addr *a = (const union cm_addr *)(const void *)sa;

    return sa->sa_family == AF_INET && a->in.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

int __wrap_cm_addr_local(const struct sockaddr *sa)
{
    return is_loopback(sa) ? 0 : -EADDRNOTAVAIL;
}

int __wrap_cm_addr_source(const union cm_addr *dst, union cm_addr *src)
{
    if (!is_loopback(&dst->sa))
        return -ENETUNREACH;
    *src = *dst;
    cm_addr_set_port(&src->sa, 0);
    return 0;
}

int __wrap_cm_addr_claim(const struct sockaddr *sa, int ps, bool reuse, bool afonly)
{
    (void)sa, (void)ps, (void)reuse, (void)afonly;
    return eventfd(0, EFD_CLOEXEC); /* would be watched by the service thread's epoll */
}

int __wrap_cm_addr_find(const union cm_addr *dst, int ps)
{
    struct rdma_cm_id *id = listener[ps == RDMA_PS_UDP];

    return id && is_loopback(&dst->sa) && cm_addr_port(&dst->sa) == ntohs(rdma_get_src_port(id))
               ? dev->pid
               : -ECONNREFUSED;
}

/* Opens the device. No other thread runs: the service thread's work is done here, in order. */
static void once(void)
{
    if (dev)
        return;
    setenv("EMUVERBS_SEGMENT_MIB", "128", 1);
    setenv("EMUVERBS_TIMEWAIT_MS", "1", 1);
    setenv("EMUVERBS_LISTEN_WAIT_MS", "0", 1);
    dev = emu_dev();
    must(dev, "emu_dev");
    emu_service_stop(dev);
    struct ibv_device **list = ibv_get_device_list(NULL);
    ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    must(ctx && fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0, "context");
    pd = ibv_alloc_pd(ctx);
    comp = ibv_create_comp_channel(ctx);
    cq = ibv_create_cq(ctx, 64, NULL, comp, 0);
    struct ibv_srq_init_attr si = {.attr = {.max_wr = 16, .max_sge = 1}};
    srq = ibv_create_srq(pd, &si);
    must(pd && comp && cq && srq && fcntl(comp->fd, F_SETFL, O_NONBLOCK) == 0, "objects");
    chan = rdma_create_event_channel();
    must(chan && fcntl(chan->fd, F_SETFL, O_NONBLOCK) == 0, "channel");
}

static struct rdma_cm_id **free_place(struct script *s)
{
    for (int i = 0; i < MOST_IDS; i++)
        if (!s->id[i])
            return &s->id[i];
    return NULL;
}

static struct sockaddr *listener_address(const struct script *s)
{
    static struct sockaddr_in in;

    in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(s->port)};
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return (struct sockaddr *)&in;
}

/* Checks that an event matches its object. */
static void check_kind(struct script *s, const struct ibv_async_event *a)
{
    switch (a->event_type) {
    case IBV_EVENT_CQ_ERR:
        FUZZ_CHECK(a->element.cq == cq);
        break;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        FUZZ_CHECK(a->element.srq == srq);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
        FUZZ_CHECK(a->element.qp == s->qp || a->element.qp == s->datagrams);
        break;
    default:
        FUZZ_CHECK(!"an event that no message brings");
    }
}

static bool any_cm_event(void)
{
    return ((struct cm_chan *)chan)->head != NULL;
}

static bool any_async_event(void)
{
    return emu_ctx_of(ctx)->async_head != NULL;
}

/* Fetches waiting events. Checks for them first, because an empty fetch costs a system call. */
static void events(struct script *s)
{
    struct rdma_cm_event *e;
    struct ibv_async_event a;

    while (any_cm_event()) {
        struct rdma_cm_id **place = free_place(s), *refused = NULL;
        FUZZ_CHECK(rdma_get_cm_event(chan, &e) == 0);
        if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            if (place)
                *place = e->id;
            else
                refused = e->id;
        }
        FUZZ_CHECK(rdma_event_str(e->event) != NULL);
        fuzz_note(&trace, (uint64_t)e->event << 32 | (uint32_t)e->status);
        fuzz_note(&trace, ((struct cm_id *)e->id)->num);
        rdma_ack_cm_event(e);
        if (refused)
            rdma_destroy_id(refused);
    }
    while (any_async_event()) {
        FUZZ_CHECK(ibv_get_async_event(ctx, &a) == 0);
        check_kind(s, &a);
        fuzz_note(&trace, a.event_type);
        ibv_ack_async_event(&a);
    }
}

/* Checks their descriptors as well. */
static void no_events(void)
{
    struct rdma_cm_event *e;
    struct ibv_async_event a;

    FUZZ_CHECK(!any_cm_event() && rdma_get_cm_event(chan, &e) != 0 && errno == EAGAIN);
    FUZZ_CHECK(!any_async_event() && ibv_get_async_event(ctx, &a) != 0 && errno == EAGAIN);
}

static void connect_one(struct script *s, enum rdma_port_space ps)
{
    struct rdma_cm_id **place = free_place(s);
    struct rdma_conn_param p = {.retry_count = 7};

    if (!place)
        return;
    must(rdma_create_id(chan, place, NULL, ps) == 0, "rdma_create_id");
    must(rdma_resolve_addr(*place, NULL, listener_address(s), 0) == 0, "rdma_resolve_addr");
    events(s);
    must(rdma_resolve_route(*place, 0) == 0, "rdma_resolve_route");
    events(s);
    p.qp_num = s->qp->qp_num;
    must(rdma_connect(*place, &p) == 0, "rdma_connect");
}

/* Makes a message that passes the first checks in about half of the cases. */
static void cm_message(struct script *s)
{
    uint8_t flags = byte(s);
    struct cm_msg m;

    bytes(s, &m, 48);
    memset((char *)&m + 48, flags, sizeof(m) - 48);
    m.type = 1 + m.type % 9;
    if (flags & 1) {
        m.src_slot = dev->slot;
        m.src_inc = dev->self.incarnation;
    }
    struct rdma_cm_id *id = s->id[byte(s) % MOST_IDS];
    if ((flags & 2) && id)
        m.remote_id = ((struct cm_id *)id)->num;
    if (flags & 4) {
        cm_addr_copy(&m.dst, listener_address(s));
        cm_addr_copy(&m.src, listener_address(s));
        m.ps = flags & 8 ? RDMA_PS_UDP : RDMA_PS_TCP;
    }
    emu_peer_send(dev, &dev->self, INBOX_CM, 0, 0, &m, sizeof(m));
}

static void raw_message(struct script *s)
{
    uint8_t kind = byte(s), near = byte(s);
    uint32_t index, arg;
    unsigned char payload[EMU_INBOX_PAYLOAD];

    bytes(s, &index, sizeof(index));
    bytes(s, &arg, sizeof(arg));
    bytes(s, payload, near & 8 ? sizeof(payload) : 16);
    memset(payload + 16, near, near & 8 ? 0 : sizeof(payload) - 16);
    if (near & 1)
        index = kind == INBOX_QP_ERROR || kind == INBOX_COMM_EST ? s->qp->handle
                : kind == INBOX_SRQ_LIMIT                        ? srq->handle
                : kind == INBOX_HELLO ? (near & 16 ? dev->slot : NO_SLOT)
                                      : cq->handle;
    if (kind == INBOX_HELLO && (near & 32)) /* died meanwhile while it held a datagram */
        atomic_store(&shm_qp(dev->seg, s->datagrams->handle)->busy, RX_TOKEN(1, NO_SLOT));
    if (near & 2)
        memcpy(payload, &s->qp->qp_num, sizeof(s->qp->qp_num));
    if (near & 4)
        arg %= 24;
    emu_peer_send(dev, &dev->self, kind, index, arg, payload, sizeof(payload));
}

static void act(struct script *s, struct rdma_cm_id **place, uint8_t what)
{
    struct rdma_conn_param p = {.retry_count = 7};

    if (!*place)
        return;
    switch (what) {
    case 0:
        rdma_accept(*place, &p);
        break;
    case 1:
        rdma_reject(*place, "no", 2);
        break;
    case 2:
        rdma_disconnect(*place);
        break;
    case 3:
        rdma_establish(*place);
        break;
    case 4:
        for (int i = 0; i < 2; i++)
            if (listener[i] == *place)
                listener[i] = NULL;
        rdma_destroy_id(*place);
        *place = NULL;
        break;
    case 5: {
        struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
        ibv_modify_qp(s->qp, &error, IBV_QP_STATE);
        break;
    }
    }
}

static void begin(struct script *s)
{
    struct ibv_qp_init_attr qi = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};

    now = BEGIN;
    trace = 0;
    cm.next_port = FIRST_PORT; /* the same names for each input */
    cm.next_num = 1;
    dev->next_qp = 0;
    must(rdma_create_id(chan, &s->id[0], NULL, RDMA_PS_TCP) == 0, "listener");
    must(rdma_bind_addr(s->id[0], listener_address(s)) == 0 && rdma_listen(s->id[0], 4) == 0,
         "listen");
    listener[0] = s->id[0];
    s->port = ntohs(rdma_get_src_port(s->id[0]));
    must(rdma_create_id(chan, &s->id[1], NULL, RDMA_PS_UDP) == 0, "listener for datagrams");
    must(rdma_bind_addr(s->id[1], listener_address(s)) == 0 && rdma_listen(s->id[1], 4) == 0,
         "listen");
    listener[1] = s->id[1];
    s->qp = ibv_create_qp(pd, &qi);
    qi.qp_type = IBV_QPT_UD;
    s->datagrams = ibv_create_qp(pd, &qi);
    must(s->qp && s->datagrams, "queue pairs");
}

uint64_t fuzz_trace(void)
{
    return trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script s = {.at = data, .end = data + size};

    once();
    begin(&s);
    for (int n = 0; s.at < s.end && n < 64; n++) {
        uint8_t op = byte(&s);
        switch (op % 5) {
        case 0:
            raw_message(&s);
            break;
        case 1:
            cm_message(&s);
            break;
        case 2:
            connect_one(&s, op & 0x40 ? RDMA_PS_UDP : RDMA_PS_TCP);
            break;
        case 3:
            act(&s, &s.id[op / 5 % MOST_IDS], byte(&s) % 6);
            break;
        case 4:
            now += UINT64_C(1000000) << op / 5 % 16;
            emu_timers_poll();
            break;
        }
        if (op & 0x80) /* else it meets later messages in the inbox */
            emu_inbox_read(dev);
        events(&s);
    }
    emu_inbox_read(dev);
    events(&s);
    must(ibv_destroy_qp(s.qp) == 0 && ibv_destroy_qp(s.datagrams) == 0, "ibv_destroy_qp");
    for (int i = 0; i < MOST_IDS; i++)
        if (s.id[i])
            must(rdma_destroy_id(s.id[i]) == 0, "rdma_destroy_id");
    listener[0] = listener[1] = NULL;
    emu_inbox_read(dev);
    now += LONG;
    emu_timers_poll(); /* leaves no timer for the next input, whose clock starts anew */
    no_events();
    FUZZ_CHECK(emu_counters_find(emu_counters, "live_cm_id") == 0);
    FUZZ_CHECK(emu_counters_find(emu_counters, "live_cm_event") == 0);
    FUZZ_CHECK(emu_counters_find(emu_counters, "live_qp") == 0);
    FUZZ_CHECK(!shm_ring_peek(dev->seg, &dev->seg->inbox, 0));
    return 0;
}
