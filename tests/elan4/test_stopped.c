/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Processes that are stopped in the middle of actions on others, or during others' actions on
 * them; and one that forks while its threads work for others. */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/elan4/gate.h"
#include "tests/elan4/segment.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SOON 60000

/* ---- A helper dies while the target is stopped ---- */

enum { QUEUE, MESSAGE, TARGET_PID, HELPER_PID, OWNER_PID };
static char die[40];
#define NOT_ASKED "listed:1" /* the list that puts it into the owner's table is not valid */

static void stopped_target(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, QUEUE, elan(b, b->queue));
    tell(b, TARGET_PID, (uint64_t)getpid());
    if (strcmp(die, NOT_ASKED) != 0) /* arrived before, or when the owner sent it */
        CHECK(take_number(b, SOON) == 1);
    CHECK(take_number(b, SOON) == 2);
    CHECK(!take_number(b, 50)); /* nothing arrives twice */
    meet(b, 0, 2);
}

/* Dies at a step of sending a message for the owner, which is stopped and so cannot send it
 * itself. */
static void helper(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    setenv("EMUELAN4_DIE", die, 1);
    bed_open(b, LOW);
    E4_Addr msg = told(b, MESSAGE), queue = told(b, QUEUE);
    volatile E4_uint64 *never = main_mem(b, 64);
    CHECK(process_stop((pid_t)told(b, TARGET_PID)));
    CHECK(process_stop((pid_t)told(b, OWNER_PID)));
    tell(b, HELPER_PID, (uint64_t)getpid());
    ask_dma(b, 2, dma(8, DMA_QueueWrite, vp_of(0, LOW), msg, 0, 0, queue));
    word_set(b, never, SOON);
    CHECK(false); /* did not reach that step */
}

static void wait_for_death(pid_t pid)
{
    while (!process_is_dead(pid))
        usleep(1000);
}

/* Lets the owner continue. */
static void bystander(struct bed *b)
{
    wait_for_death((pid_t)told(b, HELPER_PID));
    CHECK(kill((pid_t)told(b, OWNER_PID), SIGCONT) == 0);
}

/* Checks that nothing of that is left, lets the target continue, and sends another message. */
static void owner(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    tell(b, MESSAGE, elan(b, number_mem(b, 1)));
    tell(b, OWNER_PID, (uint64_t)getpid());
    wait_for_death((pid_t)told(b, HELPER_PID));
    bool gone = false;
    for (uint64_t end = now_ms() + SOON; !gone || !ctx_is_idle(&seg->ctx[0]); usleep(1000)) {
        CHECK(now_ms() < end);
        gone = gone || somebody_is_gone(seg);
    }
    CHECK(kill((pid_t)told(b, TARGET_PID), SIGCONT) == 0);
    send_number(b, told(b, QUEUE), 2, 0);
    meet(b, 0, 2);
}

/* The message arrives once, or was not requested, at whichever step the helper dies. The helper
 * lists four times: the request, its claim, the message, the result. */
static int dead_helper_delivers_at_most_once(const char *step)
{
    int rc = 0;

    for (int k = 1; k <= 4 && rc == 0; k++) {
        snprintf(die, sizeof(die), "%s:%d", step, k);
        rc = run_beds_kill(4, (bed_fn[]){stopped_target, helper, owner, bystander}, 1);
        if (rc)
            printf("# failed at %s\n", die);
    }
    return rc;
}

/* ---- A helper dies while the target's lock is held ---- */

enum { LET_GO = OWNER_PID + 1 };

static void keeps_its_lock(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 64);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    E4_Addr queue = elan(b, b->queue);
    while (!take_lock(&seg->ctx[0]))
        ;
    tell(b, QUEUE, queue);
    wait_for_death((pid_t)told(b, HELPER_PID));
    CHECK(kill((pid_t)told(b, OWNER_PID), SIGCONT) == 0);
    (void)told(b, LET_GO);
    give_lock(&seg->ctx[0]);
    CHECK(take_number(b, SOON) == 1);
    CHECK(!take_number(b, 50));
}

