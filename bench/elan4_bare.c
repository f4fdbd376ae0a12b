/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Minimal use of libelan4, as a baseline: two processes on two nodes, without a layer above the
 * library. Each run prints a line: test, bytes, value, unit.
 *
 * usage: elan4_bare [WHAT [BYTES [COUNT [N]]]]
 *
 *   lat       ping-pong by queue DMAs, one way
 *   putlat    ping-pong by RDMA writes with a remote event, one way
 *   getlat    one RDMA read after the other, time of each
 *   queue     a stream of queue DMAs, N in flight
 *   write, read    a stream of RDMAs of BYTES each, N in flight, each with its own memory
 *   one       N noncontiguous pieces of BYTES: one event for all of them, which notifies the
 *             peer by a chained DMA
 *   each      the same, with an event for each piece
 *   pack      the same, packed, moved by one RDMA, and unpacked
 *
 * The last three print the bandwidth of lists that the peer acknowledges one by one.
 */
#include <elan4/library.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS      256
#define MAX_PIECES 4096 /* pieces, or RDMAs in flight */

/* Data exchanged before the network is used. */
struct shared {
    _Atomic int ready[2];
    E4_Addr queue[2], buffer[2], event[2];
};

struct side {
    ELAN4_CTX *ctx;
    ELAN4_ALLOC *alloc;
    ELAN4_COOKIEPOOL *cookies;
    E4_CmdQ *tx, *rx;
    E4_InputQueue *queue;
    E4_Event *queue_event;
    E4_Event *event[MAX_PIECES]; /* those in flight */
    volatile E4_uint64 *arrived, *done;
    unsigned inflight;
    E4_Addr first, last;
    unsigned vp, peer_vp;
    char *slots, *send;
    char *block; /* unregistered memory of the program */
    char *chain; /* a command that an event copies to the port */
    E4_Addr port;
};

static struct shared *shared;

static void die(const char *what)
{
    fprintf(stderr, "elan4_bare: %s: %s\n", what, strerror(errno));
    exit(1);
}

static E4_Addr elan(struct side *s, const volatile void *p)
{
    return elan4_main2elan(s->ctx, p);
}

/* Primes an event before its DMA is posted, here or by the peer. */
static void expect(struct side *s, unsigned k)
{
    s->done[k] = 0;
    elan4_primeevent_write(s->ctx, s->event[k], 1);
    MEMBAR_VISIBLE();
}

/* Waits for a word; yields, because the processor is shared with the other process. */
static void await(struct side *s, volatile E4_uint64 *word)
{
    for (unsigned n = 1; !elan4_pollevent_word(s->ctx, word, 0); n++)
        if (n % 64 == 0)
            sched_yield();
}

static void make_queue(struct side *s, unsigned slot_bytes)
{
    s->queue = elan4_allocElan(s->alloc, 32, sizeof(*s->queue));
    s->queue_event = elan4_allocElan(s->alloc, 32, sizeof(E4_Event32));
    s->slots = elan4_allocMain(s->alloc, 128, (size_t)(SLOTS + 1) * slot_bytes);
    s->arrived = elan4_allocMain(s->alloc, 64, 64);
    if (!s->queue || !s->queue_event || !s->slots || !s->arrived)
        die("cannot allocate a queue");
    s->first = elan(s, s->slots);
    s->last = s->first + (E4_Addr)SLOTS * slot_bytes;
    s->queue->q_bptr = s->queue->q_fptr = s->first;
    s->queue->q_control = E4_InputQueueControl(s->first, s->last, slot_bytes);
    s->queue->q_event = elan(s, s->queue_event);
    *s->arrived = 0;
    elan4_initevent_write(s->ctx, s->queue_event, s->arrived);
    elan4_primeevent_write(s->ctx, s->queue_event, 1);
}

