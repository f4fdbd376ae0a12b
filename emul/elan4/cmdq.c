/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Command queues. Commands are buffered until the queue is flushed, and then executed in order
 * by the flushing thread. A packet refused by its target stalls its queue: the engine's thread
 * retries the packet until it is accepted, or EMUELAN4_STEN_RETRIES attempts have failed.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Limit of bytes in a chain of writes, which then takes no longer than one large write. */
#define CHAIN_BYTES (256 * 1024)

#define CHANNELS 32u

struct elan4_cmdq_params {
    unsigned flags;
};

struct emu4_cmdq {
    E4_CmdQ pub;    /* first */
    uint64_t tried; /* round of emu4_cmdqs_retry() that tried the queue last */
    struct emu4_cmdq *next;
    struct emu4_ctx *x;
    pthread_mutex_t lock;
    uint32_t index, perms;
    bool flow; /* waits instead of overflowing */
    unsigned capacity, head, tail;
    uint64_t *w;
    bool stalled, skip;
    uint32_t packet_vp, tries;
    unsigned channel;
    uint8_t result[CHANNELS];
};

static struct emu4_cmdq *of(E4_CmdQ *q)
{
    return (struct emu4_cmdq *)q;
}

/* Allocates a queue number of the context; -1 when all are in use. */
static int take_number(struct emu4_proc *p, struct emu4_ctx *x, uint32_t perms)
{
    int found = -1;

    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < EMU4_CQS && found < 0; i++)
        if (!x->end.c->cq[i].in_use) {
            x->end.c->cq[i] = (struct shm_cq){1, perms};
            found = (int)i;
        }
    pthread_mutex_unlock(&p->lock);
    if (found < 0)
        errno = ENOSPC;
    return found;
}

static void give_number(struct emu4_proc *p, struct emu4_ctx *x, unsigned i)
{
    pthread_mutex_lock(&p->lock);
    x->end.c->cq[i] = (struct shm_cq){0, 0};
    pthread_mutex_unlock(&p->lock);
}

/* Sends one transaction of a packet to its target. */
static enum dma_end transaction(struct emu4_proc *p, struct emu4_cmdq *q, const uint64_t *w)
{
    unsigned type = (unsigned)(w[0] >> 16) & 0xffff & ~(unsigned)TR_WAIT_FOR_EOP;

    switch (type) {
    case TR_REMOTEDMA: {
        uint64_t dma[7];
        memcpy(dma, w + 2, sizeof(dma));
        dma[0] &= ~(uint64_t)0xffff;
        return emu4_dma_remote(p, &q->x->end, q->packet_vp, dma);
    }
    default:
        emu4_trap_now(&q->x->end, UTS_INVALID_COMMAND, UTS_CPROC, w[0], q->index);
        return DMA_DEAD;
    }
}

/* Returns false when the transaction must be retried. */
static bool send_transaction(struct emu4_proc *p, struct emu4_cmdq *q, const uint64_t *w)
{
    EMU4_COUNT(sten_packets, 1);
    switch (transaction(p, q, w)) {
    case DMA_DONE:
    case DMA_MORE:
        q->result[q->channel] = PACK_OK;
        break;
    case DMA_NACK:
    case DMA_ABSENT:
        if (!p->knobs.sten_retries || ++q->tries < p->knobs.sten_retries)
            return false;
        EMU4_COUNT(sten_failed, 1);
        q->result[q->channel] = PACK_DISCARD | RESTART_COUNT_ZERO;
        break;
    case DMA_DEAD:
        q->result[q->channel] = PACK_DISCARD;
        break;
    }
    q->tries = 0;
    return true;
}

static void local(struct emu4_proc *p, struct emu4_cmdq *q, const uint64_t *w)
{
    struct emu4_end *e = &q->x->end;
    struct emu4_txn t;

    if (!emu4_inbox_room(e->c))
        emu4_engine_run(p, UINT64_MAX);
    emu4_lock(&t, e);
    if (!emu4_command_local(&t, w))
        emu4_trap(&t, UTS_INVALID_COMMAND, UTS_CPROC, w[0], q->index);
    emu4_txn_commit(&t);
    emu4_unlock(&t);
}

static void dma_words(const uint64_t *w, uint64_t dma[7])
{
    memcpy(dma, w, 7 * sizeof(*w));
    dma[0] &= ~(uint64_t)0xffff;
}

/* Executes writes at the head of the queue that share one system call; returns their words, or
 * 0. */