static void dies_helping(struct bed *b)
{
    setenv("EMUELAN4_DIE", "helping:1", 1);
    bed_open(b, LOW);
    E4_Addr msg = told(b, MESSAGE), queue = told(b, QUEUE);
    volatile E4_uint64 *never = main_mem(b, 64);
    CHECK(process_stop((pid_t)told(b, OWNER_PID))); /* so that it does not send itself */
    tell(b, HELPER_PID, (uint64_t)getpid());
    ask_dma(b, 2, dma(8, DMA_QueueWrite, vp_of(0, LOW), msg, 0, 0, queue));
    word_set(b, never, SOON);
    CHECK(false); /* did not reach that step */
}

#define OTHER_WAKEUPS 3 /* most wake-ups for the death, and for earlier requests */

static void does_not_hurry(struct bed *b)
{
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    tell(b, MESSAGE, elan(b, number_mem(b, 1)));
    tell(b, OWNER_PID, (uint64_t)getpid());
    wait_for_death((pid_t)told(b, HELPER_PID));
    /* pauses of 10 ms and up, doubling; longer on a busy machine */
    uint64_t before = atomic_load(&seg->counters.wakeups), begun = now_ms();
    while (atomic_load(&seg->counters.wakeups) - before < OTHER_WAKEUPS + 5)
        usleep(1000);
    CHECK(!somebody_is_gone(seg) && !ctx_is_idle(&seg->ctx[0]));
    CHECK(now_ms() - begun >= 10 + 20 + 40 + 80 + 160 - 10);
    tell(b, LET_GO, 1);
    for (uint64_t end = now_ms() + SOON; !somebody_is_gone(seg); usleep(1000))
        CHECK(now_ms() < end);
    for (uint64_t end = now_ms() + SOON; !ctx_is_idle(&seg->ctx[0]); usleep(1000))
        CHECK(now_ms() < end);
}

/* A process that has to learn a dead one's work from others asks them less and less often. */
static int waiting_for_others_is_quiet(void)
{
    return run_beds_kill(3, (bed_fn[]){keeps_its_lock, dies_helping, does_not_hurry}, 1);
}

/* ---- A process stopped with the target's lock, which is taken over ---- */

enum { LATE_PID = QUEUE + 1, LATE_OVER, GO, NEXT_PID };

/* Stops when its list is valid and has been executed. */
static void stops_at(struct bed *b, const char *step)
{
    setenv("EMUELAN4_STOP", step, 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Addr ev = elan(b, word_event(b, word, 1)), queue = told(b, QUEUE);
    tell(b, LATE_PID, (uint64_t)getpid());
    send_number(b, queue, 1, ev);
    CHECK(word_set(b, word, SOON));
    tell(b, LATE_OVER, 1);
    meet(b, 0, 2);
}

static void stops_when_applied(struct bed *b)
{
    stops_at(b, "applied:1");
}

static void stops_at_the_slot(struct bed *b)
{
    stops_at(b, "slot_found:1");
}

static void stops_when_listed(struct bed *b)
{
    stops_at(b, "listed:1");
}

/* Another process stops with half of its list executed, and is killed. */
static void stops_half_way(struct bed *b)
{
    setenv("EMUELAN4_STOP", "half_applied:1", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    E4_Addr queue = told(b, QUEUE);
    (void)told(b, GO);
    tell(b, NEXT_PID, (uint64_t)getpid());
    send_number(b, queue, 2, 0);
    CHECK(false); /* not reached */
}

static pid_t until_stopped(struct bed *b, int word)
{
    pid_t pid = (pid_t)told(b, word);

    while (!process_is_stopped(pid))
        usleep(1000);
    return pid;
}

/* Gets its lock back; its queue works. */
static void open_taken_from(struct bed *b)
{
    setenv("EMUELAN4_LOCK_MS", "50", 1);
    bed_open(b, LOW);
    bed_queue(b, 64);
    tell(b, QUEUE, elan(b, b->queue));
}

static void go_on(struct bed *b, pid_t pid)
{
    CHECK(kill(pid, SIGCONT) == 0);
    (void)told(b, LATE_OVER);
}

static void takes_from_two(struct bed *b)
{
    open_taken_from(b);
    pid_t late = until_stopped(b, LATE_PID);
    CHECK(take_number(b, SOON) == 1);
    tell(b, GO, 1);
    pid_t next = until_stopped(b, NEXT_PID);
    go_on(b, late);
    CHECK(kill(next, SIGKILL) == 0);
    wait_for_death(next);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0); /* takes the lock */
    CHECK(take_number(b, SOON) == 2);
    meet(b, 0, 2);
}

/* A late process does not invalidate another one's list: its rest is executed. */
static int valid_list_stays_valid(void)
{
    return run_beds_kill(3, (bed_fn[]){takes_from_two, stops_when_applied, stops_half_way}, 2);
}

static void takes_from_one(struct bed *b)
{
    open_taken_from(b);
    pid_t late = until_stopped(b, LATE_PID);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0);
    send_number(b, elan(b, b->queue), 3, 0);
    CHECK(take_number(b, SOON) == 3);
    go_on(b, late);
    CHECK(take_number(b, SOON) == 1);
    CHECK(!take_number(b, 50));
    meet(b, 0, 2);
}