static void open_side(struct side *s, int node, size_t block)
{
    ELAN_CAPABILITY cap;

    elan_nullcap(&cap);
    cap.cap_type = ELAN_CAP_TYPE_BLOCK | ELAN_CAP_TYPE_NO_BITMAP | ELAN_CAP_TYPE_MULTI_RAIL;
    cap.cap_railmask = 1;
    cap.cap_lownode = 0;
    cap.cap_highnode = 1;
    cap.cap_lowcontext = cap.cap_highcontext = 2;
    cap.cap_mycontext = 2;
    s->vp = (unsigned)node;
    s->peer_vp = 1 - s->vp;
    s->ctx = elan4_init(0);
    if (!s->ctx)
        die("elan4_init");
    ELAN4_SDRAM *sdram = elan4_open_sdram(0, 0, 1 << 20);
    s->alloc = sdram ? elan4_createAllocator(8 << 20, sdram, 0, 1 << 20) : NULL;
    if (!s->alloc)
        die("elan4_createAllocator");
    if (elan4_set_standard_mappings(s->ctx) < 0 || elan4_set_required_mappings(s->ctx) < 0 ||
        elan4_add_p2pvp(s->ctx, 0, &cap) < 0 || elan4_block_inputter(s->ctx, 1) < 0)
        die("preparing the context");
    if (elan4_attach(s->ctx, &cap) != 0)
        die("elan4_attach");
    s->cookies = elan4_allocCookiePool(s->ctx, s->vp);
    s->tx = elan4_alloc_cmdq(s->ctx, CQ_Size8K,
                             CQ_WriteEnableBit | CQ_DmaStartEnableBit | CQ_STENEnableBit, NULL);
    s->rx =
        elan4_alloc_cmdq(s->ctx, CQ_Size1K, CQ_WriteEnableBit | CQ_WaitEventEnableBit, NULL);
    s->send = elan4_allocMain(s->alloc, 128, 2048);
    s->chain = elan4_allocElan(s->alloc, 64, 64);
    s->port = elan4_alloccq_space(s->ctx, 8, CQ_Size8K);
    s->done = elan4_allocMain(s->alloc, 64, s->inflight * sizeof(*s->done));
    s->block = malloc(block);
    if (!s->cookies || !s->tx || !s->rx || !s->send || !s->chain || !s->port || !s->done ||
        !s->block)
        die("allocating");
    for (unsigned k = 0; k < s->inflight; k++) {
        s->event[k] = elan4_allocElan(s->alloc, 64, sizeof(E4_Event32));
        if (!s->event[k])
            die("allocating events");
        elan4_initevent_write(s->ctx, s->event[k], &s->done[k]);
        expect(s, k);
    }
    memset(s->send, 1, 2048);
    memset(s->block, 1, block);
    make_queue(s, 2048);
    elan4_block_inputter(s->ctx, 0);
    shared->queue[node] = elan(s, s->queue);
    shared->buffer[node] = elan(s, s->block);
    shared->event[node] = elan(s, s->event[0]);
    atomic_store(&shared->ready[node], 1);
    while (!atomic_load(&shared->ready[1 - node]))
        usleep(100);
}

/* ---- DMAs ---- */

static void queue_dma(struct side *s, size_t bytes, E4_DMA *dma)
{
    *dma = (E4_DMA){
        .dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, DMA_QueueWrite, 16),
        .dma_cookie = elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_LOCAL_DMA, s->peer_vp),
        .dma_vproc = s->peer_vp,
        .dma_srcAddr = elan(s, s->send),
        .dma_dstEvent = shared->queue[s->peer_vp]};
}

static void send_message(struct side *s, size_t bytes)
{
    E4_DMA dma;

    queue_dma(s, bytes, &dma);
    MEMBAR_VISIBLE();
    elan4_run_dma_cmd(s->tx, &dma);
    s->tx->cmdq_flush(s->tx);
}