static unsigned execute_chain(struct emu4_proc *p, struct emu4_cmdq *q, uint64_t *budget)
{
    const uint64_t *w = &q->w[q->head];
    unsigned words = emu4_command_length(w[0]), n = 0;
    uint64_t dma[EMU4_CHAIN_MAX][7], size = 0;
    uint32_t perm = emu4_command_permission(w[0]);

    if ((w[0] & 0xf) != RUN_DMA_CMD || q->skip || (q->perms & perm) != perm)
        return 0;
    for (; n < p->knobs.write_chain && (n + 1) * words <= q->tail - q->head &&
           (w[n * words] & 0xf) == RUN_DMA_CMD;
         n++) {
        dma_words(&w[n * words], dma[n]);
        size += E4_DMA_SIZE(dma[n][0]);
        if (!emu4_dma_joins(p, dma[n], dma[0]) || size > CHAIN_BYTES || size > *budget)
            break;
    }
    if (n < 2)
        return 0;
    for (unsigned i = 0; i < n; i++)
        *budget -= E4_DMA_SIZE(dma[i][0]);
    EMU4_COUNT(commands, n);
    emu4_dma_chain(p, q->x, dma, n);
    return n * words;
}

/* Executes one command; false when the command must be retried. */
static bool execute(struct emu4_proc *p, struct emu4_cmdq *q, const uint64_t *w,
                    uint64_t *budget)
{
    uint32_t perm = emu4_command_permission(w[0]);
    uint64_t dma[7];

    if (q->skip) {
        q->skip = false;
        return true;
    }
    if ((q->perms & perm) != perm) {
        emu4_trap_now(&q->x->end, UTS_PERMISSION_DENIED, UTS_CPROC, w[0], q->index);
        return true;
    }
    switch (w[0] & 0xf) {
    case RUN_DMA_CMD:
        EMU4_COUNT(commands, 1);
        dma_words(w, dma);
        emu4_dma_start(p, q->x, dma, budget);
        return true;
    case OPEN_STEN_PKT_CMD:
        EMU4_COUNT(commands, 1);
        q->packet_vp = (uint32_t)(w[0] >> 32);
        q->channel = (unsigned)(w[0] >> 4) % CHANNELS;
        return true;
    case SEND_TRANS_CMD:
        EMU4_COUNT(commands, 1);
        return send_transaction(p, q, w);
    case GUARD_CMD:
        EMU4_COUNT(commands, 1);
        q->skip = (w[0] >> 31 & 1) &&
                  !(q->result[(w[0] >> 16 & 0x1f) % CHANNELS] & (w[0] >> 21 & 0x7f));
        return true;
    default:
        local(p, q, w);
        return true;
    }
}

/* Executes commands until the queue is empty or stalled. Under the queue's lock. */
static void run(struct emu4_proc *p, struct emu4_cmdq *q, uint64_t *budget)
{
    q->stalled = false;
    while (q->head < q->tail && !q->stalled) {
        unsigned n = execute_chain(p, q, budget);
        if (n) {
            q->head += n;
            continue;
        }
        n = emu4_command_length(q->w[q->head]);
        if (n == 0 || n > q->tail - q->head) {
            emu4_trap_now(&q->x->end, UTS_INVALID_COMMAND, UTS_CPROC, q->w[q->head], q->index);
            n = q->tail - q->head;
        } else if (!execute(p, q, &q->w[q->head], budget)) {
            q->stalled = true;
            break;
        }
        q->head += n;
    }
    memmove(q->w, q->w + q->head, (q->tail - q->head) * sizeof(*q->w));
    q->tail -= q->head;
    q->head = 0;
}

static void flush(E4_CmdQ *cmdq)
{
    struct emu4_cmdq *q = of(cmdq);
    struct emu4_proc *p = emu4_proc_peek();
    uint64_t budget = emu4_burst(p);

    pthread_mutex_lock(&q->lock);
    if (q->tail)
        EMU4_COUNT(flushes, 1);
    run(p, q, &budget);
    bool stalled = q->stalled;
    pthread_mutex_unlock(&q->lock);
    if (emu4_engine_has_work(p) && emu4_engine_run(p, budget))
        emu4_service_wake(p);
    if (stalled) {
        atomic_store(&p->self.seg->news, 1); /* the engine's thread may be about to sleep */
        emu4_service_wake(p);
    }
}

/* Returns a stalled queue not tried in this round, locked, or NULL. Skips queues locked by
 * other threads: such a thread wakes the engine's thread if the queue remains stalled. */
