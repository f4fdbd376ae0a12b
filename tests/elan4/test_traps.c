/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A trap is reported once, also if the process that detected it dies or is stopped, and for any
 * process that executes its list, or its DMA, later. */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/elan4/segment.h"

#include <signal.h>
#include <sys/mman.h>

#define SOON 60000

enum { AT, QUEUE, FROM, OWNER_PID, HELPER_PID, OVER, LATE_PID };
static char die[40];
static bool refused_here; /* refused by the owner, whose memory is unmapped */
#define NOT_ASKED "listed:1"

/* Returns an unmapped address. */
static E4_Addr nowhere(struct bed *b)
{
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    return elan(b, page);
}

/* Checks that exactly n traps are reported. */
static void check_told(struct bed *b, int n)
{
    for (uint64_t end = now_ms() + SOON; atomic_load(&b->traps) < n; usleep(1000))
        CHECK(now_ms() < end);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0); /* takes the lock: lists are executed */
    const struct shm_head *seg = own_segment();
    CHECK(seg);
    if (seg->ctx[0].trap_tail != (uint32_t)n)
        fprintf(stderr, "%s: %u traps, not %d\n", die, seg->ctx[0].trap_tail, n);
    CHECK(seg->ctx[0].trap_tail == (uint32_t)n && atomic_load(&b->traps) == n);
}

static void wait_for_death(pid_t pid)
{
    while (!process_is_dead(pid))
        usleep(1000);
}

/* ---- A process that works for another one dies ---- */

static void target(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, AT, refused_here ? elan(b, main_mem(b, 64)) : nowhere(b));
    tell(b, QUEUE, elan(b, b->queue));
    CHECK(take_number(b, SOON) == 2); /* all is done */
    check_told(b, !refused_here && strcmp(die, NOT_ASKED) != 0);
    tell(b, OVER, 1);
}

/* Dies at a step of a DMA for the owner, which is stopped and so cannot do it itself. */
static void helper(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    setenv("EMUELAN4_DIE", die, 1);
    bed_open(b, LOW);
    E4_Addr from = told(b, FROM), at = told(b, AT);
    volatile E4_uint64 *never = main_mem(b, 64);
    CHECK(process_stop((pid_t)told(b, OWNER_PID)));
    tell(b, HELPER_PID, (uint64_t)getpid());
    ask_dma(b, 2, dma(8, 0, vp_of(0, LOW), from, at, 0, 0));
    word_set(b, never, SOON);
    CHECK(false); /* did not reach that step */
}

static void owner(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    tell(b, FROM, refused_here ? nowhere(b) : elan(b, main_mem(b, 64)));
    tell(b, OWNER_PID, (uint64_t)getpid());
    wait_for_death((pid_t)told(b, HELPER_PID));
    bool gone = false;
    for (uint64_t end = now_ms() + SOON; !gone || !ctx_is_idle(&seg->ctx[0]); usleep(1000)) {
        CHECK(now_ms() < end);
        gone = gone || somebody_is_gone(seg);
    }
    send_number(b, told(b, QUEUE), 2, 0);
    (void)told(b, OVER);
    check_told(b, refused_here && strcmp(die, NOT_ASKED) != 0);
}

/* Lets the owner continue. */
static void bystander(struct bed *b)
{
    wait_for_death((pid_t)told(b, HELPER_PID));
    CHECK(kill((pid_t)told(b, OWNER_PID), SIGCONT) == 0);
}

static int trap_survives_dead_helper_at(const char *step, bool here)
{
    snprintf(die, sizeof(die), "%s", step);
    refused_here = here;
    return run_beds_kill(4, (bed_fn[]){target, helper, owner, bystander}, 1);
}

/* The helper lists the request, its claim, and the trap with the DMA's result; at the target
 * the last one separately. */
static int trap_survives_dead_helper(bool here)
{
    static const char *const steps[] = {"listed", "logged", "half_applied"};
    int rc = 0;

    for (unsigned i = 0; i < 3 && rc == 0; i++)
        for (int k = 1; k <= (here ? 3 : 4) && rc == 0; k++) {
            char step[40];
            snprintf(step, sizeof(step), "%s:%d", steps[i], k);
            rc = trap_survives_dead_helper_at(step, here);
        }
    if (rc == 0)
        rc = trap_survives_dead_helper_at("reporting:1", here);
    if (rc == 0)
        rc = trap_survives_dead_helper_at("reported:1", here);
    if (rc)
        printf("# failed at %s\n", die);
    return rc;
}

/* ---- A process setting an event with an unmapped word dies, or is stopped ---- */

static void writes_nowhere(struct bed *b)
{
    if (!die[0]) /* a dying process must not lose the lock earlier for being slow */
        setenv("EMUELAN4_LOCK_MS", "50", 1);
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    E4_Addr at = nowhere(b);
    elan4_store64(at, &ev->ev_WritePtr);
    tell(b, AT, elan(b, ev));
    pid_t late = (pid_t)told(b, LATE_PID);
    if (die[0]) {
        wait_for_death(late);
        CHECK(elan4_block_inputter(b->ctx, 0) == 0); /* takes the lock */
        check_told(b, 1);
        return;
    }
    while (!process_is_stopped(late))
        usleep(1000);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0);
    check_told(b, 1);
    run_dma(b, dma(8, 0, b->vp, at, at, 0, 0)); /* another one */
    flush(b);
    check_told(b, 2);
    CHECK(kill(late, SIGCONT) == 0);
    (void)told(b, OVER);
    check_told(b, 2);
    run_dma(b, dma(8, 0, b->vp, at, at, 0, 0)); /* the ring has lost nothing */
    flush(b);
    check_told(b, 3);
}

static void sets_it(struct bed *b)
{
    setenv(die[0] ? "EMUELAN4_DIE" : "EMUELAN4_STOP", die[0] ? die : "reporting:1", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    E4_Addr ev = told(b, AT);
    tell(b, LATE_PID, (uint64_t)getpid());
    run_dma(b, dma(0, 0, vp_of(0, LOW), 0, 0, 0, ev));
    flush(b);
    CHECK(!die[0]); /* not reached */
    tell(b, OVER, 1);
}

static int trap_survives_its_dead_setter(void)
{
    static const char *const steps[] = {"logged:1",   "half_applied:1", "reporting:1",
                                        "reported:1", "stored:1",       "applied:1"};
    int rc = 0;

    for (unsigned i = 0; i < 6 && rc == 0; i++) {
        snprintf(die, sizeof(die), "%s", steps[i]);
        rc = run_beds_kill(2, (bed_fn[]){writes_nowhere, sets_it}, 1);
    }
    if (rc)
        printf("# failed at %s\n", die);
    return rc;
}

static int trap_survives_its_stopped_setter(void)
{
    die[0] = 0;
    return run_beds(2, (bed_fn[]){writes_nowhere, sets_it});
}

int main(void)
{
    CASE(trap_survives_dead_helper(false));
    CASE(trap_survives_dead_helper(true));
    CASE(trap_survives_its_dead_setter());
    CASE(trap_survives_its_stopped_setter());
    return cases_end();
}
