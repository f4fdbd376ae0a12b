/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rings.c - compares ways of delivering small messages, on plain verbs. One process has one end
 * of each connection (the clients), its child the other (the server). bench/run-rings runs it
 * and makes the table.
 *
 *   rings time ROUNDS COUNT   microseconds one way, and microseconds of each message of a
 *                             stream: a line per case with median, minimum and maximum
 *   rings count               both ends in one thread, for callgrind: each case calls
 *                             counted_send(), counted_take() and, at its end, counted_end()
 *
 * Ways: a send into an SRQ, or into the QP's receive queue; a write into a ring whose owner
 * polls the memory of all connections; a write with immediate into a ring, where the immediate
 * uses an entry of an SRQ, or of the QP's receive queue.
 *
 * A message has its number in its first and last bytes; memory is polled for the last ones.
 * Verbs do not guarantee that all others have arrived by then, but adapters write in order.
 * Polls that found the last bytes first are counted, and a message whose ends differ when it is
 * taken fails the run.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum {
    DEPTH = 8,   /* messages in flight per connection: places of a ring */
    SLOT = 1024, /* bytes of a place, or of a receive buffer */
    POOL = 1024, /* entries of an SRQ beyond two per connection */
    MANY = 64,   /* from this number of busy connections each has one message in flight */
    SQ = 64,     /* depth of a QP's send queue */
    SIGNAL = 8,  /* one of this number of its requests is signalled */
    BATCH = 16,  /* completions taken at a time */
    MAX_CONNS = 1000,
    MAX_ROUNDS = 64,
    WAIT_S = 60, /* time-out */
    CREDIT_BYTES = 32,
};

struct way {
    const char *name;
    bool shared, write, imm, both; /* both: the completion queue is also polled */
};
static const struct way ways[] = {
    {"send-shared", true, false, false, false},   {"send-own", false, false, false, false},
    {"ring-poll", false, true, false, false},     {"ring-poll-both", false, true, false, true},
    {"ring-imm-shared", true, true, true, false}, {"ring-imm-own", false, true, true, false}};
#define WAYS (sizeof(ways) / sizeof(ways[0]))
static const unsigned numbers[] = {1, 16, 256, 1000}, sizes[] = {64, 1024};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))
#define SIZES   (sizeof(sizes) / sizeof(sizes[0]))
/* numbers of credits that are returned together */
static const uint32_t backs[] = {1, DEPTH / 4, DEPTH / 2, DEPTH * 3 / 4, DEPTH};
enum { BACKS = sizeof(backs) / sizeof(backs[0]) };

/* Header of a message, whose last eight bytes repeat the number. */
struct head {
    uint32_t seq, conn, taken, data;
};

struct conn {
    struct ibv_qp *qp;
    uint32_t sent, got;         /* numbers of the last messages sent and received */
    uint32_t data_out, taken;   /* messages with a credit: sent, and taken by the peer */
    uint32_t data_in, reported; /* taken here, and of these, reported to the peer */
    uint32_t unsignalled, pending;
};

/* One end of the connections of a set: with an SRQ, or without. */
struct end {
    struct ibv_cq *cq, *scq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    char *memory, *in, *out, *rx; /* rings, staging for the peer's, receive buffers */
    uint64_t *counters, *values;  /* numbers taken: written by the peer; to be written there */
    size_t length;
    unsigned n, side, set;
    uint32_t max_inline;
    uint64_t data, wrong; /* messages taken except credits; damaged messages */
    uint64_t early;       /* polls that found the end of a message before its beginning */
    struct conn conn[MAX_CONNS];
};

/* Addresses of a set, passed to the other end. */
struct info {
    uint64_t in, counters;
    uint32_t rkey, qpn[MAX_CONNS];
};

static struct board {
    struct info info[2][2]; /* side, set */
    union ibv_gid gid[2];
    uint16_t lid[2];
    _Atomic unsigned arrived[2];
    _Atomic uint64_t end_ns, credits, wrong, early;
} * board;

static struct device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_port_attr port;
    uint8_t gid_index;
} device;

