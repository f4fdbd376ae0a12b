/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Several processes at work: with a stopped one, with lists, with many clients, with
 * threads. */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/elan4/gate.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/elan4/segment.h"

#define SOON 60000
#define BIG  (4u << 20)

/* Provides memory to read and write, and an event that answers by a message; then stops. */
static void passive(struct bed *b)
{
    bed_open(b, LOW);
    unsigned char *mem = malloc(2 * BIG);
    memset(mem, 7, 2 * BIG);
    char *msg = main_mem(b, 64);
    strcpy(msg, "from the stopped one");
    E4_Event *ev = sdram_mem(b, 32);
    event_sends(b, ev, 1,
                dma(64, DMA_QueueWrite, vp_of(0, LOW), elan(b, msg), 0, 0, told(b, 3)));
    tell(b, 0, elan(b, mem));
    tell(b, 1, elan(b, ev));
    tell(b, 2, (uint64_t)getpid());
    meet(b, 0, 2);
    meet(b, 1, 2);
    for (unsigned i = 0; i < BIG; i += 512)
        CHECK(mem[BIG + i] == 9);
}

static void active(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 256);
    tell(b, 3, elan(b, b->queue));
    unsigned char *mem = malloc(BIG);
    pid_t other = (pid_t)told(b, 2);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    /* make it greet us before it stops */
    E4_uint64 one = 0;
    run_dma(b, dma(8, 0, vp_of(1, LOW), elan(b, &one), told(b, 0) + BIG, elan(b, ev), 0));
    flush(b);
    CHECK(word_set(b, word, SOON));
    meet(b, 0, 2);
    CHECK(process_stop(other));
    for (int round = 0; round < 4; round++) {
        memset(mem, 0, BIG);
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 1);
        struct _E4_DMA64 d = dma(BIG, 0, b->vp, told(b, 0), elan(b, mem), 0, elan(b, ev));
        ask_dma(b, 1, d);
        CHECK(word_set(b, word, SOON));
        for (unsigned i = 0; i < BIG; i += 512)
            CHECK(mem[i] == 7);
    }
    memset(mem, 9, BIG);
    run_dma(b, dma(BIG, 0, vp_of(1, LOW), elan(b, mem), told(b, 0) + BIG, 0, told(b, 1)));
    flush(b);
    char *m = queue_take(b, 256, SOON);
    CHECK(m && strcmp(m, "from the stopped one") == 0);
    CHECK(counter("dma_helped") >= 5);
    CHECK(kill(other, SIGCONT) == 0);
    meet(b, 1, 2);
}

static int stopped_process_memory_stays_accessible(void)
{
    return run_beds(2, (bed_fn[]){active, passive});
}

enum { FROM, CLAIMED, KEPT, LATE, OVER };

/* A process without a processor holds another's lock. */
static void keeper(struct bed *b)
{
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    char *mem = malloc(BIG);
    memset(mem, 7, BIG);
    tell(b, FROM, elan(b, mem));
    (void)told(b, CLAIMED);
    while (!take_lock(&seg->ctx[0]))
        ;
    tell(b, KEPT, 1);
    (void)told(b, LATE);
    give_lock(&seg->ctx[0]);
    (void)told(b, OVER);
}

static void until_kept(struct bed *b, int signal)
{
    (void)signal;
    tell(b, CLAIMED, 1);
    (void)told(b, KEPT);
}

static void reader(struct bed *b)
{
    setenv("EMUELAN4_SLICE", "65536", 1);
    setenv("EMUELAN4_STOP", "helping:1", 1);
    at_step = until_kept;
    gate_bed = b;
    bed_open(b, LOW);
    const struct shm_head *seg = own_segment();
    CHECK(seg);
    char *mem = calloc(1, BIG);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    ask_dma(b, 1, dma(BIG, 0, b->vp, told(b, FROM), elan(b, mem), 0, elan(b, ev)));
    for (uint64_t end = now_ms() + SOON; !word_set(b, word, 5);) {
        CHECK(now_ms() < end);
        atomic_store(&b->m->word[LATE], atomic_load(&seg->counters.claims_late));
    }
    CHECK(atomic_load(&seg->counters.claims_late) > 0);
    for (unsigned i = 0; i < BIG; i += 512)
        CHECK(mem[i] == 7);
    tell(b, OVER, 1);
}

/* A process that moves data of another one's DMA may have to wait before recording it. */
static int lock_is_kept(void)
{
    return run_beds(2, (bed_fn[]){reader, keeper});
}

