/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process dies by SIGKILL at each step of its actions on others: sending messages, writing
 * and reading, setting off a chain in another process, being refused. The others live,
 * confirmed work is not lost, nothing arrives twice, and their contexts work as before.
 */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/elan4/segment.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "emul/elan4/knobs.h"

#define SOON   60000
#define ROUNDS 30

enum { QUEUE_A, CHAIN_A, MEM_A, QUEUE_C, ACKED, CHAINED, VICTIM_PID };

static const char *die;
static _Atomic int *finished; /* victims that ended without reaching the step */

static bool dead(struct bed *b)
{
    pid_t pid = (pid_t)atomic_load(&b->m->word[VICTIM_PID]);

    return pid && process_is_dead(pid);
}

/* Takes a queue's messages until it is empty; if numbered they must be consecutive from 1. */
static uint64_t drain(struct bed *b, uint64_t last, bool numbered, uint64_t want)
{
    for (;;) {
        char *m = queue_take(b, 64, last < want ? SOON : 500);
        if (!m)
            return last;
        uint64_t number;
        memcpy(&number, m, 8);
        last++;
        if (numbered)
            CHECK(number == last);
    }
}

/* Waits until both survivors have noticed the death and know the victim's work there. */
static void both_know(struct bed *b)
{
    const struct shm_head *seg = own_segment();
    int pid = (int)told(b, VICTIM_PID);

    CHECK(seg);
    for (uint64_t end = now_ms() + SOON; is_known(seg, pid); usleep(1000))
        CHECK(now_ms() < end);
    meet(b, 3, 2);
}

/* Runs in both survivors: takes messages while the victim lives, then checks, and synchronizes
 * with the third. */
static void survive(struct bed *b, bool numbered, int confirmed)
{
    uint64_t got = 0;

    tell(b, 10 + b->node, 1);
    while (!dead(b))
        got = drain(b, got, numbered, 0);
    both_know(b);
    uint64_t acked = atomic_load(&b->m->word[confirmed]);
    got = drain(b, got, numbered, acked);
    if (got != acked && got != acked + 1) {
        fprintf(stderr, "%s: %d messages, %d were confirmed\n", die, (int)got, (int)acked);
        CHECK(got == acked || got == acked + 1);
    }
    meet(b, 1, 2);
}

static void send_one(struct bed *b, unsigned vp, E4_Addr queue, uint64_t number)
{
    volatile E4_uint64 *word = main_mem(b, 64);
    uint64_t *msg = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);

    *msg = number;
    run_dma(b, dma(8, DMA_QueueWrite, vp, elan(b, msg), 0, elan(b, ev), queue));
    flush(b);
    CHECK(word_set(b, word, SOON));
}

/* The process that is written and read, and whose chain sends messages to the third. */
static void passive(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    bed_queue(b, 64);
    char *msg = main_mem(b, 64), *mem = malloc(1 << 20);
    E4_uint64 *blk = sdram_mem(b, 128);
    E4_Event *ev = sdram_mem(b, 32);
    E4_Addr port = elan4_alloccq_space(b->ctx, 16, CQ_Size8K);
    E4_uint64 primed = E4_EVENT_INIT_VALUE(-32, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 16);
    /* send a message to the third process, and prime the event again */
    struct _E4_DMA64 d =
        dma(8, DMA_QueueWrite, vp_of(2, LOW), elan(b, msg), 0, 0, told(b, QUEUE_C));
    d.dma_typeSize |= RUN_DMA_CMD;
    d.dma_pad = NOP_CMD;
    memcpy(blk, (void *)(uintptr_t)&d, 64);
    blk[8] = elan(b, ev) | WAIT_EVENT_CMD;
    blk[9] = primed;
    blk[10] = elan(b, blk);
    blk[11] = port;
    for (int i = 12; i < 16; i++)
        blk[i] = NOP_CMD;
    ev->ev_CopySource = blk[10];
    ev->ev_CopyDest = port;
    elan4_store64(primed, &ev->ev_CountAndType);
    memset(mem, 3, 1 << 20);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0); /* ready for the victim */
    tell(b, MEM_A, elan(b, mem));
    tell(b, CHAIN_A, elan(b, ev));
    tell(b, QUEUE_A, elan(b, b->queue));
    survive(b, true, ACKED);
    /* still works: the third process sends and reads */
    told(b, 20);
    for (uint64_t i = 0; i < 2 * SLOTS; i++) {
        char *m = queue_take(b, 64, SOON);
        CHECK(m && memcmp(m, &i, sizeof(i)) == 0); /* not remains of the dead one */
    }
    meet(b, 2, 2);
    bed_close(b);
}

