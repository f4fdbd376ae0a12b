/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The barest use of libelan4 there is, to compare with: ping-pong by queue DMAs, and RDMA
 * writes and reads of a block, between two processes on two nodes. Each line: what, bytes,
 * value, unit.
 *
 * usage: elan4_bare [lat|write|read] [BYTES [COUNT]]
 */
#include <elan4/library.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS  16
#define WINDOW 4

/* What the two tell each other before they use the network. */
struct shared {
    _Atomic int ready[2];
    E4_Addr queue[2], buffer[2];
};

struct side {
    ELAN4_CTX *ctx;
    ELAN4_ALLOC *alloc;
    ELAN4_COOKIEPOOL *cookies;
    E4_CmdQ *tx, *rx;
    E4_InputQueue *queue;
    E4_Event *queue_event, *event;
    volatile E4_uint64 *arrived, *done;
    E4_Addr first, last;
    unsigned vp, peer_vp;
    char *slots, *send;
    char *block; /* memory as any program has it */
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
    s->event = elan4_allocElan(s->alloc, 32, sizeof(E4_Event32));
    s->done = elan4_allocMain(s->alloc, 64, 64);
    s->block = malloc(block);
    if (!s->cookies || !s->tx || !s->rx || !s->send || !s->event || !s->done || !s->block)
        die("allocating");
    memset(s->send, 1, 2048);
    memset(s->block, 1, block);
    make_queue(s, 2048);
    elan4_block_inputter(s->ctx, 0);
    shared->queue[node] = elan(s, s->queue);
    shared->buffer[node] = elan(s, s->block);
    atomic_store(&shared->ready[node], 1);
    while (!atomic_load(&shared->ready[1 - node]))
        usleep(100);
}

static void send_message(struct side *s, unsigned bytes)
{
    E4_DMA dma = {.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, DMA_QueueWrite, 16),
                  .dma_cookie =
                      elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_LOCAL_DMA, s->peer_vp),
                  .dma_vproc = s->peer_vp,
                  .dma_srcAddr = elan(s, s->send),
                  .dma_dstEvent = shared->queue[s->peer_vp]};

    MEMBAR_VISIBLE();
    elan4_run_dma_cmd(s->tx, &dma);
    s->tx->cmdq_flush(s->tx);
}

static void receive(struct side *s)
{
    while (!elan4_pollevent_word(s->ctx, s->arrived, 1000000))
        ;
    E4_Addr next = s->queue->q_fptr == s->last ? s->first : s->queue->q_fptr + 2048;
    elan4_store64(next, &s->queue->q_fptr);
    *s->arrived = 0;
    MEMBAR_STORESTORE();
    elan4_wait_event_cmd(s->rx, elan(s, s->queue_event),
                         E4_EVENT_INIT_VALUE(-32, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                         elan(s, s->arrived), 1);
    s->rx->cmdq_flush(s->rx);
}

static void latency(struct side *s, unsigned bytes, long count)
{
    E4_uint64 begin = 0;

    for (long i = -count / 10; i < count; i++) {
        if (i == 0)
            begin = elan4_clock(s->ctx);
        if (s->vp == 0) {
            send_message(s, bytes);
            receive(s);
        } else {
            receive(s);
            send_message(s, bytes);
        }
    }
    if (s->vp == 0)
        printf("lat %u %.3f us\n", bytes,
               (double)(elan4_clock(s->ctx) - begin) / 2e3 / (double)count);
}

static void bandwidth(struct side *s, size_t bytes, long count, int reading)
{
    if (s->vp == 1) { /* nothing is to be done here but to be there until the end */
        receive(s);
        return;
    }
    E4_DMA dma = {.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, 0, 16),
                  .dma_cookie =
                      elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_LOCAL_DMA, s->peer_vp),
                  .dma_vproc = reading ? s->vp : s->peer_vp,
                  .dma_srcAddr = reading ? shared->buffer[1] : elan(s, s->block),
                  .dma_dstAddr = reading ? elan(s, s->block) : shared->buffer[1]};
    *(reading ? &dma.dma_dstEvent : &dma.dma_srcEvent) = elan(s, s->event);
    E4_uint64 begin = 0;
    elan4_initevent_write(s->ctx, s->event, s->done);
    for (long i = -WINDOW; i < count; i += WINDOW) {
        if (i == 0)
            begin = elan4_clock(s->ctx);
        *s->done = 0;
        elan4_primeevent_write(s->ctx, s->event, WINDOW);
        MEMBAR_VISIBLE();
        for (int k = 0; k < WINDOW; k++)
            if (reading)
                elan4_remote_dma(
                    s->tx, &dma, s->peer_vp,
                    elan4_local_cookie(s->cookies, E4_COOKIE_TYPE_STEN, s->peer_vp));
            else
                elan4_run_dma_cmd(s->tx, &dma);
        s->tx->cmdq_flush(s->tx);
        while (!elan4_pollevent_word(s->ctx, s->done, 1000000))
            ;
    }
    printf("%s %zu %.1f MB/s\n", reading ? "read" : "write", bytes,
           (double)bytes * (double)count * 1e3 / (double)(elan4_clock(s->ctx) - begin));
    send_message(s, 8);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "lat";
    int lat = strcmp(what, "lat") == 0, reading = strcmp(what, "read") == 0;
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 0) : lat ? 64 : 1 << 20;
    long count = argc > 3 ? atol(argv[3]) : lat ? 100000 : 2000;
    char dir[] = "/dev/shm/elan4_bare.XXXXXX", file[80];
    struct side side = {0};
    int status = 0;

    if ((!lat && !reading && strcmp(what, "write") != 0) || bytes == 0 || count < WINDOW ||
        (lat && bytes > 2048)) {
        fprintf(stderr, "usage: elan4_bare [lat|write|read] [BYTES [COUNT]]\n");
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
    open_side(&side, node, bytes > 2048 ? bytes : 2048);
    if (lat)
        latency(&side, (unsigned)bytes, count);
    else
        bandwidth(&side, bytes, count, reading);
    if (!child) {
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof(file), "%s/node-%d", dir, i);
        unlink(file);
    }
    rmdir(dir);
    return status != 0;
}