/* Holds its own lock, so that others are refused, until word `until` is set. */
static void refuse_all(struct bed *b, int mine, int until)
{
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    char *mem = malloc(64);
    memset(mem, 7, 64);
    E4_Addr at = elan(b, mem);
    while (!take_lock(&seg->ctx[0]))
        ;
    tell(b, mine, at);
    (void)told(b, until);
    give_lock(&seg->ctx[0]);
    (void)told(b, 5);
}

static void refuses_for_a_while(struct bed *b)
{
    refuse_all(b, 0, 3);
}

static void refuses_to_the_end(struct bed *b)
{
    refuse_all(b, 1, 4);
}

static void reads_from_both(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1); /* nothing else wakes the thread that retries */
    bed_open(b, LOW);
    E4_CmdQ *later = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_EnableAllBits, NULL);
    CHECK(later);
    E4_CmdQ *cq[2] = {b->cq, later};
    volatile E4_uint64 *word[2];
    char *mem = calloc(2, 64);
    for (int i = 0; i < 2; i++) {
        word[i] = main_mem(b, 64);
        elan4_store64(0, word[i]);
        struct _E4_DMA64 d = dma(64, 0, b->vp, told(b, i), elan(b, mem + 64 * i), 0,
                                 elan(b, word_event(b, word[i], 1)));
        elan4_remote_dma(cq[i], (E4_DMA *)&d, vp_of(i + 1, LOW), 1);
        cq[i]->cmdq_flush(cq[i]);
    }
    tell(b, 3, 1);
    CHECK(word_set(b, word[0], SOON)); /* while the other queue is still stalled */
    CHECK(mem[0] == 7 && mem[64] == 0);
    tell(b, 4, 1);
    CHECK(word_set(b, word[1], SOON));
    CHECK(mem[64] == 7);
    tell(b, 5, 1);
}

/* A queue whose target refuses does not block other queues. */
static int each_queue_is_tried(void)
{
    return run_beds(3, (bed_fn[]){reads_from_both, refuses_for_a_while, refuses_to_the_end});
}

/* Lists of many pieces: one event counts them, one message reports them. */
#define PIECE 64
static const int lists[] = {1, 2, 16, 300, 4096};

static void list_target(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    unsigned char *mem = calloc(4096, 2 * PIECE);
    tell(b, 0, elan(b, mem));
    tell(b, 1, elan(b, b->queue));
    for (unsigned k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        CHECK(queue_take(b, 64, SOON));
        for (int i = 0; i < lists[k]; i++)
            CHECK(mem[i * 2 * PIECE] == k + 1 && mem[i * 2 * PIECE + PIECE - 1] == k + 1);
        meet(b, (int)k, 2);
    }
    CHECK(!queue_take(b, 64, 100));
}

static void list_source(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "20", 1);
    bed_open(b, LOW);
    unsigned char *mem = calloc(4096, PIECE);
    char *msg = main_mem(b, 64);
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size8K, CQ_DmaStartEnableBit,
                                   elan4_probe_cmdq(b->ctx, 16, CQ_AutoCtrlFlowOn));
    for (unsigned k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        volatile E4_uint64 *word = main_mem(b, 64);
        E4_Event *done = word_event(b, word, 1), *ev = sdram_mem(b, 32);
        memset(mem, (int)k + 1, 4096 * PIECE);
        event_sends(
            b, ev, lists[k],
            dma(8, DMA_QueueWrite, vp_of(0, LOW), elan(b, msg), 0, elan(b, done), told(b, 1)));
        for (int i = 0; i < lists[k]; i++) {
            struct _E4_DMA64 d = dma(PIECE, 0, vp_of(0, LOW), elan(b, mem + i * PIECE),
                                     told(b, 0) + (E4_Addr)i * 2 * PIECE, elan(b, ev), 0);
            elan4_run_dma_cmd(cq, (E4_DMA *)&d);
        }
        cq->cmdq_flush(cq);
        CHECK(word_set(b, word, SOON));
        meet(b, (int)k, 2);
    }
}

static int one_event_for_a_list(void)
{
    return run_beds(2, (bed_fn[]){list_target, list_source});
}

/* One server, and many clients on four nodes, each with its own context: every request is
 * answered. */
#define CLIENTS 31
#define ASKED   10

static void server(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, 0, elan(b, b->queue));
    char *reply = main_mem(b, 64);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    for (int i = 0; i < CLIENTS * ASKED; i++) {
        char *m = queue_take(b, 64, 60000);
        CHECK(m);
        uint64_t ask[3];
        memcpy(ask, m, sizeof(ask));
        memcpy(reply, &ask[2], 8);
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 1);
        run_dma(b, dma(8, DMA_QueueWrite, (unsigned)ask[0], elan(b, reply), 0, elan(b, ev),
                       ask[1]));
        flush(b);
        CHECK(word_set(b, word, 60000));
    }
}