static void third(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, QUEUE_C, elan(b, b->queue));
    survive(b, false, CHAINED);
    tell(b, 20, 1);
    for (uint64_t i = 0; i < 2 * SLOTS; i++)
        send_one(b, vp_of(0, LOW), told(b, QUEUE_A), i);
    char *mem = calloc(1, 1 << 20);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    struct _E4_DMA64 d = dma(1 << 20, 0, b->vp, told(b, MEM_A), elan(b, mem), 0, elan(b, ev));
    ask_dma(b, 0, d);
    CHECK(word_set(b, word, SOON));
    /* the chain still sends, once */
    run_dma(b, dma(0, 0, vp_of(0, LOW), 0, 0, 0, told(b, CHAIN_A)));
    flush(b);
    CHECK(queue_take(b, 64, SOON));
    CHECK(!queue_take(b, 64, 100));
    meet(b, 2, 2);
    bed_close(b);
}

/* Returns an unmapped address of that process: its first pages. */
static E4_Addr nowhere(E4_Addr of)
{
    return (of & ~((UINT64_C(1) << 48) - 1)) | 4096;
}

static void victim(struct bed *b)
{
    setenv("EMUELAN4_DIE", die, 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    setenv("EMUELAN4_SLICE", "65536", 1);
    told(b, 10);
    told(b, 12);
    tell(b, VICTIM_PID, (uint64_t)getpid());
    bed_open(b, LOW);
    char *mem = calloc(1, 1 << 18), *into = calloc(1, 1 << 18);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        send_one(b, vp_of(0, LOW), told(b, QUEUE_A), i);
        atomic_store(&b->m->word[ACKED], i);
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 2);
        run_dma(b,
                dma(1 << 18, 0, vp_of(0, LOW), elan(b, mem), told(b, MEM_A), elan(b, ev), 0));
        struct _E4_DMA64 d =
            dma(1 << 18, 0, b->vp, told(b, MEM_A), elan(b, into), 0, elan(b, ev));
        ask_dma(b, 0, d);
        CHECK(word_set(b, word, SOON));
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 1);
        run_dma(b, dma(0, 0, vp_of(0, LOW), 0, 0, elan(b, ev), told(b, CHAIN_A)));
        flush(b);
        CHECK(word_set(b, word, SOON));
        atomic_store(&b->m->word[CHAINED], i);
        run_dma(b, dma(8, 0, vp_of(0, LOW), elan(b, mem), nowhere(told(b, MEM_A)), 0, 0));
        flush(b); /* a trap of the other process */
    }
    atomic_fetch_add(finished, 1);
    kill(getpid(), SIGKILL);
}

static int death_at(const char *step, int k)
{
    char text[64];

    snprintf(text, sizeof(text), "%s:%d", step, k);
    die = text;
    return run_beds_kill(3, (bed_fn[]){passive, victim, third}, 1);
}

/* Runs each in its own process, because they mostly wait. */
static int deaths_at(const char *step)
{
    static const int at[] = {1, 2, 3, 5, 12, 40};
    enum { RUNS = sizeof(at) / sizeof(at[0]) };
    pid_t pid[RUNS];
    int rc = 0, st;

    fflush(NULL);
    atomic_store(finished, 0);
    for (int k = 0; k < RUNS; k++) {
        pid[k] = fork();
        if (pid[k] == 0)
            _exit(death_at(step, at[k]) != 0);
    }
    for (int k = 0; k < RUNS; k++) {
        if (pid[k] > 0 && waitpid(pid[k], &st, 0) == pid[k] && st == 0)
            continue;
        printf("# failed at %s:%d\n", step, at[k]);
        rc = 1;
    }
    int died = RUNS - atomic_load(finished);
    rc |= died == 0; /* at least one must have reached it */
    printf("# died %d times\n", died);
    return rc;
}

int main(void)
{
    static const char *const steps[] = {
#define X(NAME, name) #name,
        EMU4_STEPS(X)
#undef X
    };

    finished = mmap(NULL, sizeof(*finished), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
    if (finished == MAP_FAILED)
        return 1;
    for (unsigned s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
        char name[64];
        snprintf(name, sizeof(name), "death_at_%s", steps[s]);
        if (case_begins(name))
            case_ends(deaths_at(steps[s]));
    }
    return cases_end();
}