static struct emu4_cmdq *stalled_one(struct emu4_proc *p, uint64_t round)
{
    struct emu4_cmdq *found = NULL;

    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < EMU4_CTXS && found == NULL; i++)
        for (struct emu4_cmdq *q = p->ctx[i] != NULL ? p->ctx[i]->queues : NULL;
             q != NULL && found == NULL; q = q->next) {
            if (pthread_mutex_trylock(&q->lock) != 0)
                continue;
            if (q->stalled && q->tried != round)
                found = q;
            else
                pthread_mutex_unlock(&q->lock);
        }
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* Tries each stalled queue once per round: their targets are independent. */
bool emu4_cmdqs_retry(struct emu4_proc *p)
{
    bool stalled = false;
    uint64_t round = ++p->retry_round;
    struct emu4_cmdq *q;

    while ((q = stalled_one(p, round)) != NULL) {
        uint64_t budget = emu4_burst(p);
        q->tried = round;
        run(p, q, &budget);
        stalled |= q->stalled;
        pthread_mutex_unlock(&q->lock);
    }
    return stalled;
}

static void put(E4_CmdQ *cmdq, const uint64_t *w, unsigned n)
{
    struct emu4_cmdq *q = of(cmdq);
    struct emu4_proc *p = emu4_proc_peek();

    pthread_mutex_lock(&q->lock);
    while (q->tail + n > q->capacity && q->flow) {
        uint64_t budget = emu4_burst(p);
        run(p, q, &budget);
        if (!q->stalled)
            break;
        pthread_mutex_unlock(&q->lock);
        emu4_engine_run(p, p->knobs.slice);
        pthread_mutex_lock(&q->lock);
    }
    if (q->tail + n > q->capacity) {
        emu4_trap_now(&q->x->end, UTS_CPROC_ERROR, UTS_CPROC, w[0], q->index);
    } else {
        memcpy(q->w + q->tail, w, n * sizeof(*w));
        q->tail += n;
    }
    pthread_mutex_unlock(&q->lock);
}

EMU4_EXPORT E4_CmdQParams *elan4_probe_cmdq(ELAN4_CTX *ctx, unsigned maxCmds, unsigned flags)
{
    (void)ctx;
    (void)maxCmds;
    if (emu4_call(EMU4_CALL_elan4_probe_cmdq))
        return NULL;
    static E4_CmdQParams kinds[2] = {{0}, {CQ_AutoCtrlFlowOn}};
    return &kinds[flags & CQ_AutoCtrlFlowOn];
}

EMU4_EXPORT E4_CmdQ *elan4_alloc_cmdq(ELAN4_CTX *ctx, unsigned cqSize, unsigned perms,
                                      E4_CmdQParams *params)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();

    if (emu4_call(EMU4_CALL_elan4_alloc_cmdq))
        return NULL;
    if (cqSize > CQ_Size512K || (perms & ~CQ_EnableAllBits) || !x->required) {
        errno = EINVAL;
        return NULL;
    }
    struct emu4_cmdq *q = calloc(1, sizeof(*q));
    if (q == NULL)
        return NULL;
    q->capacity = CQ_Size(cqSize) / 8;
    q->w = malloc(q->capacity * sizeof(*q->w));
    int index = q->w != NULL ? take_number(p, x, perms) : -1;
    if (index < 0) {
        free(q->w);
        free(q);
        return NULL;
    }
    pthread_mutex_init(&q->lock, NULL);
    q->index = (uint32_t)index;
    q->perms = perms;
    q->flow = params != NULL && (params->flags & CQ_AutoCtrlFlowOn);
    q->x = x;
    q->pub.cmdq_flush = flush;
    q->pub.cmdq_mapping = (E4_CommandPort *)(void *)(x->ports + (size_t)index * PORT_BYTES);
    pthread_mutex_lock(&p->lock);
    q->next = x->queues;
    x->queues = q;
    pthread_mutex_unlock(&p->lock);
    return &q->pub;
}

EMU4_EXPORT void elan4_free_cmdq(ELAN4_CTX *ctx, E4_CmdQ *cmdq)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();
    struct emu4_cmdq *q = of(cmdq);

    pthread_mutex_lock(&p->lock);
    for (struct emu4_cmdq **at = &x->queues; *at; at = &(*at)->next)
        if (*at == q) {
            *at = q->next;
            break;
        }
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_lock(&q->lock); /* wait until the engine's thread has left the queue */
    pthread_mutex_unlock(&q->lock);
    give_number(p, x, q->index);
    pthread_mutex_destroy(&q->lock);
    free(q->w);
    free(q);
}

