/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What bmi_elan4 does not run into, over the software Elan4: misuse that is reported, DMAs that
 * overtake each other, processes that fork, or die before they wake a sleeper; and the
 * emulation's segments and descriptors: not in core dumps, closed by the program. */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "tests/emul/files.h"
#include "tests/lib/asleep.h"

#define SOON 60000

/* ---- Misuse that is reported ---- */

static void counts_too_many_sets(struct bed *b)
{
    E4_Event *ev = word_event(b, main_mem(b, 64), 1);
    elan4_store64(E4_EVENT_INIT_VALUE(0x7ffffff0, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                  &ev->ev_CountAndType);
    elan4_set_event_cmd(b->cq, elan(b, ev));
}

static void copies_unaligned_block(struct bed *b)
{
    E4_Event *ev = sdram_mem(b, 32);
    elan4_store64(E4_EVENT_INIT_VALUE(-32, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 8),
                  &ev->ev_CountAndType);
    ev->ev_CopySource = elan(b, (char *)main_mem(b, 256) + 8);
    ev->ev_CopyDest = elan(b, main_mem(b, 64));
    elan4_set_event_cmd(b->cq, elan(b, ev));
}

static void has_no_permission(struct bed *b)
{
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_WriteEnableBit, NULL);
    elan4_set_event_cmd(cq, elan(b, word_event(b, main_mem(b, 64), 1)));
    cq->cmdq_flush(cq);
}

static void overflows_queue(struct bed *b)
{
    enum { FIT = 18 }; /* DMA commands of 7 dwords, in 1 KiB */
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_DmaStartEnableBit, NULL);
    E4_DMA64 d = dma(0, 0, b->vp, 0, 0, 0, 0);
    for (int i = 0; i < FIT + 1; i++)
        elan4_run_dma_cmd(cq, (E4_DMA *)&d);
}

static void sends_more_than_a_packet(struct bed *b)
{
    bed_queue(b, 2048);
    run_dma(b, dma(2056, DMA_QueueWrite, b->vp, elan(b, main_mem(b, 4096)), 0, 0,
                   elan(b, b->queue)));
}

static void has_queue_outside_of_sdram(struct bed *b)
{
    E4_InputQueue *q = main_mem(b, sizeof(*q));
    bed_queue(b, SLOT);
    *q = *b->queue;
    run_dma(b, dma(8, DMA_QueueWrite, b->vp, elan(b, main_mem(b, 64)), 0, 0, elan(b, q)));
}

static void takes_pointer_for_address(struct bed *b)
{
    static char from[64];
    run_dma(b, dma(8, 0, b->vp, (E4_Addr)(uintptr_t)from, elan(b, main_mem(b, 64)), 0, 0));
}

static void has_no_route(struct bed *b)
{
    run_dma(b, dma(0, 0, NODES * CONTEXTS, 0, 0, 0, 0));
}

static const struct {
    bed_fn fn;
    int type, proc;
} misuse[] = {
    {counts_too_many_sets, UTS_BAD_TRAP, UTS_EPROC},
    {copies_unaligned_block, UTS_INVALID_ADDR, UTS_EPROC},
    {has_no_permission, UTS_PERMISSION_DENIED, UTS_CPROC},
    {overflows_queue, UTS_CPROC_ERROR, UTS_CPROC},
    {sends_more_than_a_packet, UTS_BAD_TRAP, UTS_DPROC},
    {has_queue_outside_of_sdram, UTS_INVALID_ADDR, UTS_IPROC},
    {takes_pointer_for_address, UTS_INVALID_ADDR, UTS_DPROC},
    {has_no_route, UTS_INVALID_VPROC, UTS_DPROC},
};