static void receive(struct side *s)
{
    await(s, s->arrived);
    E4_Addr next = s->queue->q_fptr == s->last ? s->first : s->queue->q_fptr + 2048;
    elan4_store64(next, &s->queue->q_fptr);
    *s->arrived = 0;
    MEMBAR_STORESTORE();
    elan4_wait_event_cmd(s->rx, elan(s, s->queue_event),
                         E4_EVENT_INIT_VALUE(-32, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                         elan(s, s->arrived), 1);
    s->rx->cmdq_flush(s->rx);
}

/* Writes from the local block to the peer's; `event` is local. */
static void put(struct side *s, size_t from, size_t to, size_t bytes, E4_Addr event)
{
    E4_DMA dma = {.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, 0, 16),
                  .dma_cookie =
                      elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_LOCAL_DMA, s->peer_vp),
                  .dma_vproc = s->peer_vp,
                  .dma_srcAddr = elan(s, s->block + from),
                  .dma_dstAddr = shared->buffer[s->peer_vp] + to,
                  .dma_srcEvent = event};

    elan4_run_dma_cmd(s->tx, &dma);
}

static void get(struct side *s, size_t at, size_t bytes, E4_Addr event)
{
    E4_DMA dma = {.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, 0, 16),
                  .dma_cookie =
                      elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_LOCAL_DMA, s->peer_vp),
                  .dma_vproc = s->vp,
                  .dma_srcAddr = shared->buffer[s->peer_vp] + at,
                  .dma_dstAddr = elan(s, s->block + at),
                  .dma_dstEvent = event};

    elan4_remote_dma(s->tx, &dma, s->peer_vp,
                     elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_STEN, s->peer_vp));
}

/* ---- Tests ---- */

struct test {
    const struct kind *kind;
    size_t bytes;
    long count;
    unsigned n;
};

/* Role of the other side: does the same; receives each message; is idle. */
enum peer { ANSWERS, RECEIVES, WATCHES };

struct kind {
    const char *name;
    void (*once)(struct side *s, const struct test *t, long i);
    enum peer peer;
    double ways; /* latency tests: ways per turn; bandwidth tests: 0 */
    size_t bytes;
    long count;
    unsigned n;
};

static void lat(struct side *s, const struct test *t, long i)
{
    (void)i;
    if (s->vp == 0)
        send_message(s, t->bytes);
    receive(s);
    if (s->vp == 1)
        send_message(s, t->bytes);
}

/* Writes to the peer and sets its event, which the peer primed before its last write. */
static void write_and_notify(struct side *s, size_t bytes)
{
    E4_DMA dma = {.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, 0, 16),
                  .dma_cookie =
                      elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_LOCAL_DMA, s->peer_vp),
                  .dma_vproc = s->peer_vp,
                  .dma_srcAddr = elan(s, s->block),
                  .dma_dstAddr = shared->buffer[s->peer_vp],
                  .dma_dstEvent = shared->event[s->peer_vp]};

    MEMBAR_VISIBLE();
    elan4_run_dma_cmd(s->tx, &dma);
    s->tx->cmdq_flush(s->tx);
}

static void putlat(struct side *s, const struct test *t, long i)
{
    (void)i;
    if (s->vp == 0)
        write_and_notify(s, t->bytes);
    await(s, &s->done[0]);
    expect(s, 0);
    if (s->vp == 1)
        write_and_notify(s, t->bytes);
}

static void getlat(struct side *s, const struct test *t, long i)
{
    (void)i;
    get(s, 0, t->bytes, elan(s, s->event[0]));
    s->tx->cmdq_flush(s->tx);
    await(s, &s->done[0]);
    expect(s, 0);
}

/* ---- Streams ---- */

/* Returns the event of the next DMA of a stream, after the oldest one in flight is complete. */
static E4_Addr next_event(struct side *s, const struct test *t, long i)
{
    unsigned k = (unsigned)((unsigned long)i % t->n);

    if (i >= (long)t->n) {
        await(s, &s->done[k]);
        expect(s, k);
    }
    return elan(s, s->event[k]);
}

static void queue(struct side *s, const struct test *t, long i)
{
    E4_DMA dma;

    queue_dma(s, t->bytes, &dma);
    dma.dma_srcEvent = next_event(s, t, i);
    elan4_run_dma_cmd(s->tx, &dma);
    s->tx->cmdq_flush(s->tx);
}

