/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Consecutive writes in a command queue, moved by one system call: apart from the counter the
 * result must not differ, whichever write is unusual or fails. */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"

#include <sys/mman.h>

#define SOON 60000

enum { MANY = 64, STEP = 1024, BYTES = 1000, WRONG = 20 };
enum { AT, AT_SECOND, NOWHERE, SENT }; /* indices of shared values */

/* Parameters of a case. */
static struct {
    const char *reorder, *most; /* EMUELAN4_REORDER, EMUELAN4_WRITE_CHAIN */
    bool in_arena;              /* the target's memory comes from its allocator */
    bool wrong_there, wrong_here;
    bool second; /* every second one of the second half is for another process */
} c;

/* Maps memory outside of the allocator. */
static uint8_t *own_memory(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

static E4_Addr nowhere(struct bed *b)
{
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    return elan(b, page);
}

static bool is_second(int i)
{
    return c.second && i >= MANY / 2 && i % 2;
}

static bool is_wrong(int i)
{
    return i == WRONG && (c.wrong_there || c.wrong_here);
}

static uint8_t byte_of(int i, int k)
{
    return (uint8_t)(i * 7 + k + 1);
}

static void check_arrived(const uint8_t *at, bool second)
{
    for (int i = 0; i < MANY; i++) {
        bool comes = is_second(i) == second && !is_wrong(i);
        for (int k = 0; k < STEP; k++)
            CHECK(at[i * STEP + k] == (comes && k < BYTES ? byte_of(i, k) : 0));
    }
}

static void wait_for_traps(struct bed *b, int n)
{
    for (uint64_t end = now_ms() + SOON; atomic_load(&b->traps) < n; usleep(1000))
        CHECK(now_ms() < end);
    usleep(20000);
    CHECK(atomic_load(&b->traps) == n);
}

static void receive(struct bed *b, int word, bool second)
{
    bed_open(b, LOW);
    uint8_t *at = c.in_arena ? main_mem(b, MANY * STEP) : own_memory(MANY * STEP);
    if (!second)
        tell(b, NOWHERE, nowhere(b));
    tell(b, word, elan(b, at));
    meet(b, 0, 3);
    check_arrived(at, second);
    wait_for_traps(b, !second && c.wrong_there);
}

static void target(struct bed *b)
{
    receive(b, AT, false);
}

static void second_target(struct bed *b)
{
    receive(b, AT_SECOND, true);
}

static void sender(struct bed *b)
{
    int good = MANY - (c.wrong_there || c.wrong_here);

    setenv("EMUELAN4_REORDER", c.reorder, 1);
    if (c.most)
        setenv("EMUELAN4_WRITE_CHAIN", c.most, 1);
    bed_open(b, LOW);
    uint8_t *from = own_memory(MANY * STEP);
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < BYTES; k++)
            from[i * STEP + k] = byte_of(i, k);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *all = word_event(b, word, good);
    E4_Addr bad_source = nowhere(b);
    E4_Addr to[2] = {told(b, AT), told(b, AT_SECOND)}, bad = told(b, NOWHERE);
    for (int i = 0; i < MANY; i++) {
        E4_Addr src = elan(b, from + i * STEP), dst = to[is_second(i)] + (E4_Addr)(i * STEP);
        run_dma(b, dma(BYTES, 0, vp_of(is_second(i), LOW),
                       c.wrong_here && i == WRONG ? bad_source : src,
                       c.wrong_there && i == WRONG ? bad : dst, elan(b, all), 0));
    }
    flush(b);
    CHECK(word_set(b, word, SOON));
    meet(b, 0, 3);
    wait_for_traps(b, c.wrong_here);
    CHECK(counter("dma_write") == good);
    int64_t chained = counter("dma_chained"), held = counter("dma_held");
    if (c.in_arena || c.wrong_there || c.wrong_here || c.most)
        CHECK(chained == 0);
    else if (c.second)
        CHECK(chained >= MANY / 2 && held == 0);
    else
        CHECK(chained == MANY - held);
    CHECK((held > 0) == (c.reorder[0] != '0'));
}

static int run(void)
{
    return run_beds(3, (bed_fn[]){target, second_target, sender});
}

static int all_arrive(const char *reorder)
{
    memset(&c, 0, sizeof(c));
    c.reorder = reorder;
    return run();
}

/* Where the network writes without system calls nothing can be saved. */
static int into_the_arena(void)
{
    memset(&c, 0, sizeof(c));
    c.reorder = "0";
    c.in_arena = true;
    return run();
}

static int one_by_one(void)
{
    memset(&c, 0, sizeof(c));
    c.reorder = "0";
    c.most = "1";
    return run();
}

/* The bad write is reported once, to its process, and the others arrive. */
static int one_is_wrong(bool there)
{
    memset(&c, 0, sizeof(c));
    c.reorder = "0";
    c.wrong_there = there;
    c.wrong_here = !there;
    return run();
}

static int to_two_processes(void)
{
    memset(&c, 0, sizeof(c));
    c.reorder = "0";
    c.second = true;
    return run();
}

int main(void)
{
    CASE(all_arrive("0"));
    CASE(all_arrive("40"));
    CASE(into_the_arena());
    CASE(one_by_one());
    CASE(one_is_wrong(true));
    CASE(one_is_wrong(false));
    CASE(to_two_processes());
    return cases_end();
}
