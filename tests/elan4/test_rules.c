/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rules of the interface that bmi_elan4 does not run into, or whose violation the software
 * Elan4 reports: events, command queues, addresses, attaching, processes that fork. */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/lib/asleep.h"

#define SOON 60000

static void set(struct bed *b, E4_Event *ev)
{
    elan4_set_event_cmd(b->cq, elan(b, ev));
    flush(b);
}

static void event_fires_once_until_primed(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 2);
    E4_uint64 type = (E4_uint32)ev->ev_CountAndType;
    CHECK(count_of(ev) == -64);
    set(b, ev);
    CHECK(count_of(ev) == -32 && *word == 0);
    set(b, ev);
    CHECK(count_of(ev) == 0 && elan4_load64(word) == 0xfeedfacedeadbeef);
    CHECK((E4_uint32)ev->ev_CountAndType == type && ev->ev_WritePtr == elan(b, word));
    elan4_store64(0, word);
    set(b, ev);
    CHECK(count_of(ev) == 32 && elan4_load64(word) == 0);
}

static void wait_for_set_event_fires_at_once(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    E4_uint64 again = E4_EVENT_INIT_VALUE(-32, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0);
    set(b, ev);
    set(b, ev); /* one more than was awaited */
    elan4_store64(0, word);
    elan4_wait_event_cmd(b->cq, elan(b, ev), again, elan(b, word), 7);
    flush(b);
    CHECK(elan4_load64(word) == 7);
    CHECK(count_of(ev) == 0);
    elan4_store64(0, word);
    elan4_wait_event_cmd(b->cq, elan(b, ev), again, elan(b, word), 7);
    flush(b);
    CHECK(elan4_load64(word) == 0);
    CHECK(count_of(ev) == -32);
}

static void count_overflow_traps(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    elan4_store64(E4_EVENT_INIT_VALUE(0x7ffffff0, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                  &ev->ev_CountAndType);
    set(b, ev);
    CHECK(trapped(b, UTS_BAD_TRAP, SOON));
    CHECK(count_of(ev) == 0x7ffffff0);
}

static void unaligned_block_traps(struct bed *b)
{
    bed_open(b, LOW);
    char *from = main_mem(b, 256);
    E4_uint64 *to = main_mem(b, 64);
    E4_Event *ev = sdram_mem(b, 32);
    memset(from, 0x5a, 256);
    elan4_store64(E4_EVENT_INIT_VALUE(-32, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 8),
                  &ev->ev_CountAndType);
    ev->ev_CopySource = elan(b, from);
    ev->ev_CopyDest = elan(b, to);
    set(b, ev);
    CHECK(memcmp(to, from, 64) == 0);
    CHECK(atomic_load(&b->traps) == 0);
    elan4_store64(E4_EVENT_INIT_VALUE(-32, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 8),
                  &ev->ev_CountAndType);
    ev->ev_CopySource = elan(b, from + 8);
    set(b, ev);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
}

static void command_without_permission_traps(struct bed *b)
{
    bed_open(b, LOW);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_WriteEnableBit, NULL);
    elan4_write_dword_cmd(cq, elan(b, word + 1), 9);
    elan4_set_event_cmd(cq, elan(b, ev));
    cq->cmdq_flush(cq);
    CHECK(trapped(b, UTS_PERMISSION_DENIED, SOON));
    CHECK(count_of(ev) == -32);
    CHECK(word[1] == 9);
}

static void command_queue_overflow_traps(struct bed *b)
{
    bed_open(b, LOW);
    char *mem = main_mem(b, 64);
    E4_CmdQ *cq = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_DmaStartEnableBit, NULL);
    E4_CmdQ *patient = elan4_alloc_cmdq(b->ctx, CQ_Size1K, CQ_DmaStartEnableBit,
                                        elan4_probe_cmdq(b->ctx, 16, CQ_AutoCtrlFlowOn));
    E4_DMA64 d = dma(8, 0, b->vp, elan(b, mem), elan(b, mem + 8), 0, 0);
    for (int i = 0; i < 40; i++)
        elan4_run_dma_cmd(patient, (E4_DMA *)&d);
    patient->cmdq_flush(patient);
    for (int i = 0; i < 18; i++)
        elan4_run_dma_cmd(cq, (E4_DMA *)&d);
    elan4_run_dma_cmd(cq, (E4_DMA *)&d);
    CHECK(trapped(b, UTS_CPROC_ERROR, SOON));
    CHECK(atomic_load(&b->traps) == 1); /* of the last command: traps are reported in order */
}