static void misuse_traps_once(struct bed *b)
{
    bed_open(b, LOW);
    for (unsigned i = 0; i < sizeof(misuse) / sizeof(misuse[0]); i++) {
        atomic_store(&b->traps, 0);
        misuse[i].fn(b);
        flush(b);
        CHECK(trapped(b, misuse[i].type, SOON));
        CHECK(atomic_load(&b->trap_proc) == misuse[i].proc && atomic_load(&b->traps) == 1);
    }
}

static void dmas_overtake_each_other(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "50", 1);
    setenv("EMUELAN4_SEED", "7", 1);
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_uint64 *from = main_mem(b, 64 * 8), *to = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 64);
    int overtaken = 0;
    for (int round = 0; round < 20; round++) {
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 64);
        for (E4_uint64 i = 0; i < 64; i++) {
            from[i] = i + 1;
            run_dma(b, dma(8, 0, b->vp, elan(b, from + i), elan(b, to), elan(b, ev), 0));
        }
        flush(b);
        CHECK(word_set(b, word, SOON));
        overtaken += *to != 64; /* the last one did not complete last */
    }
    CHECK(overtaken > 0);
}

struct nap {
    struct bed *b;
    E4_Event *event;
    volatile E4_uint64 *word;
};

static void *nap(void *arg)
{
    struct nap *n = arg;
    E4_CmdQ *cq = elan4_alloc_cmdq(n->b->ctx, CQ_Size1K, CQ_EnableAllBits, NULL);

    CHECK(cq != NULL && elan4_alloc_intcookie(n->b->ctx, 7) == 0);
    elan4_waitevent_word(n->b->ctx, cq, n->b->irq, sdram_mem(n->b, 64), 7, n->event, n->word,
                         ELAN_WAIT_EVENT);
    return NULL;
}

static void sleeps(struct bed *b)
{
    pthread_t thread;

    bed_open(b, LOW);
    struct nap n = {b, NULL, main_mem(b, 64)};
    n.event = word_event(b, n.word, 1);
    CHECK(pthread_create(&thread, NULL, nap, &n) == 0);
    asleep_await_others();
    tell(b, 0, elan(b, n.event));
    CHECK(pthread_join(thread, NULL) == 0 && elan4_load64(n.word) != 0);
    bed_close(b);
}

static void dies_before_waking(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    setenv("EMUELAN4_DIE", "unlocked", 1);
    bed_open(b, LOW);
    run_dma(b, dma(0, 0, vp_of(0, LOW), 0, 0, 0, told(b, 0)));
    flush(b);
}

/* The memory begins with SDRAM of its parent's interface. */
static void has_main_memory(void)
{
    char own[64];
    ELAN4_CTX *ctx = elan4_init(0);
    ELAN4_ALLOC *alloc = elan4_createAllocator(1 << 20, NULL, 0, 0);

    CHECK(ctx != NULL && alloc != NULL && elan4_set_standard_mappings(ctx) == 0);
    void *mem = elan4_allocMain(alloc, 64, 64);
    CHECK(mem != NULL && elan4_main2elan(ctx, mem) >> 60 == elan4_main2elan(ctx, own) >> 60);
    elan4_destroyAllocator(alloc);
    elan4_fini(ctx);
}

/* A child has no network interface of its parent's, and may open its own, but not at the
 * parent's context. */
static void child_opens_its_own_interface(struct bed *b)
{
    bed_open(b, LOW);
    pid_t pid = fork();
    if (pid == 0) {
        struct bed c = {.m = b->m};
        has_main_memory();
        ELAN4_CTX *taken = elan4_init(0);
        CHECK(elan4_attach(taken, &b->cap) != 0 && errno == EBUSY);
        elan4_fini(taken);
        bed_open(&c, LOW + 1);
        bed_close(&c);
        _exit(0);
    }
    int st = 1;
    CHECK(waitpid(pid, &st, 0) == pid && st == 0);
    bed_close(b);
}

/* ---- Segments and descriptors as the program meets them ---- */

#define FILES 48
enum { LENT = 1, ENDED, LEFT };

