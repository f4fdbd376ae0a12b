/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Interference between two steps of another process: its death, its detaching, a process that
 * holds the lock it needs. */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/elan4/segment.h"

#include <signal.h>
#include <sys/mman.h>

#define SOON 60000

/* Waits, in a process that is about to be killed. */
static void wait_long(struct bed *b)
{
    volatile E4_uint64 *never = main_mem(b, 64);

    word_set(b, never, SOON);
}

/* Dies after setting the word of a queue, before recording it. */
static void sets_and_dies(struct bed *b)
{
    setenv("EMUELAN4_DIE", "stored:1", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    send_number(b, told(b, 0), 1, 0);
    wait_long(b);
}

static void believes_once(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, 0, elan(b, b->queue));
    for (uint64_t i = 1; i <= 2 * SLOTS; i++) {
        CHECK(take_number(b, SOON) == i);
        tell(b, 1, i);
    }
}

static void goes_on(struct bed *b)
{
    bed_open(b, LOW);
    for (uint64_t i = 2; i <= 2 * SLOTS; i++) {
        while (told(b, 1) != i - 1)
            usleep(200);
        send_number(b, told(b, 0), i, 0);
    }
    while (told(b, 1) != 2 * SLOTS)
        usleep(200);
}

/* A cleared word is not set again. */
static int cleared_word_is_not_set_again(void)
{
    int rc = 0;

    for (int i = 0; i < 3; i++)
        rc |= run_beds_kill(3, (bed_fn[]){believes_once, sets_and_dies, goes_on}, 1);
    return rc;
}

/* Holds its own lock, so that others cannot deliver to it, until word 1 is set. */
static void hears_late(struct bed *b)
{
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(seg && page != MAP_FAILED);
    E4_Addr at = elan(b, page);
    while (!take_lock(&seg->ctx[0]))
        ;
    tell(b, 0, at);
    (void)told(b, 1);
    give_lock(&seg->ctx[0]);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->traps) == 1);
    meet(b, 0, 2);
}

static void writes_to_nowhere(struct bed *b)
{
    bed_open(b, LOW);
    const struct shm_head *seg = own_segment();
    CHECK(seg);
    E4_Addr at = told(b, 0);
    run_dma(b, dma(8, 0, vp_of(0, LOW), elan(b, main_mem(b, 64)), at, 0, 0));
    flush(b);
    for (uint64_t end = now_ms() + SOON; !atomic_load(&seg->counters.nacks); usleep(1000))
        CHECK(now_ms() < end);
    tell(b, 1, 1);
    meet(b, 0, 2);
}

/* A process whose memory was unmapped gets its trap, though late. */
static int unmapped_process_gets_trap_late(void)
{
    return run_beds(2, (bed_fn[]){hears_late, writes_to_nowhere});
}

/* Offers a word for reading, and is stopped. */
static void lends(struct bed *b)
{
    bed_open(b, LOW);
    uint64_t *mem = main_mem(b, 64);
    *mem = 7;
    tell(b, 0, elan(b, mem));
    tell(b, 1, (uint64_t)getpid());
    meet(b, 0, 2);
}

/* Its thread is about to drop the record of the other process when it is asked to read there
 * again. */
static void reads_again(struct bed *b)
{
    setenv("EMUELAN4_BURST", "0", 1); /* the library's thread does all work */
    setenv("EMUELAN4_FORGET_LATE_US", "100000", 1);
    bed_open(b, LOW);
    E4_Addr from = told(b, 0);
    uint64_t *into = main_mem(b, 64);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    struct _E4_DMA64 d = dma(8, 0, b->vp, from, elan(b, into), 0, elan(b, ev));
    CHECK(process_stop((pid_t)told(b, 1))); /* it holds no lock: no process has met it yet */
    for (int i = 0; i < 4; i++) {
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 1);
        *into = 0;
        ask_dma(b, 1, d);
        for (uint64_t end = now_ms() + SOON; elan4_load64(word) == 0; usleep(50))
            CHECK(now_ms() < end);
        CHECK(*into == 7);
    }
    CHECK(kill((pid_t)told(b, 1), SIGCONT) == 0);
    meet(b, 0, 2);
}