static void reserved_dwords_are_not_shared(struct bed *b)
{
    bed_open(b, LOW);
    E4_Addr port = elan4_alloccq_space(b->ctx, 8, CQ_Size1K);
    CHECK(port != 0);
    for (int i = 1; i < 16; i++)
        CHECK(elan4_alloccq_space(b->ctx, 8, CQ_Size1K) == port);
    E4_Addr other = elan4_alloccq_space(b->ctx, 8, CQ_Size1K);
    CHECK(other != 0 && other != port);
    CHECK(elan4_alloccq_space(b->ctx, 129, CQ_Size1K) == 0);
    elan4_freecq_space(b->ctx, port, 8);
    CHECK(elan4_alloccq_space(b->ctx, 8, CQ_Size1K) == port);
}

/* Sends a message to this process's queue. */
static void send_to(struct bed *b, E4_InputQueue *queue, char *from, unsigned size)
{
    run_dma(b, dma(size, DMA_QueueWrite, b->vp, elan(b, from), 0, 0, elan(b, queue)));
    flush(b);
}

static void queue_item_size_0_is_2048(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 2048);
    CHECK(E4_InputQueueItemSize(b->queue->q_control) == 0);
    char *msg = main_mem(b, 2048);
    for (int i = 1; i <= 2 * (SLOTS + 1); i++) {
        memset(msg, i, 2048);
        send_to(b, b->queue, msg, 2048);
        char *m = queue_take(b, 2048, SOON);
        CHECK(m != NULL && m[0] == (char)i && m[2047] == (char)i);
    }
}

static void message_beyond_a_packet_traps(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, 2048);
    send_to(b, b->queue, main_mem(b, 4096), 2056);
    CHECK(trapped(b, UTS_BAD_TRAP, SOON));
}

static void queue_outside_of_sdram_traps(struct bed *b)
{
    bed_open(b, LOW);
    bed_queue(b, SLOT);
    E4_InputQueue *q = main_mem(b, sizeof(*q));
    *q = *b->queue;
    send_to(b, q, main_mem(b, 64), 8);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->trap_proc) == UTS_IPROC);
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