/* Lends a word, and serves requests until the other process has ended its part. */
static void lends(struct bed *b)
{
    unsigned all, dumped;
    volatile E4_uint64 *never = main_mem(b, 64);

    tell(b, LENT, elan(b, number_mem(b, 5)));
    while (!atomic_load(&b->m->word[ENDED]))
        word_set(b, never, 1);
    segments_mapped("memfd:emuelan4-", &all, &dumped);
    CHECK(all >= 1 && dumped == 0);
}

static struct _E4_DMA64 read_of(struct bed *b, uint64_t *to)
{
    return dma(8, 0, vp_of(1, LOW), told(b, LENT), elan(b, to), 0, 0);
}

static void lender(struct bed *b)
{
    bed_open(b, LOW);
    lends(b);
    tell(b, LEFT, 1);
    bed_close(b);
}

static void is_dumped_without(struct bed *b)
{
    unsigned all, dumped;

    bed_open(b, LOW);
    uint64_t *got = number_mem(b, 0);
    ask_dma(b, 0, read_of(b, got));
    CHECK(word_set(b, got, 60000));
    segments_mapped("memfd:emuelan4-", &all, &dumped);
    CHECK(all == 2 && dumped == 0);
    tell(b, ENDED, 1);
    bed_close(b);
}

static unsigned first; /* kind of the file with the lowest number */

/* Closes the library's descriptors, and goes on with a peer, in memory, and by timers. */
static void closes_all(struct bed *b)
{
    int file[FILES], own = eventfd(1, 0), readable = fcntl(own, F_DUPFD, 201);

    bed_open(b, LOW);
    uint64_t *got = number_mem(b, 0);
    void *area = elan4_allocMain(b->alloc, 4096, 1 << 20);
    ask_dma(b, 0, read_of(b, got));
    CHECK(area != NULL && word_set(b, got, 60000));
    CHECK(readable > 200 && close_range(3, 200, 0) == 0);
    for (unsigned i = 0; i < FILES; i++)
        CHECK((file[i] = program_file((first + i) % FILE_KINDS, readable)) >= 0);
    for (unsigned i = 0; i < 4; i++) {
        asleep_await_others(); /* then a request wakes the engine's thread */
        ask_dma(b, 0, read_of(b, got));
    }
    elan4_freeMain(b->alloc, area);
    tell(b, ENDED, 1);
    (void)told(b, LEFT);
    bed_close(b);
    for (unsigned i = 0; i < FILES; i++)
        if (!file_is_untouched((first + i) % FILE_KINDS, file[i])) {
            fprintf(stderr, "kind %u: descriptor %d\n", (first + i) % FILE_KINDS, file[i]);
            _exit(1);
        }
}

static int files_of_the_program_are_left_alone(void)
{
    int rc = 0;

    for (first = 0; first < FILE_KINDS && !rc; first++)
        rc = run_beds(2, (bed_fn[]){lender, closes_all});
    return rc;
}

static const struct {
    const char *name;
    int n;
    bed_fn fn[2];
    bool dies; /* the second process, by SIGKILL */
} rules[] = {
    {"misuse_traps_once", 1, {misuse_traps_once}, false},
    {"dmas_overtake_each_other", 1, {dmas_overtake_each_other}, false},
    {"child_opens_its_own_interface", 1, {child_opens_its_own_interface}, false},
    {"segments_mapped_left_out_of_dumps", 2, {lender, is_dumped_without}, false},
    {"sleeper_wakes_when_waker_dies", 2, {sleeps, dies_before_waking}, true},
};

int main(void)
{
    for (unsigned k = 0; k < sizeof(rules) / sizeof(rules[0]); k++)
        if (case_begins(rules[k].name))
            case_ends(run_beds_kill(rules[k].n, rules[k].fn, rules[k].dies ? 1 : -1));
    CASE(files_of_the_program_are_left_alone());
    return cases_end();
}