static bool alone;               /* both ends are in this thread */
static unsigned max_places = 64; /* places polled before yielding; 1 on a single processor */

static void die(const char *what)
{
    fprintf(stderr, "rings: %s: %s\n", what, errno ? strerror(errno) : "it failed");
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* State of a waiting loop: places polled since the last yield; time of the first yield. */
struct patience {
    unsigned looks;
    uint64_t since;
};

/* Counts `places` polled without result, and yields: the peer may need the processor. */
static void rest(struct patience *p, unsigned places)
{
    p->looks += places;
    if (p->looks < max_places)
        return;
    p->looks = 0;
    sched_yield();
    if (p->since == 0)
        p->since = now_ns();
    else if (now_ns() - p->since > WAIT_S * UINT64_C(1000000000)) {
        errno = ETIMEDOUT;
        die("the other end");
    }
}

static void meet(unsigned side)
{
    struct patience waits = {0};
    unsigned mine;

    if (alone)
        return;
    mine = atomic_fetch_add(&board->arrived[side], 1) + 1;
    while (atomic_load(&board->arrived[1 - side]) < mine)
        rest(&waits, 1);
}

/* ---- Setting up ---- */

static void open_device(void)
{
    int number = 0;
    struct ibv_device **list = ibv_get_device_list(&number);
    union ibv_gid gid;

    if (!list || number == 0) {
        errno = ENODEV;
        die("no RDMA device");
    }
    device.context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    device.pd = device.context ? ibv_alloc_pd(device.context) : NULL;
    if (!device.pd || ibv_query_port(device.context, 1, &device.port) != 0)
        die("the first RDMA device");
    /* the last IPv4 GID of an Ethernet port, which is that of RoCE v2 */
    for (int i = 0; i < device.port.gid_tbl_len && i < 256; i++)
        if (ibv_query_gid(device.context, 1, i, &gid) == 0 && gid.raw[10] == 0xff &&
            gid.raw[11] == 0xff)
            device.gid_index = (uint8_t)i;
}

static char *ring_place(char *rings, unsigned c, uint32_t seq)
{
    return rings + ((size_t)c * DEPTH + (seq - 1) % DEPTH) * SLOT;
}

/* Posts receives with these numbers, at most BATCH, to one queue. */
static void post_receives(struct end *e, struct ibv_qp *qp, const uint64_t *id, unsigned n)
{
    struct ibv_recv_wr wr[BATCH], *bad;
    struct ibv_sge sge[BATCH];

    for (unsigned i = 0; i < n; i++) {
        sge[i] = (struct ibv_sge){(uintptr_t)(e->rx + id[i] * SLOT), SLOT, e->mr->lkey};
        wr[i] = (struct ibv_recv_wr){.wr_id = id[i],
                                     .next = i + 1 < n ? &wr[i + 1] : NULL,
                                     .sg_list = &sge[i],
                                     .num_sge = 1};
    }
    if (e->srq ? ibv_post_srq_recv(e->srq, wr, &bad) : ibv_post_recv(qp, wr, &bad))
        die("posting receives");
}

static void make_pair(struct end *e, unsigned c)
{
    struct ibv_qp_init_attr init = {
        .send_cq = e->scq,
        .recv_cq = e->cq,
        .srq = e->srq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = SQ,
                .max_recv_wr = e->srq ? 0 : 2 * DEPTH,
                .max_send_sge = 1,
                .max_recv_sge = e->srq ? 0 : 1,
                .max_inline_data = 64},
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    e->conn[c].qp = ibv_create_qp(device.pd, &init);
    if (!e->conn[c].qp)
        die("a queue pair");
    e->max_inline = init.cap.max_inline_data;
    if (ibv_modify_qp(e->conn[c].qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("a queue pair");
    board->info[e->side][e->set].qpn[c] = e->conn[c].qp->qp_num;
    for (unsigned i = 0; i < 2 * DEPTH && !e->srq; i++) {
        uint64_t id = (uint64_t)c * 2 * DEPTH + i;
        post_receives(e, e->conn[c].qp, &id, 1);
    }
}

/* Creates an end: set 0 has an SRQ, set 1 has none. */
static struct end *make_end(unsigned n, unsigned side, unsigned set)
{
    struct end *e = calloc(1, sizeof(*e));
    size_t ring = (size_t)n * DEPTH * SLOT;
    unsigned receives = set == 0 ? 2 * n + POOL : n * 2 * DEPTH;
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = receives, .max_sge = 1}};

    if (!e)
        die("memory");
    e->n = n, e->side = side, e->set = set;
    e->length = 2 * ring + (size_t)receives * SLOT + 2 * n * sizeof(uint64_t);
    e->memory =
        mmap(NULL, e->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (e->memory == MAP_FAILED)
        die("memory");
    memset(e->memory, 0, e->length);
    e->in = e->memory, e->out = e->in + ring, e->rx = e->out + ring;
    e->counters = (uint64_t *)(void *)(e->rx + (size_t)receives * SLOT);
    e->values = e->counters + n;
    e->mr = ibv_reg_mr(device.pd, e->memory, e->length,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    e->cq = ibv_create_cq(device.context, (int)receives + 1, NULL, NULL, 0);
    e->scq = ibv_create_cq(device.context, (int)(n * (SQ / SIGNAL) + 1), NULL, NULL, 0);
    if (!e->mr || !e->cq || !e->scq)
        die("memory or completion queues");
    if (set == 0 && !(e->srq = ibv_create_srq(device.pd, &srq)))
        die("a shared receive queue");
    for (uint64_t i = 0; i < receives && e->srq; i++)
        post_receives(e, NULL, &i, 1);
    for (unsigned c = 0; c < n; c++)
        make_pair(e, c);
    board->info[side][set].in = (uintptr_t)e->in;
    board->info[side][set].counters = (uintptr_t)e->counters;
    board->info[side][set].rkey = e->mr->rkey;
    board->lid[side] = device.port.lid;
    if (ibv_query_gid(device.context, 1, device.gid_index, &board->gid[side]) != 0)
        die("the address of the port");
    return e;
}

static void connect_end(struct end *e)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = device.port.active_mtu,
        .min_rnr_timer = 1,
        .ah_attr = {.dlid = board->lid[1 - e->side],
                    .is_global = device.port.link_layer == IBV_LINK_LAYER_ETHERNET,
                    .grh = {.dgid = board->gid[1 - e->side],
                            .sgid_index = device.gid_index,
                            .hop_limit = 64},
                    .port_num = 1},
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
    };

    for (unsigned c = 0; c < e->n; c++) {
        attr.qp_state = IBV_QPS_RTR;
        attr.dest_qp_num = board->info[1 - e->side][e->set].qpn[c];
        if (ibv_modify_qp(e->conn[c].qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
            die("connecting");
        attr.qp_state = IBV_QPS_RTS;
        if (ibv_modify_qp(e->conn[c].qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
            die("connecting");
    }
}

static void drop_end(struct end *e)
{
    for (unsigned c = 0; c < e->n; c++)
        ibv_destroy_qp(e->conn[c].qp);
    if (e->srq)
        ibv_destroy_srq(e->srq);
    ibv_destroy_cq(e->cq);
    ibv_destroy_cq(e->scq);
    ibv_dereg_mr(e->mr);
    munmap(e->memory, e->length);
    atomic_fetch_add(&board->wrong, e->wrong);
    atomic_fetch_add(&board->early, e->early);
    free(e);
}

/* ---- Messages ---- */

/* Waits for room for one more request; returns whether it must be signalled. */
static bool room(struct end *e, struct conn *k)
{
    struct ibv_wc wc[BATCH];
    struct patience waits = {0};

    while (k->pending >= SQ / SIGNAL - 1) {
        int n = ibv_poll_cq(e->scq, BATCH, wc);
        if (n < 0)
            die("the completion queue");
        for (int i = 0; i < n; i++) {
            if (wc[i].status != IBV_WC_SUCCESS) {
                fprintf(stderr, "rings: a request ended with %s\n",
                        ibv_wc_status_str(wc[i].status));
                exit(1);
            }
            e->conn[wc[i].wr_id].pending--;
        }
        if (n == 0)
            rest(&waits, 1);
    }
    if (++k->unsignalled < SIGNAL)
        return false;
    k->unsignalled = 0;
    k->pending++;
    return true;
}

static void post(struct end *e, unsigned c, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    wr->wr_id = c;
    wr->num_sge = 1;
    if (room(e, &e->conn[c]))
        wr->send_flags |= IBV_SEND_SIGNALED;
    if (wr->sg_list->length <= e->max_inline)
        wr->send_flags |= IBV_SEND_INLINE;
    if (ibv_post_send(e->conn[c].qp, wr, &bad))
        die("posting a request");
}

/* Sends a message, which also returns owed credits. `data`: uses a credit. */
static void send_one(struct end *e, const struct way *w, unsigned c, uint32_t bytes, bool data)
{
    const struct info *peer = &board->info[1 - e->side][e->set];
    struct conn *k = &e->conn[c];
    uint64_t seq = ++k->sent;
    char *m = ring_place(e->out, c, k->sent);
    struct head head = {k->sent, c, k->data_in, data};
    struct ibv_sge sge = {(uintptr_t)m, bytes, e->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .opcode = !w->write ? IBV_WR_SEND
                                       : w->imm  ? IBV_WR_RDMA_WRITE_WITH_IMM
                                                 : IBV_WR_RDMA_WRITE,
                             .imm_data = htonl(c)};

    memcpy(m, &head, sizeof(head));
    memcpy(m + bytes - sizeof(seq), &seq, sizeof(seq));
    wr.wr.rdma.remote_addr = peer->in + (uint64_t)(m - e->out);
    wr.wr.rdma.rkey = peer->rkey;
    k->reported = k->data_in;
    k->data_out += data;
    post(e, c, &wr);
}

/* Returns credits alone: by a small message if messages are sent, else by a write of the number
 * taken, which the peer reads from its memory when it needs credits. */
static void return_credits(struct end *e, const struct way *w, unsigned c)
{
    const struct info *peer = &board->info[1 - e->side][e->set];
    struct conn *k = &e->conn[c];
    struct ibv_sge sge = {(uintptr_t)&e->values[c], sizeof(uint64_t), e->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .opcode = IBV_WR_RDMA_WRITE};

    atomic_fetch_add_explicit(&board->credits, 1, memory_order_relaxed);
    if (!w->write) {
        send_one(e, w, c, CREDIT_BYTES, false);
        return;
    }
    e->values[c] = k->reported = k->data_in;
    wr.wr.rdma.remote_addr = peer->counters + c * sizeof(uint64_t);
    wr.wr.rdma.rkey = peer->rkey;
    post(e, c, &wr);
}

/* Takes a message. `back`: number of credits returned alone; 0: messages return credits. */
static void accept_message(struct end *e, const struct way *w, unsigned c, const char *m,
                           uint32_t bytes, uint32_t back)
{
    struct head head;
    struct conn *k = &e->conn[c];
    uint64_t seq;

    memcpy(&head, m, sizeof(head));
    memcpy(&seq, m + bytes - sizeof(seq), sizeof(seq));
    k->got++;
    e->wrong += head.seq != k->got || seq != k->got || head.conn != c;
    k->taken = head.taken;
    k->data_in += head.data;
    e->data += head.data;
    if (back != 0 && k->data_in - k->reported >= back)
        return_credits(e, w, c);
}

/* Polls the memory of `n` connections from `first` on. */
static void poll_rings(struct end *e, const struct way *w, unsigned first, unsigned n,
                       uint32_t bytes, uint32_t back)
{
    for (unsigned c = first; c < first + n; c++) {
        const char *m = ring_place(e->in, c, e->conn[c].got + 1);
        const volatile uint64_t *last =
            (const volatile uint64_t *)(const volatile void *)(m + bytes - sizeof(uint64_t));
        if (*last != e->conn[c].got + 1)
            continue;
        atomic_thread_fence(memory_order_acquire);
        if (*(const volatile uint32_t *)(const volatile void *)m != e->conn[c].got + 1) {
            e->early++;
            continue;
        }
        accept_message(e, w, c, m, bytes, back);
    }
}

static unsigned poll_queue(struct end *e, const struct way *w, uint32_t back)
{
    struct ibv_wc wc[BATCH];
    uint64_t id[BATCH];
    int n = ibv_poll_cq(e->cq, BATCH, wc);

    if (n < 0)
        die("the completion queue");
    for (int i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            fprintf(stderr, "rings: a receive ended with %s\n",
                    ibv_wc_status_str(wc[i].status));
            exit(1);
        }
        id[i] = wc[i].wr_id;
        /* the number of the connection: value of the immediate, or part of the message's
         * header */
        const char *m = e->rx + id[i] * SLOT;
        unsigned c =
            w->imm ? ntohl(wc[i].imm_data) : ((const struct head *)(const void *)m)->conn;
        if (c >= e->n) {
            errno = EBADMSG;
            die("a message");
        }
        if (w->imm)
            m = ring_place(e->in, c, e->conn[c].got + 1);
        accept_message(e, w, c, m, wc[i].byte_len, back);
        if (!e->srq)
            post_receives(e, e->conn[c].qp, &id[i], 1);
    }
    if (n > 0 && e->srq)
        post_receives(e, NULL, id, (unsigned)n);
    return (unsigned)n;
}

/* Polls once: a server for all connections, a client for its own. */
static void look(struct end *e, const struct way *w, unsigned c, uint32_t bytes, uint32_t back)
{
    if (w->write && !w->imm)
        poll_rings(e, w, e->side ? 0 : c, e->side ? e->n : 1, bytes, back);
    if (!w->write || w->imm || w->both)
        poll_queue(e, w, back);
}

static void await(struct end *e, const struct way *w, unsigned c, uint32_t bytes, uint32_t back,
                  uint64_t data)
{
    struct patience waits = {0};
    unsigned places = w->write && !w->imm && e->side ? e->n : 1;

    for (;;) {
        look(e, w, c, bytes, back);
        if (e->data >= data)
            return;
        rest(&waits, places);
    }
}

static void await_credit(struct end *e, const struct way *w, unsigned c, uint32_t window)
{
    struct conn *k = &e->conn[c];
    struct patience waits = {0};

    while (k->data_out - k->taken >= window) {
        uint32_t written = (uint32_t) * (volatile uint64_t *)&e->counters[c];
        if (!w->write)
            poll_queue(e, w, 0);
        else if ((int32_t)(written - k->taken) > 0)
            k->taken = written;
        if (k->data_out - k->taken >= window)
            rest(&waits, 1);
    }
}

/* Drops owed credits between two cases. */
static void drain_queue(struct end *e, const struct way *w)
{
    while (poll_queue(e, w, 0) != 0)
        ;
    for (unsigned c = 0; c < e->n; c++) {
        e->conn[c].taken = e->conn[c].data_out;
        e->conn[c].reported = e->conn[c].data_in;
    }
}

/* ---- Times ---- */

/* Connections, `busy` of which are used; many busy ones have one message in flight each. */
struct load {
    const struct way *way;
    unsigned n, busy;
    uint32_t bytes, window, back;
};

static double ping(struct end *e, const struct load *l, unsigned count)
{
    uint64_t begin = now_ns(), data = e->data;

    for (unsigned i = 0; i < count; i++) {
        unsigned c = i % l->busy;
        if (e->side == 0)
            send_one(e, l->way, c, l->bytes, true);
        await(e, l->way, c, l->bytes, 0, data + i + 1);
        if (e->side == 1)
            send_one(e, l->way, c, l->bytes, true);
    }
    return (double)(now_ns() - begin) / 2e3 / count;
}

static double stream(struct end *e, const struct load *l, unsigned count)
{
    uint64_t begin = now_ns();

    if (e->side == 1) {
        await(e, l->way, 0, l->bytes, l->back, e->data + count);
        atomic_store(&board->end_ns, now_ns());
    }
    for (unsigned i = 0; i < count && e->side == 0; i++) {
        await_credit(e, l->way, i % l->busy, l->window);
        send_one(e, l->way, i % l->busy, l->bytes, true);
    }
    meet(e->side);
    /* The server has taken all messages; its last credits are taken before the next case. */
    for (unsigned c = 0; c < l->busy && e->side == 0; c++)
        await_credit(e, l->way, c, l->back);
    meet(e->side);
    drain_queue(e, l->way);
    meet(e->side);
    return (double)(atomic_load(&board->end_ns) - begin) / 1e3 / count;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_load(const char *what, const struct load *l, double *v, unsigned n)
{
    qsort(v, n, sizeof(*v), by_size);
    printf("%s %s %u %u %u %u %.3f %.3f %.3f\n", what, l->way->name, l->bytes, l->n, l->busy,
           l->back, (v[(n - 1) / 2] + v[n / 2]) / 2, v[0], v[n - 1]);
    fflush(stdout);
}

static struct load load_of(const struct way *w, unsigned n, bool all, unsigned bytes)
{
    struct load l = {w, n, all ? n : 1, bytes, DEPTH, DEPTH / 2};

    if (l.busy > MANY)
        l.window = l.back = 1;
    return l;
}

/* Measures all ways in turn, in another order each round. */
static void time_case(struct end **end, unsigned n, bool all, unsigned bytes, unsigned rounds,
                      unsigned count)
{
    double lat[WAYS][MAX_ROUNDS], rate[WAYS][MAX_ROUNDS];
    struct load l;

    for (unsigned r = 0; r < rounds; r++)
        for (unsigned i = 0; i < WAYS; i++) {
            unsigned w = (i + r) % WAYS;
            struct end *e = end[!ways[w].shared];
            l = load_of(&ways[w], n, all, bytes);
            meet(e->side);
            lat[w][r] = ping(e, &l, count);
            meet(e->side);
            drain_queue(e, l.way);
            meet(e->side);
            rate[w][r] = stream(e, &l, 4 * count);
        }
    for (unsigned w = 0; w < WAYS && end[0]->side == 0; w++) {
        l = load_of(&ways[w], n, all, bytes);
        print_load("latency", &l, lat[w], rounds);
        print_load("stream", &l, rate[w], rounds);
    }
}

/* Measures a stream on one connection with different numbers of credits returned together. */
static void time_credits(struct end **end, unsigned rounds, unsigned count)
{
    double v[2][BACKS][MAX_ROUNDS];
    struct load l = load_of(&ways[0], end[0]->n, false, 64);

    for (unsigned r = 0; r < rounds; r++)
        for (unsigned i = 0; i < BACKS; i++)
            for (unsigned w = 0; w < 2; w++) {
                l.way = &ways[2 * w];
                l.back = backs[i];
                meet(end[0]->side);
                v[w][i][r] = stream(end[w], &l, 4 * count);
            }
    for (unsigned i = 0; i < 2 * BACKS && end[0]->side == 0; i++) {
        l.way = &ways[2 * (i / BACKS)];
        l.back = backs[i % BACKS];
        print_load("credits", &l, v[i / BACKS][i % BACKS], rounds);
    }
}

static void time_all(unsigned side, unsigned rounds, unsigned count)
{
    struct end *end[2];

    for (unsigned k = 0; k < NUMBERS; k++) {
        for (unsigned set = 0; set < 2; set++)
            end[set] = make_end(numbers[k], side, set);
        meet(side);
        for (unsigned set = 0; set < 2; set++)
            connect_end(end[set]);
        meet(side);
        for (unsigned s = 0; s < SIZES; s++)
            for (unsigned all = 0; all <= (numbers[k] > 1); all++)
                time_case(end, numbers[k], all, sizes[s], rounds, count);
        if (numbers[k] == 1)
            time_credits(end, rounds, count);
        meet(side);
        for (unsigned set = 0; set < 2; set++)
            drop_end(end[set]);
    }
}

/* ---- Callgrind ---- */

/* Found by callgrind by name, so not inlined. */
void counted_send(struct end *e, const struct load *l, unsigned from, unsigned n);
void counted_take(struct end *e, const struct load *l, unsigned n);
void counted_end(const char *what, const struct load *l, unsigned n);

__attribute__((noinline)) void counted_send(struct end *e, const struct load *l, unsigned from,
                                            unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        await_credit(e, l->way, from + i, l->window);
        send_one(e, l->way, from + i, l->bytes, true);
    }
}

__attribute__((noinline)) void counted_take(struct end *e, const struct load *l, unsigned n)
{
    await(e, l->way, 0, l->bytes, l->back, e->data + n);
}

__attribute__((noinline)) void counted_end(const char *what, const struct load *l, unsigned n)
{
    printf("%s %s %u %u %u %u %u %.3f\n", what, l->way->name, l->bytes, l->n, l->busy, l->back,
           n, (double)atomic_exchange(&board->credits, 0) / n);
    fflush(stdout);
}

/* Counts a case: one busy connection has `together` messages at a time, several have one. */
static void count_case(struct end *client, struct end *server, const struct load *l,
                       const char *what, unsigned together)
{
    unsigned turns = l->busy > MANY ? 2 : l->busy > 1 ? DEPTH : 48 / together;

    for (unsigned i = 0; i < turns; i++) {
        for (unsigned k = 0; k < together; k++)
            counted_send(client, l, 0, l->busy);
        counted_take(server, l, l->busy * together);
    }
    counted_end(what, l, turns * together * l->busy);
    drain_queue(client, l->way);
    drain_queue(server, l->way);
}

static void count_all(void)
{
    struct end *end[2][2]; /* side, set */
    struct load l;

    for (unsigned k = 0; k < NUMBERS; k++) {
        for (unsigned i = 0; i < 4; i++)
            end[i / 2][i % 2] = make_end(numbers[k], i / 2, i % 2);
        for (unsigned i = 0; i < 4; i++)
            connect_end(end[i / 2][i % 2]);
        for (unsigned i = 0; i < 2 * SIZES * WAYS; i++) {
            const struct way *w = &ways[i % WAYS];
            l = load_of(w, numbers[k], i / WAYS % 2, sizes[i / WAYS / 2]);
            if (l.n > 1 || i / WAYS % 2 == 0)
                count_case(end[0][!w->shared], end[1][!w->shared], &l, "message", 1);
        }
        for (unsigned i = 0; i < 2 * BACKS && numbers[k] == 1; i++) {
            const struct way *w = &ways[2 * (i / BACKS)];
            l = load_of(w, 1, false, 64);
            l.back = backs[i % BACKS];
            count_case(end[0][!w->shared], end[1][!w->shared], &l, "credits", l.back);
        }
        for (unsigned i = 0; i < 4; i++)
            drop_end(end[i / 2][i % 2]);
    }
}

int main(int argc, char **argv)
{
    unsigned rounds = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
    unsigned count = argc == 4 ? (unsigned)atoi(argv[3]) : 0;
    pid_t child = -1;
    int status = 0;

    alone = argc == 2 && strcmp(argv[1], "count") == 0;
    if (!alone && (argc != 4 || strcmp(argv[1], "time") != 0 || rounds - 1u >= MAX_ROUNDS ||
                   count - 1u >= 1000000u)) {
        fprintf(stderr, "Usage: rings time ROUNDS COUNT | rings count  (at most %d rounds)\n",
                MAX_ROUNDS);
        return 2;
    }
    board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        die("memory");
    if (sysconf(_SC_NPROCESSORS_ONLN) == 1)
        max_places = 1;
    if (!alone && (child = fork()) < 0)
        die("a process");
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_device();
    if (alone)
        count_all();
    else
        time_all(child == 0, rounds, count);
    ibv_dealloc_pd(device.pd);
    ibv_close_device(device.context);
    if (child == 0)
        return 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) {
        fprintf(stderr, "rings: the server failed\n");
        return 1;
    }
    if (!alone)
        printf("early %llu\n", (unsigned long long)atomic_load(&board->early));
    if (atomic_load(&board->wrong) != 0) {
        fprintf(stderr, "rings: %llu messages were not whole\n",
                (unsigned long long)atomic_load(&board->wrong));
        return 1;
    }
    return 0;
}