static void unmapped_memory_traps(struct bed *b)
{
    bed_open(b, LOW);
    char *to = main_mem(b, 4096);
    char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone + 4096, 4096);
    run_dma(b, dma(64, 0, b->vp, elan(b, gone + 4096), elan(b, to), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->trap_proc) == UTS_DPROC);
    atomic_store(&b->traps, 0);
    run_dma(b, dma(64, 0, b->vp, elan(b, to), elan(b, gone + 4096), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(atomic_load(&b->trap_proc) == UTS_IPROC);
}

static void pointer_is_no_network_address(struct bed *b)
{
    bed_open(b, LOW);
    char *from = malloc(64), *to = main_mem(b, 64);
    from[0] = 'x';
    run_dma(b, dma(8, 0, b->vp, (E4_Addr)(uintptr_t)from, elan(b, to), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_ADDR, SOON));
    CHECK(to[0] == 0);
    CHECK(elan4_main2elan(b->ctx, NULL) == ELAN_BAD_ADDR);
}

static void missing_route_traps(struct bed *b)
{
    bed_open(b, LOW);
    char *mem = main_mem(b, 64);
    run_dma(b, dma(8, 0, NODES * CONTEXTS, elan(b, mem), elan(b, mem), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_VPROC, SOON));
    atomic_store(&b->traps, 0);
    run_dma(b, dma(8, 0, 1u << 20, elan(b, mem), elan(b, mem), 0, 0));
    flush(b);
    CHECK(trapped(b, UTS_INVALID_VPROC, SOON));
}

static void context_has_one_owner(struct bed *b)
{
    setenv("EMUELAN4_NODE", "0", 1); /* both on the same node */
    if (b->node == 0) {
        bed_open(b, LOW);
        ELAN4_CTX *other = elan4_init(0);
        CHECK(elan4_attach(other, &b->cap) != 0 && errno == EBUSY);
        b->cap.cap_mycontext = LOW + 1;
        CHECK(elan4_attach(other, &b->cap) == 0);
        elan4_fini(other);
        setenv("EMUELAN4_NODE", "2", 1); /* a context that no process has */
        ELAN4_CTX *there = elan4_init(0), *twice = elan4_init(0);
        CHECK(there->ctx_position.pos_nodeid == 2);
        b->cap.cap_mycontext = LOW;
        CHECK(elan4_attach(there, &b->cap) == 0);
        CHECK(elan4_attach(twice, &b->cap) != 0 && errno == EBUSY);
        elan4_fini(there);
        elan4_fini(twice);
        meet(b, 0, 2);
        meet(b, 1, 2);
        elan4_fini(b->ctx);
        meet(b, 2, 2);
    } else {
        meet(b, 0, 2);
        bed_prepare(b);
        CHECK(elan4_attach(b->ctx, &b->cap) != 0 && errno == EBUSY);
        meet(b, 1, 2);
        meet(b, 2, 2);
        CHECK(elan4_attach(b->ctx, &b->cap) == 0);
    }
}

static void refused(struct bed *b, int low, int high, int my, int lownode, int highnode,
                    int err)
{
    ELAN_CAPABILITY cap = b->cap;

    cap.cap_lowcontext = low;
    cap.cap_highcontext = high;
    cap.cap_mycontext = my;
    cap.cap_lownode = lownode;
    cap.cap_highnode = highnode;
    CHECK(elan4_attach(b->ctx, &cap) != 0);
    CHECK(errno == err);
}

static void attach_checks_the_capability(struct bed *b)
{
    bed_prepare(b);
    refused(b, 2, 9, 10, 0, 3, EINVAL);
    refused(b, 2, 9, 1, 0, 3, EINVAL);
    refused(b, 2, 9, 2, 1, 3, EINVAL); /* this process is on node 0 */
    refused(b, 0, 9, 0, 0, 3, EBUSY);  /* used by the kernel */
    refused(b, 0x3f0, 0x410, 0x3f0, 0, 3, EINVAL);
    refused(b, 2, 0x900, 2, 0, 3, EINVAL);
    refused(b, 0x410, 0x413, 0x411, 0, 3, EACCES); /* needs a resource manager */
    ELAN_CAPABILITY cap = b->cap;
    cap.cap_version++;
    CHECK(elan4_attach(b->ctx, &cap) != 0 && errno == EINVAL);
    cap = b->cap;
    cap.cap_type = ELAN_CAP_TYPE_KERNEL | ELAN_CAP_TYPE_NO_BITMAP;
    CHECK(elan4_attach(b->ctx, &cap) != 0 && errno == EINVAL);
    cap = b->cap;
    cap.cap_highnode = 511; /* as many processes as there are routes */
    CHECK(elan4_add_p2pvp(b->ctx, 0, &cap) == 0 && elan4_add_p2pvp(b->ctx, 1, &cap) < 0);
    CHECK(elan4_attach(b->ctx, &b->cap) == 0);
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

/* A child has no network interface of its parent's, and may open its own. */
static void child_opens_its_own_interface(struct bed *b)
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

static const struct {
    const char *name;
    int n;
    bed_fn fn[2];
    bool dies; /* the second process, by SIGKILL */
} rules[] = {
#define ALONE(fn)                                                                              \
    {                                                                                          \
#fn, 1, {fn }, false                                                                   \
    }
    ALONE(event_fires_once_until_primed),
    ALONE(wait_for_set_event_fires_at_once),
    ALONE(count_overflow_traps),
    ALONE(unaligned_block_traps),
    ALONE(command_without_permission_traps),
    ALONE(command_queue_overflow_traps),
    ALONE(reserved_dwords_are_not_shared),
    ALONE(queue_item_size_0_is_2048),
    ALONE(message_beyond_a_packet_traps),
    ALONE(queue_outside_of_sdram_traps),
    ALONE(dmas_overtake_each_other),
    ALONE(unmapped_memory_traps),
    ALONE(pointer_is_no_network_address),
    ALONE(missing_route_traps),
    ALONE(attach_checks_the_capability),
    ALONE(child_opens_its_own_interface),
    {"context_has_one_owner", 2, {context_has_one_owner, context_has_one_owner}, false},
    {"sleeper_wakes_when_waker_dies", 2, {sleeps, dies_before_waking}, true},
};

int main(void)
{
    for (unsigned k = 0; k < sizeof(rules) / sizeof(rules[0]); k++)
        if (case_begins(rules[k].name))
            case_ends(run_beds_kill(rules[k].n, rules[k].fn, rules[k].dies ? 1 : -1));
    return cases_end();
}