static void client(struct bed *b)
{
    bed_open(b, LOW + b->index / NODES);
    bed_queue(b, 64);
    uint64_t *ask = main_mem(b, 64);
    for (uint64_t i = 0; i < ASKED; i++) {
        ask[0] = b->vp;
        ask[1] = elan(b, b->queue);
        ask[2] = i * 1000 + b->vp;
        run_dma(b, dma(24, DMA_QueueWrite, vp_of(0, LOW), elan(b, ask), 0, 0, told(b, 0)));
        flush(b);
        char *m = queue_take(b, 64, 60000);
        uint64_t answer = 0;
        CHECK(m);
        memcpy(&answer, m, sizeof(answer));
        if (answer != ask[2])
            fprintf(stderr, "%u: answer %llu to %llu\n", b->vp, (unsigned long long)answer,
                    (unsigned long long)ask[2]);
        CHECK(answer == ask[2]);
    }
}

static int many_clients(void)
{
    bed_fn fn[CLIENTS + 1] = {server};

    for (int i = 1; i <= CLIENTS; i++)
        fn[i] = client;
    return run_beds(CLIENTS + 1, fn);
}

/* Idle processes do not wake up. Remaining work of one may have woken the other, whose answer
 * wakes the first, and so on for a few rounds. */
#define IDLE_ROUNDS 48
static void idle_one(struct bed *b)
{
    bed_open(b, LOW);
    const struct shm_head *seg = own_segment();
    CHECK(seg);
    bed_queue(b, 64);
    tell(b, b->node, elan(b, b->queue));
    uint64_t other = told(b, 1 - b->node);
    char *msg = main_mem(b, 64);
    run_dma(b, dma(8, DMA_QueueWrite, vp_of(1 - b->node, LOW), elan(b, msg), 0, 0, other));
    flush(b);
    CHECK(queue_take(b, 64, SOON));
    meet(b, 0, 2);
    uint64_t wakeups[IDLE_ROUNDS];
    for (int i = 0; i < IDLE_ROUNDS; i++) {
        for (uint64_t end = now_ms() + SOON; !sleeps_for_ever(seg); usleep(1000))
            CHECK(now_ms() < end);
        wakeups[i] = atomic_load(&seg->counters.wakeups);
        meet(b, 1 + i, 2);
    }
    CHECK(wakeups[IDLE_ROUNDS - 1] - wakeups[0] < IDLE_ROUNDS / 4);
}

static int idle_processes_do_not_wake(void)
{
    return run_beds(2, (bed_fn[]){idle_one, idle_one});
}

/* Threads of one process, each with its own queue, send to themselves and to another
 * process. */
#define THREADS 4
struct worker {
    struct bed *b;
    pthread_t thread;
    E4_CmdQ *cq;
    E4_Event *ev;
    volatile E4_uint64 *word;
    char *from, *to;
    unsigned vp;
    E4_Addr target;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct bed *b = w->b;

    for (int i = 0; i < 300; i++) {
        elan4_store64(0, w->word);
        elan4_primeevent_write(b->ctx, w->ev, 2);
        struct _E4_DMA64 d =
            dma(512, 0, b->vp, elan(b, w->from), elan(b, w->to), elan(b, w->ev), 0);
        struct _E4_DMA64 e = dma(64, 0, w->vp, elan(b, w->from), w->target, elan(b, w->ev), 0);
        elan4_run_dma_cmd(w->cq, (E4_DMA *)&d);
        elan4_run_dma_cmd(w->cq, (E4_DMA *)&e);
        w->cq->cmdq_flush(w->cq);
        CHECK(word_set(b, w->word, SOON));
    }
    return NULL;
}

static void threads_one(struct bed *b)
{
    struct worker w[THREADS];
    bed_open(b, LOW);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){
            .b = b, .vp = vp_of(1, LOW), .target = told(b, 0) + 64 * (E4_Addr)i};
        w[i].cq = elan4_alloc_cmdq(b->ctx, CQ_Size8K, CQ_DmaStartEnableBit, NULL);
        w[i].word = main_mem(b, 64);
        w[i].ev = word_event(b, w[i].word, 2);
        w[i].from = malloc(512);
        w[i].to = main_mem(b, 512);
        memset(w[i].from, i, 512);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(w[i].thread, NULL) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(memcmp(w[i].from, w[i].to, 512) == 0);
        free(w[i].from);
        elan4_free_cmdq(b->ctx, w[i].cq);
    }
    meet(b, 0, 2);
    bed_close(b);
    bed_open(b, LOW); /* open again */
    bed_close(b);
}

