/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/elan4/bed.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void on_trap(ELAN4_CTX *ctx, ELAN4_USER_TRAP *trap, void *arg)
{
    struct bed *b = arg;

    (void)ctx;
    atomic_store(&b->trap_type, trap->ut_type);
    atomic_store(&b->trap_proc, (int)trap->ut_proc);
    atomic_fetch_add(&b->traps, 1);
}

void bed_open(struct bed *b, int context)
{
    CHECK((b->ctx = elan4_init(0)) != NULL);
    CHECK((b->sdram = elan4_open_sdram(0, 0, 1 << 20)) != NULL);
    CHECK((b->alloc = elan4_createAllocator(4 << 20, b->sdram, 0, 1 << 20)) != NULL);
    CHECK(elan4_set_standard_mappings(b->ctx) == 0);
    CHECK(elan4_set_required_mappings(b->ctx) == 0);
    CHECK(elan4_register_trap_handler(b->ctx, UTS_ALL_TRAPS, UTS_ALL_TRAPS, on_trap, b) == 0);
    elan_nullcap(&b->cap);
    b->cap.cap_type = ELAN_CAP_TYPE_BLOCK | ELAN_CAP_TYPE_NO_BITMAP | ELAN_CAP_TYPE_MULTI_RAIL;
    b->cap.cap_railmask = 1;
    b->cap.cap_lownode = 0;
    b->cap.cap_highnode = NODES - 1;
    b->cap.cap_lowcontext = LOW;
    b->cap.cap_highcontext = LOW + CONTEXTS - 1;
    b->cap.cap_mycontext = context;
    CHECK(elan4_add_p2pvp(b->ctx, 0, &b->cap) == 0);
    CHECK(elan4_attach(b->ctx, &b->cap) == 0);
    b->vp = vp_of(b->node, b->cap.cap_mycontext);
    CHECK((b->cookies = elan4_allocCookiePool(b->ctx, b->vp)) != NULL);
    CHECK((b->cq = elan4_alloc_cmdq(b->ctx, CQ_Size64K, CQ_EnableAllBits, NULL)) != NULL);
    CHECK((b->irq = elan4_alloc_cmdq(b->ctx, CQ_Size1K,
                                     CQ_WriteEnableBit | CQ_InterruptEnableBit, NULL)) != NULL);
}

void bed_close(struct bed *b)
{
    elan4_fini(b->ctx);
    elan4_destroyAllocator(b->alloc);
    elan4_close_sdram(b->sdram);
}

unsigned vp_of(int node, int context)
{
    return (unsigned)(node * CONTEXTS + context - LOW);
}

E4_Addr elan(struct bed *b, const volatile void *p)
{
    E4_Addr a = elan4_main2elan(b->ctx, p);

    CHECK(a != ELAN_BAD_ADDR);
    return a;
}

void *main_mem(struct bed *b, size_t size)
{
    void *p = elan4_allocMain(b->alloc, 64, size);

    CHECK(p);
    return memset(p, 0, size);
}

void *sdram_mem(struct bed *b, size_t size)
{
    void *p = elan4_allocElan(b->alloc, 64, size);

    CHECK(p);
    return memset(p, 0, size);
}

E4_Event *word_event(struct bed *b, volatile E4_uint64 *word, int count)
{
    E4_Event *ev = sdram_mem(b, sizeof(E4_Event32));

    elan4_store64(0, word);
    elan4_initevent_write(b->ctx, ev, word);
    elan4_primeevent_write(b->ctx, ev, count);
    return ev;
}

void bed_queue(struct bed *b, unsigned slot)
{
    b->queue = sdram_mem(b, sizeof(*b->queue));
    b->slots = main_mem(b, (SLOTS + 1) * slot);
    b->arrived = main_mem(b, 64);
    b->queue_event = word_event(b, b->arrived, 1);
    b->first = elan(b, b->slots);
    b->last = b->first + SLOTS * slot;
    b->queue->q_fptr = b->first;
    b->queue->q_control = E4_InputQueueControl(b->first, b->last, slot);
    b->queue->q_event = elan(b, b->queue_event);
    elan4_store64(b->first, &b->queue->q_bptr);
}

