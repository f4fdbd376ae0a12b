/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What comes between two steps of another process: its death, somebody who keeps the lock that
 * it needs.
 */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/elan4/segment.h"

#include <sys/mman.h>

#define SOON 30000

static void send_number(struct bed *b, E4_Addr queue, uint64_t number)
{
    uint64_t *msg = main_mem(b, 64);

    *msg = number;
    run_dma(b, dma(8, DMA_QueueWrite, vp_of(0, LOW), elan(b, msg), 0, 0, queue));
    flush(b);
}

static uint64_t take_number(struct bed *b)
{
    uint64_t number;
    char *m = queue_take(b, 64, SOON);

    CHECK(m);
    memcpy(&number, m, sizeof(number));
    return number;
}

/* One that dies when it has set the word of a queue, and not said so. */
static void sets_and_dies(struct bed *b)
{
    setenv("EMUELAN4_DIE", "stored:1", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    send_number(b, told(b, 0), 1);
}

static void believes_once(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, 0, elan(b, b->queue));
    for (uint64_t i = 1; i <= 2 * SLOTS; i++) {
        CHECK(take_number(b) == i);
        tell(b, 1, i);
    }
}

static void goes_on(struct bed *b)
{
    bed_open(b, LOW);
    for (uint64_t i = 2; i <= 2 * SLOTS; i++) {
        while (told(b, 1) != i - 1)
            usleep(200);
        send_number(b, told(b, 0), i);
    }
    while (told(b, 1) != 2 * SLOTS)
        usleep(200);
}

/* The word is not set again when it has been cleared. */
static int a_word_is_set_once(void)
{
    int rc = 0;

    for (int i = 0; i < 3; i++)
        rc |= run_beds_kill(3, (bed_fn[]){believes_once, sets_and_dies, goes_on}, 1);
    return rc;
}

/* Keeps its own lock, so that nobody can tell it anything, until word 1 is set. */
static void hears_late(struct bed *b)
{
    uint32_t none = 0;

    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(seg && page != MAP_FAILED);
    E4_Addr at = elan(b, page);
    while (!atomic_compare_exchange_strong(&seg->ctx[0].lock, &none, 1))
        none = 0;
    tell(b, 0, at);
    (void)told(b, 1);
    atomic_store(&seg->ctx[0].lock, 0);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->traps) == 1);
    meet(b, 0, 2);
}

static void writes_to_nowhere(struct bed *b)
{
    bed_open(b, LOW);
    E4_Addr at = told(b, 0);
    run_dma(b, dma(8, 0, vp_of(0, LOW), elan(b, main_mem(b, 64)), at, 0, 0));
    flush(b);
    for (uint64_t end = now_ms() + SOON; !counter("nacks"); usleep(1000))
        CHECK(now_ms() < end);
    tell(b, 1, 1);
    meet(b, 0, 2);
}

/* Whose memory was not there is told so, if not at once. */
static int a_trap_is_told_late(void)
{
    return run_beds(2, (bed_fn[]){hears_late, writes_to_nowhere});
}

int main(void)
{
    CASES_BEGIN;
    CASE(a_word_is_set_once());
    CASE(a_trap_is_told_late());
    CASES_END;
}