static void leaves_it_unread(struct bed *b)
{
    open_taken_from(b);
    pid_t late = until_stopped(b, LATE_PID);
    volatile E4_uint64 *word = main_mem(b, 64);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0);
    send_number(b, elan(b, b->queue), 3, elan(b, word_event(b, word, 1)));
    CHECK(word_set(b, word, SOON));
    go_on(b, late);
    CHECK(take_number(b, SOON) == 3);
    CHECK(take_number(b, SOON) == 1);
    CHECK(!take_number(b, 50));
    meet(b, 0, 2);
}

/* The slot that it had found has another message by then. */
static int reused_slot_keeps_its_message(void)
{
    return run_beds(2, (bed_fn[]){leaves_it_unread, stops_at_the_slot});
}

/* A list that was not valid when the lock was taken over is done again. */
static int invalid_list_is_done_again(void)
{
    return run_beds(2, (bed_fn[]){takes_from_one, stops_when_listed});
}

/* ---- A thread stopped with a lock, while others of its process continue ---- */

enum { FIRST_IN = QUEUE + 1, TAKEN, SECOND_IN, FIRST_OVER };

/* The first thread waits with the lock until it was taken over and a second one has it; the
 * second waits with the lock until the first is done. */
static void first_and_second(struct bed *b, int signal)
{
    if (signal == SIGSTOP) {
        tell(b, FIRST_IN, 1);
        (void)told(b, SECOND_IN);
    } else {
        tell(b, SECOND_IN, 1);
        (void)told(b, FIRST_OVER);
    }
}

static void *sends_first(void *arg)
{
    struct bed *b = arg;

    send_number(b, told(b, QUEUE), 1, 0);
    tell(b, FIRST_OVER, 1);
    return NULL;
}

static void sends_two(struct bed *b)
{
    pthread_t first;

    setenv("EMUELAN4_STOP", "slot_written:1", 1);
    setenv("EMUELAN4_DIE", "slot_written:1", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_EnableAllBits, NULL);
    CHECK(cq);
    struct _E4_DMA64 d =
        dma(8, DMA_QueueWrite, vp_of(0, LOW), elan(b, number_mem(b, 2)), 0, 0, told(b, QUEUE));
    at_step = first_and_second;
    gate_bed = b;
    CHECK(pthread_create(&first, NULL, sends_first, b) == 0);
    (void)told(b, TAKEN);
    elan4_run_dma_cmd(cq, (E4_DMA *)&d);
    cq->cmdq_flush(cq);
    CHECK(pthread_join(first, NULL) == 0);
    meet(b, 0, 2);
}

static void takes_it_once(struct bed *b)
{
    open_taken_from(b);
    (void)told(b, FIRST_IN);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0); /* takes the lock */
    tell(b, TAKEN, 1);
    (void)told(b, FIRST_OVER);
    uint64_t one = take_number(b, SOON), other = take_number(b, SOON);
    CHECK((one == 1 && other == 2) || (one == 2 && other == 1));
    CHECK(!take_number(b, 50));
    meet(b, 0, 2);
}

/* A thread that has lost a lock does not mistake another thread's lock for its own: both would
 * write to the same place. */
static int lock_belongs_to_one_thread(void)
{
    return run_beds(2, (bed_fn[]){takes_it_once, sends_two});
}

/* The first thread holds its own context's lock. */
static void keeps_it(struct bed *b, int signal)
{
    (void)signal;
    tell(b, FIRST_IN, 1);
    (void)told(b, SECOND_IN);
}