struct _E4_DMA64 dma(size_t size, unsigned flags, unsigned vp, E4_Addr src, E4_Addr dst,
                     E4_Addr srcev, E4_Addr dstev)
{
    return (struct _E4_DMA64){.dma_typeSize =
                                  E4_DMA_TYPE_SIZE(size, DMA_DataTypeByte, flags, 16),
                              .dma_cookie = 1,
                              .dma_vproc = vp,
                              .dma_srcAddr = src,
                              .dma_dstAddr = dst,
                              .dma_srcEvent = srcev,
                              .dma_dstEvent = dstev};
}

void run_dma(struct bed *b, struct _E4_DMA64 d)
{
    elan4_run_dma_cmd(b->cq, (E4_DMA *)&d);
}

void ask_dma(struct bed *b, int node, struct _E4_DMA64 d)
{
    elan4_remote_dma(b->cq, (E4_DMA *)&d, vp_of(node, LOW), 1);
    flush(b);
}

void flush(struct bed *b)
{
    b->cq->cmdq_flush(b->cq);
}

uint64_t *number_mem(struct bed *b, uint64_t value)
{
    uint64_t *msg = main_mem(b, 64);

    *msg = value;
    return msg;
}

bool word_set(struct bed *b, volatile E4_uint64 *word, int ms)
{
    return elan4_pollevent_word(b->ctx, word, ms * 1000L);
}

bool trapped(struct bed *b, int type, int ms)
{
    for (uint64_t end = now_ms() + (uint64_t)ms; now_ms() < end; usleep(500))
        if (atomic_load(&b->traps) && atomic_load(&b->trap_type) == type)
            return true;
    return false;
}

void meet(struct bed *b, int i, int n)
{
    atomic_fetch_add(&b->m->stage[i], 1);
    while (atomic_load(&b->m->stage[i]) < n)
        usleep(200);
}

void tell(struct bed *b, int i, uint64_t v)
{
    atomic_store(&b->m->word[i], v);
}

uint64_t told(struct bed *b, int i)
{
    uint64_t v;

    while (!(v = atomic_load(&b->m->word[i])))
        usleep(200);
    return v;
}

static int finish(pid_t pid, bool killed)
{
    int st = 0;

    if (waitpid(pid, &st, 0) != pid)
        return -1;
    if (killed)
        return WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL ? 0 : -1;
    return WIFEXITED(st) && WEXITSTATUS(st) == 0 ? 0 : -1;
}

static int run(int n, const bed_fn *fn, int victim)
{
    struct scratch dir;
    char node[16];
    pid_t pid[64];
    int rc = 0;
    struct meeting *m =
        mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (m == MAP_FAILED || scratch_open(&dir, "/dev/shm/elan4-test") < 0)
        return -1;
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        pid[i] = fork();
        if (pid[i] != 0)
            continue;
        struct bed b = {.node = i % NODES, .index = i, .m = m};
        snprintf(node, sizeof(node), "%d", b.node);
        setenv("EMUELAN4_NODE", node, 1);
        setenv("EMUELAN4_DIR", dir.dir, 1);
        alarm(300); /* ends a hang; long enough for a busy machine */
        fn[i](&b);
        fflush(NULL);
        _exit(0); /* memory that a test leaves allocated is not a leak of the library */
    }
    for (int i = 0; i < n; i++)
        if (finish(pid[i], i == victim) < 0) {
            rc = -1;
            for (int k = i + 1; k < n; k++)
                if (k != victim)
                    kill(pid[k], SIGKILL); /* works on a stopped process, too */
        }
    munmap(m, sizeof(*m));
    scratch_close(&dir);
    return rc;
}

int run_beds(int n, const bed_fn *fn)
{
    return run(n, fn, -1);
}

int run_beds_kill(int n, const bed_fn *fn, int victim)
{
    return run(n, fn, victim);
}