/* Returns the offset of the memory of DMA `i`. */
static size_t place(const struct test *t, long i)
{
    return (size_t)i % t->n * t->bytes;
}

static void writes(struct side *s, const struct test *t, long i)
{
    put(s, place(t, i), place(t, i), t->bytes, next_event(s, t, i));
    s->tx->cmdq_flush(s->tx);
}

static void reads(struct side *s, const struct test *t, long i)
{
    get(s, place(t, i), t->bytes, next_event(s, t, i));
    s->tx->cmdq_flush(s->tx);
}

/* ---- Lists ---- */

/* Returns the offset of the packed data, behind the pieces, which occupy every second place. */
static size_t packed(const struct test *t)
{
    return 2 * t->n * t->bytes;
}

/* Sends the acknowledgement of a list. */
static void in_place(struct side *s)
{
    send_message(s, 8);
}

static void put_pieces(struct side *s, const struct test *t, bool each)
{
    for (unsigned k = 0; k < t->n; k++) {
        put(s, 2 * k * t->bytes, 2 * k * t->bytes, t->bytes, elan(s, s->event[each ? k : 0]));
        if (k % 128 == 127)
            s->tx->cmdq_flush(s->tx); /* limit of commands in the queue */
    }
    s->tx->cmdq_flush(s->tx);
}

static void one(struct side *s, const struct test *t, long i)
{
    E4_DMA dma;

    (void)i;
    if (s->vp == 1) {
        receive(s);
        in_place(s);
        return;
    }
    queue_dma(s, 8, &dma);
    const uint64_t command[8] = {dma.dma_typeSize | RUN_DMA_CMD,
                                 dma.dma_cookie,
                                 dma.dma_vproc,
                                 dma.dma_srcAddr,
                                 0,
                                 0,
                                 dma.dma_dstEvent,
                                 NOP_CMD};
    for (unsigned k = 0; k < 8; k++)
        elan4_store64(command[k], s->chain + 8 * k);
    elan4_store64(elan(s, s->chain), &s->event[0]->ev_CopySource);
    elan4_store64(s->port, &s->event[0]->ev_CopyDest);
    elan4_store64(
        E4_EVENT_INIT_VALUE(-32 * (int32_t)t->n, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 8),
        &s->event[0]->ev_CountAndType);
    MEMBAR_VISIBLE();
    put_pieces(s, t, false);
    receive(s);
}

static void each(struct side *s, const struct test *t, long i)
{
    (void)i;
    if (s->vp == 1) {
        receive(s);
        in_place(s);
        return;
    }
    put_pieces(s, t, true);
    for (unsigned k = 0; k < t->n; k++) {
        await(s, &s->done[k]);
        expect(s, k);
    }
    send_message(s, 8);
    receive(s);
}

static void pack(struct side *s, const struct test *t, long i)
{
    char *whole = s->block + packed(t);

    (void)i;
    if (s->vp == 1) {
        receive(s);
        for (unsigned k = 0; k < t->n; k++)
            memcpy(s->block + 2 * k * t->bytes, whole + k * t->bytes, t->bytes);
        in_place(s);
        return;
    }
    for (unsigned k = 0; k < t->n; k++)
        memcpy(whole + k * t->bytes, s->block + 2 * k * t->bytes, t->bytes);
    put(s, packed(t), packed(t), t->n * t->bytes, elan(s, s->event[0]));
    s->tx->cmdq_flush(s->tx);
    await(s, &s->done[0]);
    expect(s, 0);
    send_message(s, 8);
    receive(s);
}

/* ---- The run ---- */