static void *sends_to_itself(void *arg)
{
    struct bed *b = arg;

    send_number(b, elan(b, b->queue), 1, 0);
    return NULL;
}

/* Acts like a process that is stopped five times for 1.2 s while it waits, and reads the clock
 * in between: after waiting that long it could take over the lock. */
static void *steps_the_clock(void *arg)
{
    struct bed *b = arg;

    for (int i = 0; i < 5; i++) {
        for (uint64_t looks = gate_clock_looks(); gate_clock_looks() < looks + 3;)
            usleep(100);
        gate_clock_step(1200);
    }
    for (uint64_t looks = gate_clock_looks(); gate_clock_looks() < looks + 3;)
        usleep(100);
    tell(b, SECOND_IN, 1);
    return NULL;
}

static void waits_while_stopped(struct bed *b)
{
    pthread_t first, second;

    setenv("EMUELAN4_STOP", "slot_found:1", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    setenv("EMUELAN4_LOCK_MS", "1000", 1);
    bed_open(b, LOW);
    bed_queue(b, 64);
    struct shm_head *seg = own_segment();
    CHECK(seg);
    at_step = keeps_it;
    gate_bed = b;
    CHECK(pthread_create(&first, NULL, sends_to_itself, b) == 0);
    (void)told(b, FIRST_IN);
    gate_clock_stop();
    gate_clock_count();
    CHECK(pthread_create(&second, NULL, steps_the_clock, b) == 0);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0); /* waits for the lock */
    CHECK(pthread_join(second, NULL) == 0);
    CHECK(pthread_join(first, NULL) == 0);
    gate_clock_run();
    CHECK(atomic_load(&seg->counters.locks_broken) == 0);
    CHECK(take_number(b, SOON) == 1);
}

/* Time for which a process is stopped does not count as waiting for its other thread. */
static int being_stopped_is_not_waiting(void)
{
    return run_beds(1, (bed_fn[]){waits_while_stopped});
}

/* The first thread has listed the insertion of a DMA into its own context's table. */
static void loses_its_own(struct bed *b)
{
    pthread_t first;

    setenv("EMUELAN4_STOP", "listed:1", 1);
    setenv("EMUELAN4_REORDER", "100", 1);
    setenv("EMUELAN4_LOCK_MS", "50", 1);
    bed_open(b, LOW);
    bed_queue(b, 64);
    at_step = keeps_it;
    gate_bed = b;
    CHECK(pthread_create(&first, NULL, sends_to_itself, b) == 0);
    (void)told(b, FIRST_IN);
    CHECK(elan4_block_inputter(b->ctx, 0) == 0); /* takes the lock */
    tell(b, SECOND_IN, 1);
    CHECK(pthread_join(first, NULL) == 0);
    CHECK(take_number(b, SOON) == 1);
    CHECK(!take_number(b, 50));
}

/* Work that a thread has lost in its own context is done again. */
static int lost_work_is_done_again(void)
{
    return run_beds(1, (bed_fn[]){loses_its_own});
}

/* ---- A fork while all claims of a process are in use ---- */

static void lends(struct bed *b)
{
    bed_open(b, LOW);
    tell(b, 0, elan(b, number_mem(b, 7)));
    tell(b, 1, (uint64_t)getpid());
    (void)told(b, 2);
}

static bool reads_one(struct bed *b)
{
    uint64_t *into = main_mem(b, 64);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);

    ask_dma(b, 1, dma(8, 0, b->vp, told(b, 0), elan(b, into), 0, elan(b, ev)));
    return word_set(b, word, SOON) && *into == 7;
}

static _Atomic unsigned at_work;
static _Atomic bool may_end;

/* A thread that has moved the data and not recorded it. */
static void stays_at_work(struct bed *b)
{
    (void)b;
    atomic_fetch_add(&at_work, 1);
    while (!atomic_load(&may_end))
        usleep(1000);
}

/* Requests work until it does some itself: another thread may do a part. */
static void *works(void *arg)
{
    struct bed *b = arg;
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size8K, CQ_EnableAllBits, NULL);
    volatile E4_uint64 *never = main_mem(b, 64);
    struct _E4_DMA64 d = dma(8, 0, b->vp, told(b, 0), elan(b, main_mem(b, 64)), 0, 0);

    CHECK(cq);
    while (atomic_load(&at_work) < EMU4_MARKS) {
        elan4_remote_dma(cq, (E4_DMA *)&d, vp_of(1, LOW), 1);
        cq->cmdq_flush(cq);
        word_set(b, never, 1);
    }
    return NULL;
}