/* A new request is not dropped together with another one's earlier request. */
static int new_request_survives_dropped_one(void)
{
    return run_beds(2, (bed_fn[]){reads_again, lends});
}

/* The same, where the read sets off a message. */
static void lends_with_a_chain(struct bed *b)
{
    bed_open(b, LOW);
    E4_Event *ev = sdram_mem(b, 32);
    event_sends(
        b, ev, 1,
        dma(8, DMA_QueueWrite, vp_of(0, LOW), elan(b, number_mem(b, 7)), 0, 0, told(b, 3)));
    tell(b, 0, elan(b, main_mem(b, 64)));
    tell(b, 2, elan(b, ev));
    tell(b, 1, (uint64_t)getpid());
    meet(b, 0, 2);
}

/* One of its threads has read and not recorded it yet, when the other one finds no work left
 * there. */
static void reads_slowly(struct bed *b)
{
    setenv("EMUELAN4_BURST", "0", 1);
    setenv("EMUELAN4_SETTLE_LATE_US", "500000", 1);
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, 3, elan(b, b->queue));
    CHECK(process_stop((pid_t)told(b, 1)));
    ask_dma(b, 1, dma(8, 0, b->vp, told(b, 0), elan(b, main_mem(b, 64)), told(b, 2), 0));
    CHECK(take_number(b, SOON) == 7);
    CHECK(kill((pid_t)told(b, 1), SIGCONT) == 0);
    meet(b, 0, 2);
}

/* The process that sets off a chain of another one executes it without a further request. */
static int chain_of_other_process_is_executed(void)
{
    return run_beds(2, (bed_fn[]){reads_slowly, lends_with_a_chain});
}

/* Detaches from its context while another process works for it, and attaches again. Its table
 * then has the same contents as before, but that process must not complete the new entries. */
static void leaves(struct bed *b)
{
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    struct shm_ctx *c = &seg->ctx[0];
    tell(b, 0, elan(b, main_mem(b, 64)));
    uint32_t claim = 0;
    unsigned i = 0;
    while (!claim && !atomic_load(&b->m->word[1])) {
        i = (i + 1) % EMU4_DMAS;
        claim = c->used[i / 64] >> i % 64 & 1 ? atomic_load(&c->dma[i].claim) : 0;
    }
    uint64_t seq = c->dma[i].seq;
    bed_close(b);
    bed_open(b, LOW);
    if (claim) {
        c->dma[i].seq = seq;
        atomic_store(&c->dma[i].claim, claim);
        __atomic_store_n(&c->used[i / 64], UINT64_C(1) << i % 64, __ATOMIC_RELEASE);
    }
    (void)told(b, 1);
    CHECK(!claim || (c->dma[i].seq == seq && atomic_load(&c->dma[i].claim) == claim));
    CHECK(!claim || !ctx_is_idle(c));
    meet(b, 0, 2);
}

static void works_for_it(struct bed *b)
{
    setenv("EMUELAN4_SETTLE_LATE_US", "500000", 1);
    bed_open(b, LOW);
    ask_dma(b, 0, dma(8, 0, b->vp, told(b, 0), elan(b, main_mem(b, 64)), 0, 0));
    tell(b, 1, 1); /* detached and attached */
    meet(b, 0, 2);
}

static int released_memory_is_not_written(void)
{
    return run_beds(2, (bed_fn[]){leaves, works_for_it});
}

/* Is stopped while others send two messages for it, and sends a third when no trace of these is
 * left. */