static void threads_two(struct bed *b)
{
    bed_open(b, LOW);
    char *mem = main_mem(b, 256);
    tell(b, 0, elan(b, mem));
    meet(b, 0, 2);
    bed_close(b);
}

static int threads_use_queues_of_their_own(void)
{
    return run_beds(2, (bed_fn[]){threads_one, threads_two});
}

/* The memory begins with SDRAM of its parent's interface. */
static void has_main_memory(void)
{
    char own[64];
    ELAN4_CTX *ctx = elan4_init(0);
    ELAN4_ALLOC *alloc = elan4_createAllocator(1 << 20, NULL, 0, 0);

    CHECK(ctx && alloc && elan4_set_standard_mappings(ctx) == 0);
    void *mem = elan4_allocMain(alloc, 64, 64);
    CHECK(mem && elan4_main2elan(ctx, mem) >> 60 == elan4_main2elan(ctx, own) >> 60);
    elan4_destroyAllocator(alloc);
    elan4_fini(ctx);
}

/* A child has no network interface of its parent's, and may open its own. */
static void forks(struct bed *b)
{
    bed_open(b, LOW);
    pid_t pid = fork();
    if (pid == 0) {
        struct bed c = {.m = b->m};
        has_main_memory();
        bed_open(&c, LOW + 1);
        bed_close(&c);
        _exit(0);
    }
    int st = 1;
    CHECK(waitpid(pid, &st, 0) == pid && st == 0);
    bed_close(b);
}

static int forked_child(void)
{
    return run_beds(1, (bed_fn[]){forks});
}

/* ---- Many refused packets ---- */

#define REFUSED 6000 /* more than a table holds */

/* Refuses everything until told otherwise, or killed. */
static void refuses(struct bed *b)
{
    bed_open(b, LOW);
    unsigned char *mem = calloc(REFUSED, 64);
    CHECK(mem && elan4_block_inputter(b->ctx, 1) == 0);
    tell(b, 0, elan(b, mem));
    if (told(b, 1) == 2)
        kill(getpid(), SIGKILL);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0);
    meet(b, 1, 2);
    for (int i = 0; i < REFUSED; i++)
        CHECK(mem[64 * i] == 7);
}

/* Writes to it, and sends to itself meanwhile: neither a flush nor a poll blocks. */
static E4_Event *write_refused(struct bed *b, volatile E4_uint64 *word)
{
    unsigned char *mem = malloc(64);
    E4_Addr to = told(b, 0);

    alarm(2 * SOON / 1000); /* ends a hang */
    bed_queue(b, 64);
    memset(mem, 7, 64);
    E4_Event *ev = word_event(b, word, REFUSED);
    for (int i = 0; i < REFUSED; i++) {
        run_dma(b,
                dma(64, 0, vp_of(1, LOW), elan(b, mem), to + 64 * (E4_Addr)i, elan(b, ev), 0));
        if (i % 100 == 99)
            flush(b);
    }
    for (uint64_t n = 1; n <= 100; n++) {
        send_number(b, elan(b, b->queue), n, 0);
        flush(b);
        CHECK(take_number(b, SOON) == n);
        CHECK(word_quiet(b, word, 5));
    }
    return ev;
}

static void is_refused(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = write_refused(b, word);
    CHECK(count_of(ev) == -32 * REFUSED);
    tell(b, 1, 1);
    CHECK(word_set(b, word, SOON));
    meet(b, 1, 2);
}

/* The engine's thread notices the death while all waiting work is retried. */
static void is_left(struct bed *b)
{
    bed_open(b, LOW);
    write_refused(b, main_mem(b, 64));
    tell(b, 1, 2);
    for (uint64_t end = now_ms() + SOON; counter("peers_dead") == 0; usleep(1000))
        CHECK(now_ms() < end);
    send_number(b, elan(b, b->queue), 5, 0);
    flush(b);
    CHECK(take_number(b, SOON) == 5);
}

static int many_refused(void)
{
    return run_beds(2, (bed_fn[]){is_refused, refuses});
}

static int many_refused_by_a_dead_one(void)
{
    return run_beds_kill(2, (bed_fn[]){is_left, refuses}, 1);
}

int main(void)
{
    CASE(stopped_process_memory_stays_accessible());
    CASE(lock_is_kept());
    CASE(each_queue_is_tried());
    CASE(one_event_for_a_list());
    CASE(many_clients());
    CASE(idle_processes_do_not_wake());
    CASE(threads_use_queues_of_their_own());
    CASE(forked_child());
    CASE(many_refused());
    CASE(many_refused_by_a_dead_one());
    return cases_end();
}