void emu4_cmdqs_free(struct emu4_ctx *x)
{
    while (x->queues != NULL)
        elan4_free_cmdq(&x->pub, &x->queues->pub);
}

EMU4_EXPORT E4_Addr elan4_alloccq_space(ELAN4_CTX *ctx, unsigned nDwords, unsigned cqSize)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();
    int index = -1;

    if (emu4_call(EMU4_CALL_elan4_alloccq_space))
        return 0;
    if (cqSize > CQ_Size512K || nDwords == 0 || nDwords > CQ_Size(cqSize) / 8) {
        errno = EINVAL;
        return 0;
    }
    uint32_t size = CQ_Size(cqSize) / 8;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < EMU4_CQS && index < 0; i++)
        if (x->space_size[i] == size && size - x->space[i] >= nDwords)
            index = (int)i;
    if (index >= 0)
        x->space[index] += nDwords;
    pthread_mutex_unlock(&p->lock);
    if (index < 0) {
        index = take_number(p, x, CQ_EnableAllBits);
        if (index < 0)
            return 0;
        pthread_mutex_lock(&p->lock);
        x->space_size[index] = size;
        x->space[index] = nDwords;
        pthread_mutex_unlock(&p->lock);
    }
    return ADDR(REGION_PORT, x->end.c->tag & 0xfff, (uint64_t)index * PORT_BYTES);
}

EMU4_EXPORT void elan4_freecq_space(ELAN4_CTX *ctx, E4_Addr port, unsigned nDwords)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();
    uint64_t index = ADDR_OFFSET(port) / PORT_BYTES;
    bool empty = false;

    pthread_mutex_lock(&p->lock);
    if (ADDR_REGION(port) == REGION_PORT && index < EMU4_CQS && x->space_size[index] &&
        nDwords <= x->space[index]) {
        x->space[index] -= nDwords;
        empty = x->space[index] == 0;
        if (empty)
            x->space_size[index] = 0;
    }
    pthread_mutex_unlock(&p->lock);
    if (empty)
        give_number(p, x, (unsigned)index);
}

EMU4_EXPORT void elan4_run_dma_cmd(E4_CmdQ *cmdq, E4_DMA *dma)
{
    const uint64_t w[] = {dma->dma_typeSize | RUN_DMA_CMD,
                          dma->dma_cookie,
                          dma->dma_vproc,
                          dma->dma_srcAddr,
                          dma->dma_dstAddr,
                          dma->dma_srcEvent,
                          dma->dma_dstEvent};
    put(cmdq, w, 7);
}

EMU4_EXPORT void elan4_wait_event_cmd(E4_CmdQ *cmdq, E4_Addr event, E4_uint64 countAndType,
                                      E4_uint64 param0, E4_uint64 param1)
{
    put(cmdq, (const uint64_t[]){event | WAIT_EVENT_CMD, countAndType, param0, param1}, 4);
}

EMU4_EXPORT void elan4_set_event_cmd(E4_CmdQ *cmdq, E4_Addr event)
{
    put(cmdq, (const uint64_t[]){event | SET_EVENT_CMD}, 1);
}

EMU4_EXPORT void elan4_add_dword_cmd(E4_CmdQ *cmdq, E4_Addr addr, E4_uint64 value)
{
    put(cmdq, (const uint64_t[]){addr | ADD_DWORD_CMD, value}, 2);
}

EMU4_EXPORT void elan4_guard(E4_CmdQ *cmdq, E4_uint64 command)
{
    put(cmdq, (const uint64_t[]){command | GUARD_CMD}, 1);
}

EMU4_EXPORT void elan4_remote_dma(E4_CmdQ *cmdq, E4_DMA *dma, unsigned destvp,
                                  E4_uint64 stenCookie)
{
    const uint64_t w[] = {OPEN_PACKET(0, PACK_OK | RESTART_COUNT_ZERO, destvp),
                          (uint64_t)(TR_REMOTEDMA | TR_WAIT_FOR_EOP) << 16 | SEND_TRANS_CMD,
                          stenCookie,
                          dma->dma_typeSize | DMA_IsRemote,
                          dma->dma_cookie,
                          dma->dma_vproc,
                          dma->dma_srcAddr,
                          dma->dma_dstAddr,
                          dma->dma_srcEvent,
                          dma->dma_dstEvent};
    put(cmdq, w, 10);
}