static void forks_at_work(struct bed *b)
{
    pthread_t thread[EMU4_MARKS];
    int st = 1;

    setenv("EMUELAN4_SETTLE_LATE_US", NUMBER(GATE_US), 1);
    at_delay = stays_at_work;
    bed_open(b, LOW);
    (void)told(b, 0);
    CHECK(process_stop((pid_t)told(b, 1))); /* so that it cannot do the work itself */
    for (unsigned i = 0; i < EMU4_MARKS; i++)
        CHECK(pthread_create(&thread[i], NULL, works, b) == 0);
    while (atomic_load(&at_work) < EMU4_MARKS)
        usleep(100);
    unsetenv("EMUELAN4_SETTLE_LATE_US");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct bed c = {.m = b->m};
        alarm(60);
        pid_t parent = getppid();
        CHECK(process_stop(parent)); /* else it would do the requested work */
        bed_open(&c, LOW + 1);
        bool well = reads_one(&c);
        CHECK(kill(parent, SIGCONT) == 0);
        _exit(!well);
    }
    CHECK(waitpid(pid, &st, 0) == pid && st == 0);
    atomic_store(&may_end, true);
    for (unsigned i = 0; i < EMU4_MARKS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(kill((pid_t)told(b, 1), SIGCONT) == 0);
    tell(b, 2, 1);
}

/* The child has all claims of its own. */
static int forked_child_has_own_claims(void)
{
    return run_beds(2, (bed_fn[]){forks_at_work, lends});
}

/* ---- A stopped process that was waking another ---- */

enum { NOWHERE, RINGER_PID, HEARD };

/* Its engine's thread sleeps, and must be woken for a trap. */
static void sleeps(struct bed *b)
{
    bed_open(b, LOW);
    const struct shm_head *seg = own_segment();
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(seg && page != MAP_FAILED);
    E4_Addr at = elan(b, page);
    while (!atomic_load(&seg->asleep))
        usleep(1000);
    tell(b, NOWHERE, at);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    tell(b, HEARD, 1);
    meet(b, 0, 3);
}

static void write_nowhere(struct bed *b)
{
    run_dma(b, dma(8, 0, vp_of(0, LOW), elan(b, main_mem(b, 64)), told(b, NOWHERE), 0, 0));
    flush(b);
}

static void is_stopped_ringing(struct bed *b)
{
    setenv("EMUELAN4_STOP", "ringing:1", 1);
    setenv("EMUELAN4_REORDER", "0", 1);
    bed_open(b, LOW);
    (void)told(b, NOWHERE);
    tell(b, RINGER_PID, (uint64_t)getpid());
    write_nowhere(b);
    meet(b, 0, 3);
}

static void rings_next(struct bed *b)
{
    bed_open(b, LOW);
    pid_t ringer = (pid_t)told(b, RINGER_PID);
    for (uint64_t end = now_ms() + SOON; !process_is_stopped(ringer); usleep(1000))
        CHECK(now_ms() < end);
    write_nowhere(b);
    (void)told(b, HEARD);
    CHECK(kill(ringer, SIGCONT) == 0);
    meet(b, 0, 3);
}

/* Another process can wake it meanwhile. */
static int stopped_waker_blocks_no_wake_up(void)
{
    return run_beds(3, (bed_fn[]){sleeps, is_stopped_ringing, rings_next});
}

int main(void)
{
    CASE(dead_helper_delivers_at_most_once("listed"));
    CASE(dead_helper_delivers_at_most_once("logged"));
    CASE(dead_helper_delivers_at_most_once("half_applied"));
    CASE(waiting_for_others_is_quiet());
    CASE(valid_list_stays_valid());
    CASE(reused_slot_keeps_its_message());
    CASE(invalid_list_is_done_again());
    CASE(lock_belongs_to_one_thread());
    CASE(being_stopped_is_not_waiting());
    CASE(lost_work_is_done_again());
    CASE(forked_child_has_own_claims());
    CASE(stopped_waker_blocks_no_wake_up());
    return cases_end();
}