static void owns_two(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    uint64_t *msg = main_mem(b, 192);
    for (uint64_t i = 0; i < 3; i++)
        msg[8 * i] = i + 1;
    tell(b, 2, (uint64_t)getpid());
    tell(b, 1, elan(b, msg));
    (void)told(b, 3);
    bool gone = false;
    for (uint64_t end = now_ms() + SOON; !gone || !ctx_is_idle(&seg->ctx[0]); usleep(1000)) {
        CHECK(now_ms() < end);
        gone = gone || somebody_is_gone(seg);
    }
    send_number(b, told(b, 0), 3, 0);
    meet(b, 0, 2);
}

/* Dies when two of its threads have delivered one message each. */
static void delivers_two(struct bed *b)
{
    setenv("EMUELAN4_BURST", "0", 1);
    setenv("EMUELAN4_DIE", "delivered:2", 1);
    setenv("EMUELAN4_SETTLE_LATE_US", "1000000", 1);
    bed_open(b, LOW);
    volatile E4_uint64 *never = main_mem(b, 64);
    E4_Addr msg = told(b, 1), queue = told(b, 0);
    CHECK(process_stop((pid_t)told(b, 2)));
    ask_dma(b, 2, dma(8, DMA_QueueWrite, vp_of(0, LOW), msg, 0, 0, queue));
    ask_dma(b, 2, dma(8, DMA_QueueWrite, vp_of(0, LOW), msg + 64, 0, 0, queue));
    tell(b, 4, 1);
    while (!atomic_load(&b->m->word[3]))
        word_set(b, never, 1);
    kill(getpid(), SIGKILL);
}

static void counts_them(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, 0, elan(b, b->queue));
    uint64_t sum = 0;
    (void)told(b, 4);
    for (int i = 0; i < 2; i++) {
        /* only the owner repeats a refused message: nothing follows then */
        uint64_t number = take_number(b, 5000);
        if (!number || i == 1) {
            CHECK(kill((pid_t)told(b, 2), SIGCONT) == 0);
            tell(b, 3, 1);
        }
        sum += number ? number : take_number(b, SOON);
    }
    CHECK(sum == 3);
    CHECK(take_number(b, SOON) == 3);
    meet(b, 0, 2);
}

/* None of the messages is delivered twice. */
static int each_delivery_leaves_its_mark(void)
{
    return run_beds_kill(3, (bed_fn[]){counts_them, delivers_two, owns_two}, 1);
}

/* All slots but one are taken, by a live process. */
static void has_one_place(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    for (unsigned i = 2; i < EMU4_USERS; i++)
        atomic_store(&seg->user[i].state, USER_KNOWN);
    tell(b, 0, elan(b, b->queue));
    CHECK(take_number(b, SOON) == 5);
}

static void dies_at_the_door(struct bed *b)
{
    setenv("EMUELAN4_DIE", "entering:1", 1);
    bed_open(b, LOW);
    E4_Addr queue = told(b, 0);
    tell(b, 1, (uint64_t)getpid());
    send_number(b, queue, 4, 0);
    wait_long(b);
}

static void comes_in(struct bed *b)
{
    bed_open(b, LOW);
    const struct shm_head *seg = own_segment();
    CHECK(seg);
    pid_t before = (pid_t)told(b, 1);
    while (!process_is_dead(before))
        usleep(1000);
    send_number(b, told(b, 0), 5, 0);
    for (uint64_t end = now_ms() + SOON; !atomic_load(&seg->counters.dma_queue); usleep(1000))
        CHECK(now_ms() < end);
}

/* A process that dies between taking a slot and recording its name leaves the slot to the
 * next. */
static int slot_of_dead_process_is_reused(void)
{
    return run_beds_kill(3, (bed_fn[]){has_one_place, dies_at_the_door, comes_in}, 1);
}

int main(void)
{
    CASE(cleared_word_is_not_set_again());
    CASE(unmapped_process_gets_trap_late());
    CASE(new_request_survives_dropped_one());
    CASE(chain_of_other_process_is_executed());
    CASE(released_memory_is_not_written());
    CASE(each_delivery_leaves_its_mark());
    CASE(slot_of_dead_process_is_reused());
    return cases_end();
}