static const struct kind kinds[] = {
    {"lat", lat, ANSWERS, 2, 64, 100000, 1},
    {"putlat", putlat, ANSWERS, 2, 64, 100000, 1},
    {"getlat", getlat, WATCHES, 1, 64, 100000, 1},
    {"queue", queue, RECEIVES, 0, 2048, 100000, 8},
    {"write", writes, WATCHES, 0, 1 << 20, 2000, 8},
    {"read", reads, WATCHES, 0, 1 << 20, 2000, 8},
    {"one", one, ANSWERS, 0, 2048, 2000, 64},
    {"each", each, ANSWERS, 0, 2048, 2000, 64},
    {"pack", pack, ANSWERS, 0, 2048, 2000, 64},
    {NULL, NULL, WATCHES, 0, 0, 0, 0},
};

static bool is_list(const struct kind *kind)
{
    return kind->peer == ANSWERS && kind->ways < 1;
}

/* Returns the memory of a side, in bytes. */
static size_t room(const struct test *t)
{
    if (is_list(t->kind))
        return 3 * t->n * t->bytes;
    return t->kind->once == writes || t->kind->once == reads ? t->n * t->bytes : t->bytes;
}

/* Runs a test; side 0 measures, the other one returns after the last message. */
static void measure(struct side *s, const struct test *t)
{
    const struct kind *kind = t->kind;
    long warm = t->count / 10 + 1;
    E4_uint64 begin = 0;

    for (long i = 0; i < t->count + warm; i++) {
        if (i == warm)
            begin = elan4_clock(s->ctx);
        if (s->vp == 0 || kind->peer == ANSWERS)
            kind->once(s, t, i);
        else if (kind->peer == RECEIVES)
            receive(s);
    }
    if (s->vp == 1) {
        receive(s);
        return;
    }
    if (kind->peer != ANSWERS && kind->ways < 1)
        for (long k = 0; k < (long)t->n && k < t->count + warm; k++)
            await(s, &s->done[k]);
    double ns = (double)(elan4_clock(s->ctx) - begin) / (double)t->count;
    if (kind->ways > 0)
        printf("%s %zu %.3f us\n", kind->name, t->bytes, ns / 1e3 / kind->ways);
    else
        printf("%s %zu %.1f MB/s\n", kind->name, t->bytes,
               (double)(is_list(kind) ? t->n * t->bytes : t->bytes) * 1e3 / ns);
    send_message(s, 8);
}

/* Parses the arguments into `t`; false if invalid. */
static bool parse(int argc, char **argv, struct test *t)
{
    const char *what = argc > 1 ? argv[1] : "lat";

    for (t->kind = kinds; t->kind->name && strcmp(t->kind->name, what) != 0; t->kind++)
        ;
    t->bytes = argc > 2 ? strtoul(argv[2], NULL, 0) : t->kind->bytes;
    t->count = argc > 3 ? atol(argv[3]) : t->kind->count;
    t->n = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 0) : t->kind->n;
    bool message = t->kind->once == lat || t->kind->once == queue;
    return t->kind->name && t->bytes > 0 && t->bytes <= (message ? 2048 : 1 << 30) &&
           t->count > 0 && t->n > 0 && t->n <= MAX_PIECES;
}

int main(int argc, char **argv)
{
    char dir[] = "/dev/shm/elan4_bare.XXXXXX", file[80];
    struct side side = {0};
    struct test test;
    int status = 0;

    if (!parse(argc, argv, &test)) {
        fprintf(stderr,
                "usage: elan4_bare [WHAT [BYTES [COUNT [N]]]], WHAT lat, putlat, getlat, "
                "queue, write, read, one, each or pack\n");
        return 2;
    }
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(dir))
        die("preparing");
    setenv("EMUELAN4_DIR", dir, 1);
    pid_t child = fork();
    if (child < 0)
        die("fork");
    int node = child ? 0 : 1;
    setenv("EMUELAN4_NODE", node ? "1" : "0", 1);
    side.inflight = test.n;
    open_side(&side, node, room(&test));
    measure(&side, &test);
    if (!child) {
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof(file), "%s/records-%d", dir, i);
        unlink(file);
    }
    rmdir(dir);
    fflush(stdout);
    _exit(status != 0); /* the library's resources are freed by the exit */
}
